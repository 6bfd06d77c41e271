// Transcendental instructions at fp32 accuracy. The hardware's are 1-ulp approximations that
// neither read nor return fp32 denormals, whatever the wave's mode (LLVM scales around that).
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

// 2^x to 1 ulp: 2^n from the exponent field, 2^f for |f| <= 1/2 from a polynomial of relative error
// 2^-28 (minimax of (2^f - 1) / f, fitted in float64).
float power_of_two(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const float below = select(x > 128.0f, 128.0f, x);
  const float bounded = select(below < -127.0f, -127.0f, below);
  const float shifted = bounded + kRound;
  const uint32_t n = bits_of(shifted) - bits_of(kRound);
  const float f = bounded - (shifted - kRound);
  float q = 0x1.41fbbcp-13f;
  q = fused(q, f, 0x1.5f3e52p-10f);
  q = fused(q, f, 0x1.3b2d4cp-7f);
  q = fused(q, f, 0x1.c6aee8p-5f);
  q = fused(q, f, 0x1.ebfbdcp-3f);
  q = fused(q, f, 0x1.62e430p-1f);
  const float mantissa = fused(q, f, 1.0f);
  const float scaled = as_float(bits_of(mantissa) + (n << 23));
  const float result = select(x >= 128.0f, as_float(kInfinity), scaled);
  const float flushed = select(x < -126.0f, 0.0f, result);
  return select(is_nan(x), quiet(x), flushed);
}

float logarithm(float x) {
  return static_cast<float>(__builtin_log2(static_cast<double>(flush_denormal(x))));
}
float reciprocal(float x) { return flush_denormal(1.0f / flush_denormal(x)); }
float reciprocal_root(float x) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(flush_denormal(x))));
}
float root(float x) { return __builtin_sqrtf(flush_denormal(x)); }

// Arguments are in revolutions; beyond +-256 the hardware returns sin(0) and cos(0).
constexpr double kTwoPi = 6.283185307179586476925;
double revolutions(float x) {
  const double wide = x;
  if (!__builtin_isfinite(x)) return as_double(uint64_t{kQuietNan} << 32 | uint64_t{7} << 60);
  return __builtin_fabs(wide) > 256.0 ? 0.0 : wide - __builtin_rint(wide);
}
float sine(float x) { return static_cast<float>(__builtin_sin(kTwoPi * revolutions(x))); }
float cosine(float x) { return static_cast<float>(__builtin_cos(kTwoPi * revolutions(x))); }

// fp16 results are rounded from float, which is exact enough for 1 ulp; fp16 denormals are kept.
F16 half(double x) { return F16{static_cast<float>(x)}; }

}  // namespace

void fill_valu_transcendental(HandlerTable& t) {
  t[Op::v_exp_f32] = map([](float a) { return power_of_two(a); });
  t[Op::v_log_f32] = map([](float a) { return logarithm(a); });
  t[Op::v_rcp_f32] = map([](float a) { return reciprocal(a); });
  t[Op::v_rcp_iflag_f32] = t[Op::v_rcp_f32];
  t[Op::v_rsq_f32] = map([](float a) { return reciprocal_root(a); });
  t[Op::v_sqrt_f32] = map([](float a) { return root(a); });
  t[Op::v_sin_f32] = map([](float a) { return sine(a); });
  t[Op::v_cos_f32] = map([](float a) { return cosine(a); });

  t[Op::v_exp_f16] = map([](F16 a) { return half(__builtin_exp2(double{a.value})); });
  t[Op::v_log_f16] = map([](F16 a) { return half(__builtin_log2(double{a.value})); });
  t[Op::v_rcp_f16] = map([](F16 a) { return half(1.0 / a.value); });
  t[Op::v_rsq_f16] = map([](F16 a) { return half(1.0 / __builtin_sqrt(double{a.value})); });
  t[Op::v_sqrt_f16] = map([](F16 a) { return half(__builtin_sqrt(double{a.value})); });

  t[Op::v_sin_f16] = map([](F16 a) { return F16{sine(a.value)}; });
  t[Op::v_cos_f16] = map([](F16 a) { return F16{cosine(a.value)}; });

  t[Op::v_rcp_f64] = map([](double a) { return 1.0 / a; });
  t[Op::v_rsq_f64] = map([](double a) { return 1.0 / __builtin_sqrt(a); });
  t[Op::v_sqrt_f64] = map([](double a) { return __builtin_sqrt(a); });
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
