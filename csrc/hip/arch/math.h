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
