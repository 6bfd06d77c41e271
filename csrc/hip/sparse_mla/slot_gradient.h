// What a slot adds to its row of dKV, as it lies in memory between the two kernels that make and
// sum it: 512 integers of 16 bits times one power of two. Rounded to bf16 instead, equal slots
// would err alike and their sum twice as much as a sum that is rounded once.
#pragma once

#include "hip/arch/math.h"
#include "hip/arch/types.h"

namespace mha_sink::sparse_mla {

using namespace arch;

// 2^(e - 14) for a row whose largest magnitude lies in [2^e, 2^(e + 1)); 2^(e - 13) within 2^-15 of
// the upper end, where 2^15 would be the nearest integer and does not fit. NaN for inf and NaN.
MHA_SINK_DEVICE float gradient_scale(float largest) {
  constexpr uint32_t kExponent = 0x7f800000u, kOne = 1u << 23;
  const uint32_t exponent = (__builtin_bit_cast(uint32_t, largest) + (kOne >> 15)) & kExponent;
  // Not below 2^-126, which itself and whose inverse are normal numbers.
  const uint32_t bits = (exponent < 15 * kOne ? 15 * kOne : exponent) - 14 * kOne;
  return __builtin_fmaf(largest, 0.0f, __builtin_bit_cast(float, bits));
}

// 1 / scale, of a power of two.
MHA_SINK_DEVICE float inverse_scale(float scale) {
  return __builtin_bit_cast(float, 0x7f000000u - __builtin_bit_cast(uint32_t, scale));
}

}  // namespace mha_sink::sparse_mla
