// Scalar and packed VALU arithmetic.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

inline constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// v_exp_f32: 2^x, one instruction at a quarter of the VALU rate; flushes results below 2^-126.
MHA_SINK_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }

// v_log_f32: log2(x); v_rcp_f32: 1 / x. Both within 1 ulp, at a quarter of the VALU rate.
MHA_SINK_DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }
MHA_SINK_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }

// v_cvt_pk_bf16_f32, v_cvt_pk_f16_f32: round to nearest even.
template <Dtype kDtype>
MHA_SINK_DEVICE uint32_t pack(float low, float high) {
  if constexpr (kDtype == Dtype::bf16) {
    using Pair = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, Pair{static_cast<__bf16>(low), static_cast<__bf16>(high)});
  } else {
    using Pair = _Float16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t,
                              Pair{static_cast<_Float16>(low), static_cast<_Float16>(high)});
  }
}

// Integers of 16 bits: the nearest, even ones of two, to low * factor and high * factor, which lie
// within +-2^15. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
MHA_SINK_DEVICE uint32_t pack_int16(float low, float high, float factor) {
  constexpr float kRound = 12582912.0f;
  const f32x2 sum = __builtin_elementwise_fma(f32x2{low, high}, f32x2(factor), f32x2(kRound));
  const float first = sum.x, second = sum.y;
  return __builtin_amdgcn_perm(__builtin_bit_cast(uint32_t, second),
                               __builtin_bit_cast(uint32_t, first), 0x05040100u);
}
MHA_SINK_DEVICE float unpack_low_int16(uint32_t pair) { return static_cast<int16_t>(pair); }
MHA_SINK_DEVICE float unpack_high_int16(uint32_t pair) { return static_cast<int16_t>(pair >> 16); }

// v_maximum3_f32 of magnitudes: NaN where one is.
MHA_SINK_DEVICE float largest_magnitude(float a, float b, float c) {
  float largest;
  asm("v_maximum3_f32 %0, |%1|, |%2|, |%3|" : "=v"(largest) : "v"(a), "v"(b), "v"(c));
  return largest;
}

template <Dtype kDtype>
MHA_SINK_DEVICE float unpack_low(uint32_t pair) {
  if constexpr (kDtype == Dtype::bf16) return __builtin_bit_cast(float, pair << 16);
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(pair)));
}

template <Dtype kDtype>
MHA_SINK_DEVICE float unpack_high(uint32_t pair) {
  if constexpr (kDtype == Dtype::bf16) return __builtin_bit_cast(float, pair & 0xffff0000u);
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(pair >> 16)));
}

}  // namespace mha_sink::arch
