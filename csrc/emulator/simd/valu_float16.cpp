// fp16 arithmetic and the conversions between fp32 and the 16-bit types.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

// Exact: a product of two halves has 22 bits, and where the sum needs more than a double's 53
// the part cut off cannot decide the rounding to 11.
F16 fused_half(F16 a, F16 b, F16 c) {
  return F16{to_odd_float(static_cast<double>(a.value) * b.value + c.value)};
}

F16 fraction(F16 a) {
  const float difference = a.value - __builtin_floorf(a.value);
  return F16{difference > 0x1.ffcp-1f ? 0x1.ffcp-1f : difference};
}

F16 fix_quotient(F16 quotient, F16 denominator, F16 numerator) {
  const float q = quotient.value, d = denominator.value, n = numerator.value;
  const bool negative = ((bits_of(d) ^ bits_of(n)) & kSign) != 0;
  const float d_size = __builtin_fabsf(d), n_size = __builtin_fabsf(n);
  const float infinity = as_float(kInfinity);
  float size = __builtin_fabsf(q);
  if (is_nan(n)) return F16{quiet(n)};
  if (is_nan(d)) return F16{quiet(d)};
  if ((d == 0 && n == 0) || (d_size == infinity && n_size == infinity)) {
    return F16{as_float(kQuietNan | kSign)};
  }
  if (d == 0 || n_size == infinity) {
    size = infinity;
  } else if (d_size == infinity || n == 0) {
    size = 0;
  }
  return F16{negative ? -size : size};
}

F16 scaled(F16 a, I16 exponent) {
  return F16{to_odd_float(
      static_cast<double>(a.value) *
      as_double(static_cast<uint64_t>(1023 + (exponent.value > 100    ? 100
                                              : exponent.value < -100 ? -100
                                                                      : exponent.value))
                << 52))};
}

F16 mantissa(F16 a) {
  int exponent = 0;
  return F16{__builtin_isfinite(a.value) ? __builtin_frexpf(a.value, &exponent) : a.value};
}
I16 exponent_of(F16 a) {
  int exponent = 0;
  if (__builtin_isfinite(a.value)) __builtin_frexpf(a.value, &exponent);
  return I16{exponent};
}

// Raw halves of both sources side by side.
void pack_halves(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 3, 3, false);
  uint64_t active = wave.exec();
  Scratch scratch[2];
  const uint32_t* half[2];
  for (int i = 0; i < 2; ++i) {
    half[i] = fetch<U16>(instruction, wave, i, scratch[i], active).lo;
    half[i] = apply_modifiers(instruction, i, half[i], 0x8000u, scratch[i].lo);
  }
  VectorRegister result;
  MHA_SINK_FOR_LANES(lane) result.lane[lane] = half[0][lane] | half[1][lane] << 16;
  store_dword(instruction, wave, active, result.lane);
}

void fill_conversions(HandlerTable& t) {
  t[Op::v_cvt_f16_f32] = map([](float a) { return F16{a}; });
  t[Op::v_cvt_f32_f16] = map([](F16 a) { return a.value; });
  t[Op::v_cvt_f32_bf16] = map([](U16 a) { return as_float(a.value << 16); });
  t[Op::v_cvt_pk_bf16_f32] =
      map([](float a, float b) { return float_to_bfloat(a) | float_to_bfloat(b) << 16; });
  t[Op::v_cvt_pk_f16_f32] =
      map([](float a, float b) { return float_to_half(a) | float_to_half(b) << 16; });
  t[Op::v_cvt_pkrtz_f16_f32] = map([](float a, float b) {
    return float_to_half_toward_zero(a) | float_to_half_toward_zero(b) << 16;
  });
  t[Op::v_pack_b32_f16] = pack_halves;
  t[Op::v_cvt_f16_u16] = map([](U16 a) { return F16{static_cast<float>(a.value)}; });
  t[Op::v_cvt_f16_i16] = map([](I16 a) { return F16{static_cast<float>(a.value)}; });
  t[Op::v_cvt_u16_f16] = map([](F16 a) {
    const uint32_t value = to_uint32(a.value);
    return U16{value > 0xffffu ? 0xffffu : value};
  });
  t[Op::v_cvt_i16_f16] = map([](F16 a) {
    const int32_t value = to_int32(a.value);
    return I16{value > 32767 ? 32767 : (value < -32768 ? -32768 : value)};
  });
}

void fill_arithmetic(HandlerTable& t) {
  constexpr MapOptions kHalves{.halves = true};
  // Sums and products of halves in float, rounded to half: innocuous double rounding, since
  // 24 >= 2 * 11 + 2 bits.
  t[Op::v_add_f16] = map([](F16 a, F16 b) { return F16{a.value + b.value}; });
  t[Op::v_sub_f16] = map([](F16 a, F16 b) { return F16{a.value - b.value}; });
  t[Op::v_subrev_f16] = map([](F16 a, F16 b) { return F16{b.value - a.value}; });
  t[Op::v_mul_f16] = map([](F16 a, F16 b) { return F16{a.value * b.value}; });
  t[Op::v_fma_f16] = map<kHalves>([](F16 a, F16 b, F16 c) { return fused_half(a, b, c); });
  // half_to_float keeps the quiet bit in place, so the signaling test of float applies.
  t[Op::v_min_f16] = map_by_ieee(
      []<bool ieee>(F16 a, F16 b) { return F16{minimum_number<ieee>(a.value, b.value)}; });
  t[Op::v_max_f16] = map_by_ieee(
      []<bool ieee>(F16 a, F16 b) { return F16{maximum_number<ieee>(a.value, b.value)}; });
  t[Op::v_min3_f16] = map_by_ieee<kHalves>([]<bool ieee>(F16 a, F16 b, F16 c) {
    return F16{minimum_number<ieee>(minimum_number<ieee>(a.value, b.value), c.value)};
  });
  t[Op::v_max3_f16] = map_by_ieee<kHalves>([]<bool ieee>(F16 a, F16 b, F16 c) {
    return F16{maximum_number<ieee>(maximum_number<ieee>(a.value, b.value), c.value)};
  });
  t[Op::v_med3_f16] = map_by_ieee<kHalves>(
      []<bool ieee>(F16 a, F16 b, F16 c) { return F16{median<ieee>(a.value, b.value, c.value)}; });
  t[Op::v_floor_f16] = map([](F16 a) { return F16{__builtin_floorf(a.value)}; });
  t[Op::v_ceil_f16] = map([](F16 a) { return F16{__builtin_ceilf(a.value)}; });
  t[Op::v_trunc_f16] = map([](F16 a) { return F16{__builtin_truncf(a.value)}; });
  t[Op::v_rndne_f16] = map([](F16 a) { return F16{__builtin_rintf(a.value)}; });
  t[Op::v_fract_f16] = map([](F16 a) { return fraction(a); });
  t[Op::v_ldexp_f16] = map([](F16 a, I16 b) { return scaled(a, b); });
  t[Op::v_frexp_mant_f16] = map([](F16 a) { return mantissa(a); });
  t[Op::v_frexp_exp_i16_f16] = map([](F16 a) { return exponent_of(a); });
  t[Op::v_div_fixup_f16] = map<kHalves>([](F16 q, F16 d, F16 n) { return fix_quotient(q, d, n); });
}

}  // namespace

void fill_valu_float16(HandlerTable& table) {
  fill_conversions(table);
  fill_arithmetic(table);
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
