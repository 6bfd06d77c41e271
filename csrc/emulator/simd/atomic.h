// Read-modify-write operations of LDS and global atomics, on the bits of a dword or two.
#pragma once

#include <cstdint>

#include "emulator/simd/operands.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// An operation on one data operand: Function()(memory, data) gives the new value, all of type T.
template <typename T, typename Function>
struct Combine {
  using Bits = BitsOf<T>;
  static constexpr bool kCompares = false;
  static Bits apply(Bits memory, Bits data, Bits) {
    return __builtin_bit_cast(Bits, static_cast<T>(Function()(__builtin_bit_cast(T, memory),
                                                              __builtin_bit_cast(T, data))));
  }
};

struct AddOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory + data;
  }
};
struct SubOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory - data;
  }
};
struct ReverseSubOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return data - memory;
  }
};
// Wraps to 0 above the data.
struct IncrementOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory >= data ? 0 : memory + 1;
  }
};
// Wraps to the data at 0 and above it.
struct DecrementOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory == 0 || memory > data ? data : memory - 1;
  }
};
// A NaN in the data loses: the comparison is false.
struct MinOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return data < memory ? data : memory;
  }
};
struct MaxOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return data > memory ? data : memory;
  }
};
struct AndOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory & data;
  }
};
struct OrOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory | data;
  }
};
struct XorOf {
  template <typename T>
  T operator()(T memory, T data) const {
    return memory ^ data;
  }
};
struct SwapOf {
  template <typename T>
  T operator()(T, T data) const {
    return data;
  }
};

template <typename T>
using Add = Combine<T, AddOf>;
template <typename T>
using Sub = Combine<T, SubOf>;
template <typename T>
using ReverseSub = Combine<T, ReverseSubOf>;
template <typename T>
using Increment = Combine<T, IncrementOf>;
template <typename T>
using Decrement = Combine<T, DecrementOf>;
template <typename T>
using Min = Combine<T, MinOf>;
template <typename T>
using Max = Combine<T, MaxOf>;
template <typename T>
using And = Combine<T, AndOf>;
template <typename T>
using Or = Combine<T, OrOf>;
template <typename T>
using Xor = Combine<T, XorOf>;
template <typename T>
using Swap = Combine<T, SwapOf>;

// Takes `value` where memory equals `compare`, as numbers of type T.
template <typename T>
struct CompareSwap {
  using Bits = BitsOf<T>;
  static constexpr bool kCompares = true;
  static Bits apply(Bits memory, Bits value, Bits compare) {
    return __builtin_bit_cast(T, memory) == __builtin_bit_cast(T, compare) ? value : memory;
  }
};

inline float bf16_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits << 16); }

inline uint32_t float_to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;  // quiet the NaN
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;                   // to nearest even
}

inline float f16_to_float(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return __builtin_bit_cast(float, sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  // The fp32 number with the same exponent field is 2^112 times too small, denormals included.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, scaled) | sign);
}

inline uint32_t float_to_f16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the
    // addition.
    const float rounded = __builtin_bit_cast(float, magnitude) + 0.5f;
    return sign | (__builtin_bit_cast(uint32_t, rounded) - 0x3f000000u);
  }
  return sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13);
}

// Sums of two halves. fp32 has at least 2p + 2 bits of either format, so rounding twice is exact.
struct PackedAddBf16 {
  using Bits = uint32_t;
  static constexpr bool kCompares = false;
  static uint32_t apply(uint32_t memory, uint32_t data, uint32_t) {
    return float_to_bf16(bf16_to_float(memory & 0xffffu) + bf16_to_float(data & 0xffffu)) |
           float_to_bf16(bf16_to_float(memory >> 16) + bf16_to_float(data >> 16)) << 16;
  }
};

struct PackedAddF16 {
  using Bits = uint32_t;
  static constexpr bool kCompares = false;
  static uint32_t apply(uint32_t memory, uint32_t data, uint32_t) {
    return float_to_f16(f16_to_float(memory & 0xffffu) + f16_to_float(data & 0xffffu)) |
           float_to_f16(f16_to_float(memory >> 16) + f16_to_float(data >> 16)) << 16;
  }
};

// The bits of one lane in one register or in a pair.
template <typename Bits>
inline Bits lane_bits(const VectorRegister* from, int lane) {
  if constexpr (sizeof(Bits) == 4) {
    return from[0].lane[lane];
  } else {
    return from[0].lane[lane] | Bits{from[1].lane[lane]} << 32;
  }
}

template <typename Bits>
inline void set_lane_bits(VectorRegister* to, int lane, Bits value) {
  to[0].lane[lane] = static_cast<uint32_t>(value);
  if constexpr (sizeof(Bits) == 8) to[1].lane[lane] = static_cast<uint32_t>(value >> 32);
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
