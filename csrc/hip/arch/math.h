// Scalar and packed VALU arithmetic.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

inline constexpr float kLog2E = 1.44269504088896340736f;

// v_exp_f32: 2^x, one instruction at a quarter of the VALU rate; flushes results below 2^-126.
MHA_SINK_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }

// v_cvt_pk_bf16_f32: round to nearest even.
MHA_SINK_DEVICE uint32_t pack_bf16(float low, float high) {
  const bf16x2 pair = {static_cast<bf16>(low), static_cast<bf16>(high)};
  return __builtin_bit_cast(uint32_t, pair);
}

MHA_SINK_DEVICE float bf16_low(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
MHA_SINK_DEVICE float bf16_high(uint32_t pair) {
  return __builtin_bit_cast(float, pair & 0xffff0000u);
}

}  // namespace mha_sink::arch
