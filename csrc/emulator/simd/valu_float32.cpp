// fp32 arithmetic and the conversions between fp32 and integers.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

float floor_lane(float x) { return __builtin_floorf(x); }

float fraction(float x) {
  // The difference rounds to 1 just below an integer; the hardware keeps it below 1.
  const float difference = x - floor_lane(x);
  return difference >= 1.0f ? 0x1.fffffep-1f : difference;
}

float mantissa(float x) {
  int exponent = 0;
  return __builtin_isfinite(x) ? __builtin_frexpf(x, &exponent) : x;
}
int32_t exponent_of(float x) {
  int exponent = 0;
  if (__builtin_isfinite(x)) __builtin_frexpf(x, &exponent);
  return exponent;
}

template <int byte>
float unsigned_byte(uint32_t x) {
  return static_cast<float>(static_cast<int32_t>(x >> (8 * byte) & 0xff));
}

}  // namespace

void fill_valu_float32(HandlerTable& t) {
  constexpr MapOptions kAccumulate{.accumulate = true};
  t[Op::v_add_f32] = map([](float a, float b) { return a + b; });
  t[Op::v_sub_f32] = map([](float a, float b) { return a - b; });
  t[Op::v_subrev_f32] = map([](float a, float b) { return b - a; });
  t[Op::v_mul_f32] = map([](float a, float b) { return a * b; });
  t[Op::v_mul_legacy_f32] = map([](float a, float b) {
    return select((a == 0) | (b == 0), 0.0f, a * b);  // whatever the other factor is
  });
  t[Op::v_fma_f32] = map([](float a, float b, float c) { return fused(a, b, c); });
  // The assembler's operand order: D = S0 * S1 + S2 with the literal in S1 or S2.
  t[Op::v_fmaak_f32] = t[Op::v_fma_f32];
  t[Op::v_fmamk_f32] = t[Op::v_fma_f32];
  t[Op::v_fmac_f32] = map<kAccumulate>([](float a, float b, float d) { return fused(a, b, d); });
  t[Op::v_min_f32] =
      map_by_ieee([]<bool ieee>(float a, float b) { return minimum_number<ieee>(a, b); });
  t[Op::v_max_f32] =
      map_by_ieee([]<bool ieee>(float a, float b) { return maximum_number<ieee>(a, b); });
  t[Op::v_min3_f32] = map_by_ieee([]<bool ieee>(float a, float b, float c) {
    return minimum_number<ieee>(minimum_number<ieee>(a, b), c);
  });
  t[Op::v_max3_f32] = map_by_ieee([]<bool ieee>(float a, float b, float c) {
    return maximum_number<ieee>(maximum_number<ieee>(a, b), c);
  });
  t[Op::v_med3_f32] =
      map_by_ieee([]<bool ieee>(float a, float b, float c) { return median<ieee>(a, b, c); });
  t[Op::v_minimum3_f32] = map(
      [](float a, float b, float c) { return minimum_propagating(minimum_propagating(a, b), c); });
  t[Op::v_maximum3_f32] = map(
      [](float a, float b, float c) { return maximum_propagating(maximum_propagating(a, b), c); });

  t[Op::v_floor_f32] = map([](float a) { return floor_lane(a); });
  t[Op::v_ceil_f32] = map([](float a) { return __builtin_ceilf(a); });
  t[Op::v_trunc_f32] = map([](float a) { return __builtin_truncf(a); });
  t[Op::v_rndne_f32] = map([](float a) { return __builtin_rintf(a); });
  t[Op::v_fract_f32] = map([](float a) { return fraction(a); });
  t[Op::v_ldexp_f32] = map([](float a, int32_t b) { return scale_by_power(a, b); });
  t[Op::v_frexp_mant_f32] = map([](float a) { return mantissa(a); });
  t[Op::v_frexp_exp_i32_f32] = map([](float a) { return exponent_of(a); });

  t[Op::v_cvt_f32_i32] = map([](int32_t a) { return static_cast<float>(a); });
  t[Op::v_cvt_f32_u32] = map([](uint32_t a) { return static_cast<float>(a); });
  t[Op::v_cvt_i32_f32] = map([](float a) { return to_int32(a); });
  t[Op::v_cvt_u32_f32] = map([](float a) { return to_uint32(a); });
  t[Op::v_cvt_flr_i32_f32] = map([](float a) { return to_int32(floor_lane(a)); });
  t[Op::v_cvt_rpi_i32_f32] = map([](float a) { return to_int32(floor_lane(a + 0.5f)); });
  t[Op::v_cvt_f32_ubyte0] = map([](uint32_t a) { return unsigned_byte<0>(a); });
  t[Op::v_cvt_f32_ubyte1] = map([](uint32_t a) { return unsigned_byte<1>(a); });
  t[Op::v_cvt_f32_ubyte2] = map([](uint32_t a) { return unsigned_byte<2>(a); });
  t[Op::v_cvt_f32_ubyte3] = map([](uint32_t a) { return unsigned_byte<3>(a); });
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
