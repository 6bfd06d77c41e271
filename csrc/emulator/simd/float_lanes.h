// Floating point on one lane, written so that a loop over lanes vectorises without branches.
#pragma once

#include <cstdint>

#include "emulator/simd/families.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
inline uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }
inline float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline double as_double(uint64_t bits) { return __builtin_bit_cast(double, bits); }

inline constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u, kQuietNan = 0x7fc00000u;

inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }

// condition ? yes : no as a mask. The compiler turns chains of ?: into branches that it then cannot
// vectorise.
inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}
inline float select(bool condition, float yes, float no) {
  return as_float(select(condition, bits_of(yes), bits_of(no)));
}
inline uint64_t select(bool condition, uint64_t yes, uint64_t no) {
  const uint64_t mask = 0u - static_cast<uint64_t>(condition);
  return (yes & mask) | (no & ~mask);
}
inline double select(bool condition, double yes, double no) {
  return as_double(select(condition, bits_of(yes), bits_of(no)));
}

// Denormals become zero of their sign.
inline float flush_denormal(float x) {
  const uint32_t bits = bits_of(x);
  return as_float((bits & kInfinity) == 0 ? bits & kSign : bits);
}

inline float quiet(float x) { return as_float(bits_of(x) | 0x400000u); }
inline double quiet(double x) { return as_double(bits_of(x) | uint64_t{1} << 51); }
inline bool is_signaling(float x) { return is_nan(x) & ((bits_of(x) & 0x400000u) == 0); }
inline bool is_signaling(double x) { return is_nan(x) & ((bits_of(x) >> 51 & 1) == 0); }

// The float that rounds x once when x is then rounded again to fewer bits: truncated, with the
// last bit set when anything was lost (round to odd).
inline float to_odd_float(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  const uint32_t bits = bits_of(nearest);
  const bool beyond = ((back > x) & (x > 0)) | ((back < x) & (x < 0));
  const bool inexact = (back > x) | (back < x);
  const uint32_t truncated = select(beyond, bits - 1, bits);
  return as_float(select(inexact, truncated | 1, bits));
}

// a * b + c as a double rounded to odd: rounding it to float, scaled or not, is the only rounding.
inline double fused_to_odd(float a, float b, float c) {
  // The product of two floats is exact as a double, and the sum's rounding error is known exactly
  // (Knuth's TwoSum); it is folded into the last bit.
  const double product = static_cast<double>(a) * b;
  const double addend = c;
  const double sum = product + addend;
  const double virtual_addend = sum - product;
  const double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
  const uint64_t bits = bits_of(sum);
  const bool inexact = (error > 0) | (error < 0);
  const bool even = (bits & 1) == 0;
  const uint64_t toward = select((error > 0) == (sum > 0), bits + 1, bits - 1);
  return as_double(select(inexact & even, toward, bits));
}

// a * b + c with one rounding, the same bits with and without fma hardware.
inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return static_cast<float>(fused_to_odd(a, b, c));
#endif
}

inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Exact. Half denormals become normal floats.
inline float half_to_float(uint32_t half) {
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  const float scaled = as_float(magnitude) * 0x1p112f;
  const uint32_t bits = select(magnitude >= 0x0f800000u, magnitude | kInfinity, bits_of(scaled));
  return as_float(bits | (half & 0x8000u) << 16);
}

// Round to nearest even; NaN stays NaN, quieted.
inline uint32_t float_to_half(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & ~kSign;
  const uint32_t odd = magnitude >> 13 & 1;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  // 0.5 has the last place that a half denormal rounds to, so the addition does the rounding.
  const uint32_t denormal = bits_of(as_float(magnitude) + 0.5f) - bits_of(0.5f);
  uint32_t half = select(magnitude < 0x38800000u, denormal, normal);
  half = select(magnitude >= 0x47800000u, 0x7c00u, half);
  half = select(magnitude > kInfinity, 0x7e00u | (magnitude >> 13 & 0x3ffu), half);
  return half | (bits >> 16 & 0x8000u);
}

// Toward zero: a finite value that is too large becomes the largest finite half.
inline uint32_t float_to_half_toward_zero(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & ~kSign;
  const uint32_t normal = (magnitude - (112u << 23)) >> 13;
  // Below 2^-14 the value is a multiple of 2^-24, cut off; the product is exact.
  const uint32_t denormal = static_cast<uint32_t>(
      static_cast<int32_t>(select(magnitude < 0x38800000u, as_float(magnitude), 0.0f) * 0x1p24f));
  uint32_t half = select(magnitude < 0x38800000u, denormal, normal);
  half = select(magnitude >= 0x47800000u, 0x7bffu, half);
  half = select(magnitude == kInfinity, 0x7c00u, half);
  half = select(magnitude > kInfinity, 0x7e00u | (magnitude >> 13 & 0x3ffu), half);
  return half | (bits >> 16 & 0x8000u);
}

// Round to nearest even; NaN stays NaN, quieted.
inline uint32_t float_to_bfloat(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return select((bits & ~kSign) > kInfinity, bits >> 16 | 0x40u, rounded);
}

// minNum and maxNum of the ISA: a quiet NaN loses against a number, -0 is below +0. In IEEE mode a
// signaling NaN wins, quieted.
template <bool ieee, class T>
T minimum_number(T a, T b) {
  using Bits = decltype(bits_of(a));
  const T equal = __builtin_bit_cast(T, static_cast<Bits>(bits_of(a) | bits_of(b)));
  T result = select(a < b, a, select(a > b, b, equal));
  result = select(is_nan(b), a, result);
  result = select(is_nan(a), b, result);
  if constexpr (ieee) {
    result = select(is_signaling(b), quiet(b), result);
    result = select(is_signaling(a), quiet(a), result);
  }
  return result;
}

template <bool ieee, class T>
T maximum_number(T a, T b) {
  using Bits = decltype(bits_of(a));
  const T equal = __builtin_bit_cast(T, static_cast<Bits>(bits_of(a) & bits_of(b)));
  T result = select(a > b, a, select(a < b, b, equal));
  result = select(is_nan(b), a, result);
  result = select(is_nan(a), b, result);
  if constexpr (ieee) {
    result = select(is_signaling(b), quiet(b), result);
    result = select(is_signaling(a), quiet(a), result);
  }
  return result;
}

// IEEE 754-2019 minimum and maximum: any NaN wins.
inline float minimum_propagating(float a, float b) {
  const float result = minimum_number<false>(a, b);
  return select(is_nan(a), quiet(a), select(is_nan(b), quiet(b), result));
}
inline float maximum_propagating(float a, float b) {
  const float result = maximum_number<false>(a, b);
  return select(is_nan(a), quiet(a), select(is_nan(b), quiet(b), result));
}

// The middle of three; with a NaN among them the smallest (ISA, V_MED3_F32).
template <bool ieee>
float median(float a, float b, float c) {
  const float low = minimum_number<ieee>(minimum_number<ieee>(a, b), c);
  const float high = maximum_number<ieee>(maximum_number<ieee>(a, b), c);
  const float result =
      select(high == a, maximum_number<ieee>(b, c),
             select(high == b, maximum_number<ieee>(a, c), maximum_number<ieee>(a, b)));
  return select(is_nan(a) | is_nan(b) | is_nan(c), low, result);
}

// x * 2^exponent, rounded once.
inline float scale_by_power(float x, int32_t exponent) {
  // Beyond +-300 every finite nonzero float overflows or vanishes, and 2^300 fits a double.
  const int32_t bounded = exponent > 300 ? 300 : (exponent < -300 ? -300 : exponent);
  return static_cast<float>(x * as_double(static_cast<uint64_t>(1023 + bounded) << 52));
}

// Truncated and saturated; NaN becomes 0.
inline int32_t to_int32(float x) {
  const bool high = x >= 0x1p31f, low = x < -0x1p31f;
  const float inside = select(high | low | is_nan(x), 0.0f, x);
  const uint32_t value = static_cast<uint32_t>(static_cast<int32_t>(inside));
  return static_cast<int32_t>(select(high, 0x7fffffffu, select(low, kSign, value)));
}
inline uint32_t to_uint32(float x) {
  const float positive = select(x > 0, x, 0.0f);  // NaN becomes 0 too
  const bool beyond = positive >= 0x1p32f, large = positive >= 0x1p31f;
  const float inside = select(beyond, 0.0f, select(large, positive - 0x1p31f, positive));
  const uint32_t value = static_cast<uint32_t>(static_cast<int32_t>(inside));
  return select(beyond, ~0u, value + select(large, kSign, 0u));
}
inline int32_t to_int32(double x) {
  if (is_nan(x)) return 0;
  return x >= 0x1p31 ? 0x7fffffff : (x <= -0x1p31 ? -0x7fffffff - 1 : static_cast<int32_t>(x));
}
inline uint32_t to_uint32(double x) {
  return !(x > 0) ? 0 : (x >= 0x1p32 ? ~0u : static_cast<uint32_t>(static_cast<int64_t>(x)));
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
