// fp64 arithmetic and conversions.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

double fraction(double x) {
  // As for fp32: the hardware keeps the result below 1.
  const double difference = x - __builtin_floor(x);
  return difference >= 1.0 ? 0x1.fffffffffffffp-1 : difference;
}

double mantissa(double x) {
  int exponent = 0;
  return __builtin_isfinite(x) ? __builtin_frexp(x, &exponent) : x;
}
int32_t exponent_of(double x) {
  int exponent = 0;
  if (__builtin_isfinite(x)) __builtin_frexp(x, &exponent);
  return exponent;
}

}  // namespace

void fill_valu_float64(HandlerTable& t) {
  constexpr MapOptions kAccumulate{.accumulate = true};
  t[Op::v_add_f64] = map([](double a, double b) { return a + b; });
  t[Op::v_mul_f64] = map([](double a, double b) { return a * b; });
  t[Op::v_fma_f64] = map([](double a, double b, double c) { return fused(a, b, c); });
  t[Op::v_fmac_f64] = map<kAccumulate>([](double a, double b, double d) { return fused(a, b, d); });
  t[Op::v_min_f64] =
      map_by_ieee([]<bool ieee>(double a, double b) { return minimum_number<ieee>(a, b); });
  t[Op::v_max_f64] =
      map_by_ieee([]<bool ieee>(double a, double b) { return maximum_number<ieee>(a, b); });
  t[Op::v_ldexp_f64] = map([](double a, int32_t b) { return __builtin_ldexp(a, b); });
  t[Op::v_trunc_f64] = map([](double a) { return __builtin_trunc(a); });
  t[Op::v_ceil_f64] = map([](double a) { return __builtin_ceil(a); });
  t[Op::v_floor_f64] = map([](double a) { return __builtin_floor(a); });
  t[Op::v_rndne_f64] = map([](double a) { return __builtin_rint(a); });
  t[Op::v_fract_f64] = map([](double a) { return fraction(a); });
  t[Op::v_frexp_mant_f64] = map([](double a) { return mantissa(a); });
  t[Op::v_frexp_exp_i32_f64] = map([](double a) { return exponent_of(a); });

  t[Op::v_cvt_i32_f64] = map([](double a) { return to_int32(a); });
  t[Op::v_cvt_u32_f64] = map([](double a) { return to_uint32(a); });
  t[Op::v_cvt_f64_i32] = map([](int32_t a) { return static_cast<double>(a); });
  t[Op::v_cvt_f64_u32] = map([](uint32_t a) { return static_cast<double>(a); });
  t[Op::v_cvt_f32_f64] = map([](double a) { return static_cast<float>(a); });
  t[Op::v_cvt_f64_f32] = map([](float a) { return static_cast<double>(a); });
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
