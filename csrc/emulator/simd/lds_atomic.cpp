// DS atomics. A workgroup runs on one thread, so no other thread sees its LDS.
#include "emulator/simd/atomic.h"
#include "emulator/simd/lds.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

// With kReturns the old value goes to the destination. A compare-and-store has the comparand first.
template <typename Operation, bool kReturns>
void atomic(const Instruction& instruction, Wave& wave) {
  using Bits = typename Operation::Bits;
  constexpr uint32_t kRegisters = sizeof(Bits) / 4;
  const LdsAddresses addresses(instruction, wave, instruction.offset);
  const VectorRegister* first = registers(instruction, wave, instruction.src[1], kRegisters);
  const VectorRegister* second = first;
  if constexpr (Operation::kCompares) {
    second = registers(instruction, wave, instruction.src[2], kRegisters);
  }
  VectorRegister* to = nullptr;
  if constexpr (kReturns) to = registers(instruction, wave, instruction.dst, kRegisters);
  for_each_lane(wave.exec(), [&](int lane) {
    uint8_t* address = addresses.checked(wave, lane, sizeof(Bits), "atomic");
    const uint64_t offset = address - wave.workgroup->lds.data();
    if (offset % sizeof(Bits) != 0) throw_misaligned(lane, offset, sizeof(Bits));
    const Bits old = load_as<Bits>(address);
    const Bits a = lane_bits<Bits>(first, lane), b = lane_bits<Bits>(second, lane);
    const Bits result =
        Operation::kCompares ? Operation::apply(old, b, a) : Operation::apply(old, a, a);
    store_as(address, result);
    if constexpr (kReturns) set_lane_bits(to, lane, old);
  });
}

}  // namespace

#define MHA_SINK_DS_ATOMIC(name, type, ...)                   \
  table[Op::ds_##name##_##type] = atomic<__VA_ARGS__, false>; \
  table[Op::ds_##name##_rtn_##type] = atomic<__VA_ARGS__, true>;

void fill_lds_atomic(HandlerTable& table) {
  MHA_SINK_DS_ATOMIC(add, u32, Add<uint32_t>)
  MHA_SINK_DS_ATOMIC(sub, u32, Sub<uint32_t>)
  MHA_SINK_DS_ATOMIC(rsub, u32, ReverseSub<uint32_t>)
  MHA_SINK_DS_ATOMIC(inc, u32, Increment<uint32_t>)
  MHA_SINK_DS_ATOMIC(dec, u32, Decrement<uint32_t>)
  MHA_SINK_DS_ATOMIC(min, i32, Min<int32_t>)
  MHA_SINK_DS_ATOMIC(max, i32, Max<int32_t>)
  MHA_SINK_DS_ATOMIC(min, u32, Min<uint32_t>)
  MHA_SINK_DS_ATOMIC(max, u32, Max<uint32_t>)
  MHA_SINK_DS_ATOMIC(and, b32, And<uint32_t>)
  MHA_SINK_DS_ATOMIC(or, b32, Or<uint32_t>)
  MHA_SINK_DS_ATOMIC(xor, b32, Xor<uint32_t>)
  MHA_SINK_DS_ATOMIC(cmpst, b32, CompareSwap<uint32_t>)
  MHA_SINK_DS_ATOMIC(cmpst, f32, CompareSwap<float>)
  MHA_SINK_DS_ATOMIC(min, f32, Min<float>)
  MHA_SINK_DS_ATOMIC(max, f32, Max<float>)
  MHA_SINK_DS_ATOMIC(add, f32, Add<float>)
  MHA_SINK_DS_ATOMIC(add, u64, Add<uint64_t>)
  MHA_SINK_DS_ATOMIC(sub, u64, Sub<uint64_t>)
  MHA_SINK_DS_ATOMIC(rsub, u64, ReverseSub<uint64_t>)
  MHA_SINK_DS_ATOMIC(inc, u64, Increment<uint64_t>)
  MHA_SINK_DS_ATOMIC(dec, u64, Decrement<uint64_t>)
  MHA_SINK_DS_ATOMIC(min, i64, Min<int64_t>)
  MHA_SINK_DS_ATOMIC(max, i64, Max<int64_t>)
  MHA_SINK_DS_ATOMIC(min, u64, Min<uint64_t>)
  MHA_SINK_DS_ATOMIC(max, u64, Max<uint64_t>)
  MHA_SINK_DS_ATOMIC(and, b64, And<uint64_t>)
  MHA_SINK_DS_ATOMIC(or, b64, Or<uint64_t>)
  MHA_SINK_DS_ATOMIC(xor, b64, Xor<uint64_t>)
  MHA_SINK_DS_ATOMIC(cmpst, b64, CompareSwap<uint64_t>)
  MHA_SINK_DS_ATOMIC(cmpst, f64, CompareSwap<double>)
  MHA_SINK_DS_ATOMIC(min, f64, Min<double>)
  MHA_SINK_DS_ATOMIC(max, f64, Max<double>)
  MHA_SINK_DS_ATOMIC(add, f64, Add<double>)
  table[Op::ds_pk_add_f16] = atomic<PackedAddF16, false>;
  table[Op::ds_pk_add_rtn_f16] = atomic<PackedAddF16, true>;
  table[Op::ds_pk_add_bf16] = atomic<PackedAddBf16, false>;
  table[Op::ds_pk_add_rtn_bf16] = atomic<PackedAddBf16, true>;
  table[Op::ds_wrxchg_rtn_b32] = atomic<Swap<uint32_t>, true>;
  table[Op::ds_wrxchg_rtn_b64] = atomic<Swap<uint64_t>, true>;
}

#undef MHA_SINK_DS_ATOMIC

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
