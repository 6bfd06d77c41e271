// What a memory instruction moves for each lane, and how it lies in vector registers.
#pragma once

#include <cstdint>
#include <cstring>

#include "emulator/memory_fault.h"
#include "emulator/simd/operands.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

using U32x4 = uint32_t __attribute__((vector_size(16)));
using U64x2 = uint64_t __attribute__((vector_size(16)));

// `count` consecutive registers, all of them allocated.
inline VectorRegister* registers(const Instruction& instruction, const Wave& wave,
                                 const Operand& operand, uint32_t count) {
  vector_register(instruction, wave, operand, count - 1);
  return (operand.kind == OperandKind::vgpr ? wave.vgpr : wave.agpr) + operand.index;
}

template <typename T>
inline T load_as(const uint8_t* address) {
  T value;
  std::memcpy(&value, address, sizeof(value));
  return value;
}

template <typename T>
inline void store_as(uint8_t* address, T value) {
  std::memcpy(address, &value, sizeof(value));
}

// Calls function(lane) for each lane of the mask, ascending.
template <typename Function>
inline void for_each_lane(uint64_t lanes, Function function) {
  for (; lanes != 0; lanes &= lanes - 1) function(__builtin_ctzll(lanes));
}

// 4 x 4 transpose: four lanes of four dwords <-> four dwords of four lanes.
inline void transpose(U32x4& a, U32x4& b, U32x4& c, U32x4& d) {
  const U32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const U32x4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const U32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const U32x4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// An access of kDwords dwords. The loads and stores of all lanes take a function from lane to
// address; those of one lane take the address of its bytes.
template <int kDwords>
struct Dwords {
  static constexpr uint32_t kBytes = 4 * kDwords;
  static constexpr uint32_t kRegisters = kDwords;
  // Buffers check their range for each component by itself.
  static constexpr uint32_t kComponentBytes = 4;
  static constexpr uint32_t kLdsDmaBytes = kBytes;

  static void load_lane(VectorRegister* to, int lane, const uint8_t* from) {
    for (int i = 0; i < kDwords; ++i) to[i].lane[lane] = load_as<uint32_t>(from + 4 * i);
  }

  static void store_lane(const VectorRegister* from, int lane, uint8_t* to) {
    for (int i = 0; i < kDwords; ++i) store_as(to + 4 * i, from[i].lane[lane]);
  }

  static void lds_dma(const uint8_t* from, uint8_t* to) { std::memcpy(to, from, kBytes); }

  template <typename Address>
  static void load_all(VectorRegister* to, const Address& address) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      if constexpr (kDwords == 4) {
        U32x4 a = load_as<U32x4>(address(lane)), b = load_as<U32x4>(address(lane + 1));
        U32x4 c = load_as<U32x4>(address(lane + 2)), d = load_as<U32x4>(address(lane + 3));
        transpose(a, b, c, d);
        std::memcpy(to[0].lane + lane, &a, sizeof(a));
        std::memcpy(to[1].lane + lane, &b, sizeof(b));
        std::memcpy(to[2].lane + lane, &c, sizeof(c));
        std::memcpy(to[3].lane + lane, &d, sizeof(d));
      } else if constexpr (kDwords == 2) {
        const U64x2 ab = {load_as<uint64_t>(address(lane)), load_as<uint64_t>(address(lane + 1))};
        const U64x2 cd = {load_as<uint64_t>(address(lane + 2)),
                          load_as<uint64_t>(address(lane + 3))};
        const U32x4 first = __builtin_shufflevector((U32x4)ab, (U32x4)cd, 0, 2, 4, 6);
        const U32x4 second = __builtin_shufflevector((U32x4)ab, (U32x4)cd, 1, 3, 5, 7);
        std::memcpy(to[0].lane + lane, &first, sizeof(first));
        std::memcpy(to[1].lane + lane, &second, sizeof(second));
      } else {
        for (int i = lane; i < lane + 4; ++i) load_lane(to, i, address(i));
      }
    }
  }

  template <typename Address>
  static void store_all(const VectorRegister* from, const Address& address) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      if constexpr (kDwords == 4) {
        U32x4 a, b, c, d;
        std::memcpy(&a, from[0].lane + lane, sizeof(a));
        std::memcpy(&b, from[1].lane + lane, sizeof(b));
        std::memcpy(&c, from[2].lane + lane, sizeof(c));
        std::memcpy(&d, from[3].lane + lane, sizeof(d));
        transpose(a, b, c, d);
        store_as(address(lane), a);
        store_as(address(lane + 1), b);
        store_as(address(lane + 2), c);
        store_as(address(lane + 3), d);
      } else if constexpr (kDwords == 2) {
        U32x4 first, second;
        std::memcpy(&first, from[0].lane + lane, sizeof(first));
        std::memcpy(&second, from[1].lane + lane, sizeof(second));
        const U64x2 ab = (U64x2)__builtin_shufflevector(first, second, 0, 4, 1, 5);
        const U64x2 cd = (U64x2)__builtin_shufflevector(first, second, 2, 6, 3, 7);
        store_as(address(lane), ab[0]);
        store_as(address(lane + 1), ab[1]);
        store_as(address(lane + 2), cd[0]);
        store_as(address(lane + 3), cd[1]);
      } else {
        for (int i = lane; i < lane + 4; ++i) store_lane(from, i, address(i));
      }
    }
  }
};

enum class Half { none, low, high };

// A byte or a 16-bit value of type T, extended to a dword, or in one half of a register (d16).
template <typename T, Half kHalf = Half::none>
struct Part {
  static constexpr uint32_t kBytes = sizeof(T);
  static constexpr uint32_t kRegisters = 1;
  static constexpr uint32_t kComponentBytes = kBytes;
  static constexpr uint32_t kLdsDmaBytes = 4;

  static uint32_t extend(const uint8_t* from) {
    return static_cast<uint32_t>(static_cast<int32_t>(load_as<T>(from)));
  }

  static void load_lane(VectorRegister* to, int lane, const uint8_t* from) {
    uint32_t& dword = to->lane[lane];
    if constexpr (kHalf == Half::none) {
      dword = extend(from);
    } else if constexpr (kHalf == Half::low) {
      dword = (dword & 0xffff0000u) | (extend(from) & 0xffffu);
    } else {
      dword = (dword & 0xffffu) | extend(from) << 16;
    }
  }

  static void store_lane(const VectorRegister* from, int lane, uint8_t* to) {
    store_as(to, static_cast<T>(from->lane[lane] >> (kHalf == Half::high ? 16 : 0)));
  }

  static void lds_dma(const uint8_t* from, uint8_t* to) { store_as(to, extend(from)); }

  template <typename Address>
  static void load_all(VectorRegister* to, const Address& address) {
    for (int lane = 0; lane < kLanes; ++lane) load_lane(to, lane, address(lane));
  }

  template <typename Address>
  static void store_all(const VectorRegister* from, const Address& address) {
    for (int lane = 0; lane < kLanes; ++lane) store_lane(from, lane, address(lane));
  }
};

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
