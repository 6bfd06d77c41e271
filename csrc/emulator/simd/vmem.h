// Loads, stores and atomics on memory, whatever computes the lanes' addresses.
//
// An address mode has a function `resolve` that fills Lanes, and says with kMapped whether the
// addresses are to be checked against the launch's memory (scratch is the emulator's own).
#pragma once

#include <cstdint>

#include "emulator/simd/access.h"
#include "emulator/simd/atomic.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

void fill_vmem_buffer(HandlerTable& table);
void fill_vmem_scratch(HandlerTable& table);

struct Lanes {
  alignas(64) uint64_t address[kLanes];
  uint64_t active = 0;
  uint64_t lowest = 0, highest = 0;  // of all lanes, active or not
  // A buffer's end. Components beyond are out of the buffer's range: loads give 0, stores and
  // atomics do nothing, as on hardware.
  uint64_t limit = ~uint64_t{0};

  uint8_t* operator()(int lane) const { return reinterpret_cast<uint8_t*>(address[lane]); }

  template <typename Mode, bool kWrite>
  bool all_accessible(const MemoryMap& memory, uint32_t bytes) const {
    if (active != kAllLanes) return false;
    if constexpr (!Mode::kMapped) return true;
    if (limit < bytes || highest > limit - bytes) return false;
    const uint64_t span = highest - lowest + bytes;
    return kWrite ? memory.writable(lowest, span) : memory.readable(lowest, span);
  }

  // How many of the lane's bytes lie in range, in whole components.
  uint32_t bytes_in_range(int lane, uint32_t bytes, uint32_t component) const {
    if (address[lane] >= limit) return 0;
    const uint64_t left = limit - address[lane];
    return left >= bytes ? bytes : static_cast<uint32_t>(left) / component * component;
  }

  template <typename Mode, bool kWrite>
  void require(const Instruction& instruction, const Wave& wave, int lane, uint32_t bytes,
               const char* access) const {
    if constexpr (Mode::kMapped) {
      const MemoryMap& memory = *wave.workgroup->memory;
      const bool legal =
          kWrite ? memory.writable(address[lane], bytes) : memory.readable(address[lane], bytes);
      if (!legal) throw_memory_fault(instruction, wave, lane, address[lane], bytes, access);
    }
  }
};

// The lane's bytes, zeros where out of range.
template <typename Mode, typename Access>
inline void fetch_lane(const Instruction& instruction, const Wave& wave, const Lanes& lanes,
                       int lane, uint8_t (&bytes)[16]) {
  const uint32_t count = lanes.bytes_in_range(lane, Access::kBytes, Access::kComponentBytes);
  std::memset(bytes, 0, sizeof(bytes));
  if (count == 0) return;
  lanes.require<Mode, false>(instruction, wave, lane, count, "read");
  std::memcpy(bytes, lanes(lane), count);
}

template <typename Mode, typename Access>
void load(const Instruction& instruction, Wave& wave) {
  Lanes lanes;
  Mode::resolve(instruction, wave, Access::kBytes, "read", lanes);
  VectorRegister* to = registers(instruction, wave, instruction.dst, Access::kRegisters);
  if (lanes.all_accessible<Mode, false>(*wave.workgroup->memory, Access::kBytes)) {
    Access::load_all(to, lanes);
  } else {
    for_each_lane(lanes.active, [&](int lane) {
      uint8_t bytes[16];
      fetch_lane<Mode, Access>(instruction, wave, lanes, lane, bytes);
      Access::load_lane(to, lane, bytes);
    });
  }
  wave.issue_vmem();
}

// Lane l's data goes to LDS at M0 + instruction offset + l * kLdsDmaBytes. Out of a buffer's range
// that is zeros, as for a load.
template <typename Mode, typename Access>
void load_lds(const Instruction& instruction, Wave& wave) {
  Lanes lanes;
  Mode::resolve(instruction, wave, Access::kBytes, "read", lanes);
  const uint32_t lds_address = wave.sgpr[kM0] + static_cast<uint32_t>(instruction.offset);
  if (lds_address % 4 != 0) throw_error("M0 + offset of an LDS-DMA must be a multiple of 4");
  constexpr uint32_t kLaneBytes = Access::kLdsDmaBytes;
  uint8_t data[kLanes * kLaneBytes];
  if (lanes.all_accessible<Mode, false>(*wave.workgroup->memory, Access::kBytes)) {
    for (int lane = 0; lane < kLanes; ++lane)
      Access::lds_dma(lanes(lane), data + lane * kLaneBytes);
  } else {
    std::memset(data, 0, sizeof(data));
    for_each_lane(lanes.active, [&](int lane) {
      uint8_t bytes[16];
      fetch_lane<Mode, Access>(instruction, wave, lanes, lane, bytes);
      Access::lds_dma(bytes, data + lane * kLaneBytes);
    });
  }
  wave.issue_lds_dma(lds_address, kLaneBytes, data, lanes.active);
}

template <typename Mode, typename Access>
void store(const Instruction& instruction, Wave& wave) {
  Lanes lanes;
  Mode::resolve(instruction, wave, Access::kBytes, "write", lanes);
  const VectorRegister* from = registers(instruction, wave, instruction.src[1], Access::kRegisters);
  if (lanes.all_accessible<Mode, true>(*wave.workgroup->memory, Access::kBytes)) {
    Access::store_all(from, lanes);
  } else {
    for_each_lane(lanes.active, [&](int lane) {
      const uint32_t count = lanes.bytes_in_range(lane, Access::kBytes, Access::kComponentBytes);
      if (count == 0) return;
      lanes.require<Mode, true>(instruction, wave, lane, count, "write");
      uint8_t bytes[16];
      Access::store_lane(from, lane, bytes);
      std::memcpy(lanes(lane), bytes, count);
    });
  }
  wave.issue_vmem();
}

// Workgroups on other threads may update the same memory. The builtins rather than std::atomic_ref:
// its out-of-line copies would be shared between the levels that this file is compiled for.
template <typename Operation>
inline typename Operation::Bits update(uint8_t* address, typename Operation::Bits value,
                                       typename Operation::Bits compare) {
  auto* memory = reinterpret_cast<typename Operation::Bits*>(address);
  auto old = __atomic_load_n(memory, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(memory, &old, Operation::apply(old, value, compare), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

// The old value goes to the destination, where there is one. A compare-and-swap has the new value
// in the first half of its data and the comparand in the second.
template <typename Mode, typename Operation>
void atomic(const Instruction& instruction, Wave& wave) {
  using Bits = typename Operation::Bits;
  constexpr uint32_t kBytes = sizeof(Bits), kRegisters = kBytes / 4;
  Lanes lanes;
  Mode::resolve(instruction, wave, kBytes, "atomic", lanes);
  const VectorRegister* value =
      registers(instruction, wave, instruction.src[1], kRegisters * (Operation::kCompares ? 2 : 1));
  const VectorRegister* compare = value + (Operation::kCompares ? kRegisters : 0);
  VectorRegister* to = nullptr;
  if (instruction.dst.kind != OperandKind::none) {
    to = registers(instruction, wave, instruction.dst, kRegisters);
  }
  const bool accessible = lanes.all_accessible<Mode, true>(*wave.workgroup->memory, kBytes);
  for_each_lane(lanes.active, [&](int lane) {
    Bits old = 0;
    if (accessible || lanes.bytes_in_range(lane, kBytes, kBytes) != 0) {
      if (!accessible) lanes.require<Mode, true>(instruction, wave, lane, kBytes, "atomic");
      if (lanes.address[lane] % kBytes != 0) throw_misaligned(lane, lanes.address[lane], kBytes);
      old = update<Operation>(lanes(lane), lane_bits<Bits>(value, lane),
                              lane_bits<Bits>(compare, lane));
    }
    if (to != nullptr) set_lane_bits(to, lane, old);
  });
  wave.issue_vmem();
}

// The rows that every address space has, `prefix` being its part of the mnemonic.
#define MHA_SINK_FILL_LOADS(table, prefix, Mode, load)                           \
  table[Op::prefix##_load_ubyte] = load<Mode, Part<uint8_t>>;                    \
  table[Op::prefix##_load_sbyte] = load<Mode, Part<int8_t>>;                     \
  table[Op::prefix##_load_ushort] = load<Mode, Part<uint16_t>>;                  \
  table[Op::prefix##_load_sshort] = load<Mode, Part<int16_t>>;                   \
  table[Op::prefix##_load_dword] = load<Mode, Dwords<1>>;                        \
  table[Op::prefix##_load_dwordx2] = load<Mode, Dwords<2>>;                      \
  table[Op::prefix##_load_dwordx3] = load<Mode, Dwords<3>>;                      \
  table[Op::prefix##_load_dwordx4] = load<Mode, Dwords<4>>;                      \
  table[Op::prefix##_load_ubyte_d16] = load<Mode, Part<uint8_t, Half::low>>;     \
  table[Op::prefix##_load_ubyte_d16_hi] = load<Mode, Part<uint8_t, Half::high>>; \
  table[Op::prefix##_load_sbyte_d16] = load<Mode, Part<int8_t, Half::low>>;      \
  table[Op::prefix##_load_sbyte_d16_hi] = load<Mode, Part<int8_t, Half::high>>;  \
  table[Op::prefix##_load_short_d16] = load<Mode, Part<uint16_t, Half::low>>;    \
  table[Op::prefix##_load_short_d16_hi] = load<Mode, Part<uint16_t, Half::high>>;

#define MHA_SINK_FILL_STORES(table, prefix, Mode)                                   \
  table[Op::prefix##_store_byte] = store<Mode, Part<uint8_t>>;                      \
  table[Op::prefix##_store_byte_d16_hi] = store<Mode, Part<uint8_t, Half::high>>;   \
  table[Op::prefix##_store_short] = store<Mode, Part<uint16_t>>;                    \
  table[Op::prefix##_store_short_d16_hi] = store<Mode, Part<uint16_t, Half::high>>; \
  table[Op::prefix##_store_dword] = store<Mode, Dwords<1>>;                         \
  table[Op::prefix##_store_dwordx2] = store<Mode, Dwords<2>>;                       \
  table[Op::prefix##_store_dwordx3] = store<Mode, Dwords<3>>;                       \
  table[Op::prefix##_store_dwordx4] = store<Mode, Dwords<4>>;

#define MHA_SINK_FILL_ATOMICS(table, prefix, Mode)                             \
  table[Op::prefix##_atomic_swap] = atomic<Mode, Swap<uint32_t>>;              \
  table[Op::prefix##_atomic_cmpswap] = atomic<Mode, CompareSwap<uint32_t>>;    \
  table[Op::prefix##_atomic_add] = atomic<Mode, Add<uint32_t>>;                \
  table[Op::prefix##_atomic_sub] = atomic<Mode, Sub<uint32_t>>;                \
  table[Op::prefix##_atomic_smin] = atomic<Mode, Min<int32_t>>;                \
  table[Op::prefix##_atomic_umin] = atomic<Mode, Min<uint32_t>>;               \
  table[Op::prefix##_atomic_smax] = atomic<Mode, Max<int32_t>>;                \
  table[Op::prefix##_atomic_umax] = atomic<Mode, Max<uint32_t>>;               \
  table[Op::prefix##_atomic_and] = atomic<Mode, And<uint32_t>>;                \
  table[Op::prefix##_atomic_or] = atomic<Mode, Or<uint32_t>>;                  \
  table[Op::prefix##_atomic_xor] = atomic<Mode, Xor<uint32_t>>;                \
  table[Op::prefix##_atomic_inc] = atomic<Mode, Increment<uint32_t>>;          \
  table[Op::prefix##_atomic_dec] = atomic<Mode, Decrement<uint32_t>>;          \
  table[Op::prefix##_atomic_add_f32] = atomic<Mode, Add<float>>;               \
  table[Op::prefix##_atomic_pk_add_f16] = atomic<Mode, PackedAddF16>;          \
  table[Op::prefix##_atomic_pk_add_bf16] = atomic<Mode, PackedAddBf16>;        \
  table[Op::prefix##_atomic_add_f64] = atomic<Mode, Add<double>>;              \
  table[Op::prefix##_atomic_min_f64] = atomic<Mode, Min<double>>;              \
  table[Op::prefix##_atomic_max_f64] = atomic<Mode, Max<double>>;              \
  table[Op::prefix##_atomic_swap_x2] = atomic<Mode, Swap<uint64_t>>;           \
  table[Op::prefix##_atomic_cmpswap_x2] = atomic<Mode, CompareSwap<uint64_t>>; \
  table[Op::prefix##_atomic_add_x2] = atomic<Mode, Add<uint64_t>>;             \
  table[Op::prefix##_atomic_sub_x2] = atomic<Mode, Sub<uint64_t>>;             \
  table[Op::prefix##_atomic_smin_x2] = atomic<Mode, Min<int64_t>>;             \
  table[Op::prefix##_atomic_umin_x2] = atomic<Mode, Min<uint64_t>>;            \
  table[Op::prefix##_atomic_smax_x2] = atomic<Mode, Max<int64_t>>;             \
  table[Op::prefix##_atomic_umax_x2] = atomic<Mode, Max<uint64_t>>;            \
  table[Op::prefix##_atomic_and_x2] = atomic<Mode, And<uint64_t>>;             \
  table[Op::prefix##_atomic_or_x2] = atomic<Mode, Or<uint64_t>>;               \
  table[Op::prefix##_atomic_xor_x2] = atomic<Mode, Xor<uint64_t>>;             \
  table[Op::prefix##_atomic_inc_x2] = atomic<Mode, Increment<uint64_t>>;       \
  table[Op::prefix##_atomic_dec_x2] = atomic<Mode, Decrement<uint64_t>>;

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
