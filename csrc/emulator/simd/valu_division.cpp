// The three instructions around a Newton division: v_div_scale moves numerator and denominator into
// a safe range, v_div_fmas undoes that in its last step, v_div_fixup inserts the special cases.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

template <class T>
struct Division;
template <>
struct Division<float> {
  static constexpr int kScale = 64, kFarApart = 96, kTiny = 23, kBias = 127, kUnderflow = -150;
  static int exponent(float x) { return static_cast<int>(bits_of(x) >> 23 & 0xff); }
};
template <>
struct Division<double> {
  static constexpr int kScale = 128, kFarApart = 768, kTiny = 53, kBias = 1023, kUnderflow = -1075;
  static int exponent(double x) { return static_cast<int>(bits_of(x) >> 52 & 0x7ff); }
};

template <class T>
T scale(T x, int exponent) {
  return static_cast<T>(__builtin_ldexp(static_cast<double>(x), exponent));
}

// Whether the quotient is smaller than the smallest normal number (infinite operands aside).
template <class T>
bool below_normal(T numerator, T denominator) {
  const T quotient = numerator / denominator;
  return Division<T>::exponent(quotient) == 0 &&
         Division<T>::exponent(denominator) <= 2 * Division<T>::kBias;
}

// a * b + c times 2^exponent.
float fused_and_scaled(float a, float b, float c, int exponent) {
  return static_cast<float>(__builtin_ldexp(fused_to_odd(a, b, c), exponent));
}
double fused_and_scaled(double a, double b, double c, int exponent) {
  return __builtin_ldexp(fused(a, b, c), exponent);
}

// One lane of v_div_scale (ISA, V_DIV_SCALE_F32): x is the denominator or the numerator, whichever
// is to be scaled. Sets `rescale` when v_div_fmas must undo it. Where 1/d and n/d are both below
// the normal range the manual's text scales the denominator up, which overflows; down is meant, and
// agrees with the direction in which v_div_fmas rescales.
template <class T>
T scale_operand(T x, T denominator, T numerator, bool& rescale) {
  using D = Division<T>;
  rescale = false;
  if (numerator == 0 || denominator == 0) return static_cast<T>(__builtin_nan(""));
  const bool is_denominator = x == denominator, is_numerator = x == numerator;
  const bool tiny_reciprocal = below_normal(T{1}, denominator);
  const bool tiny_quotient = below_normal(numerator, denominator);
  if (D::exponent(numerator) - D::exponent(denominator) >= D::kFarApart) {
    rescale = true;
    return is_denominator ? scale(x, D::kScale) : x;
  }
  if (D::exponent(denominator) == 0) return scale(x, D::kScale);
  if (tiny_reciprocal && tiny_quotient) {
    rescale = true;
    return is_denominator ? scale(x, -D::kScale) : x;
  }
  if (tiny_reciprocal) return scale(x, -D::kScale);
  if (tiny_quotient) {
    rescale = true;
    return is_numerator ? scale(x, D::kScale) : x;
  }
  return D::exponent(numerator) <= D::kTiny ? scale(x, D::kScale) : x;
}

template <class T>
T fix_quotient(T quotient, T denominator, T numerator) {
  using D = Division<T>;
  const bool negative = __builtin_signbit(denominator) != __builtin_signbit(numerator);
  const T infinity = static_cast<T>(__builtin_inf());
  const T d = denominator < 0 ? -denominator : denominator;
  const T n = numerator < 0 ? -numerator : numerator;
  if (is_nan(numerator)) return quiet(numerator);
  if (is_nan(denominator)) return quiet(denominator);
  if ((d == 0 && n == 0) || (d == infinity && n == infinity)) {
    return -static_cast<T>(__builtin_nan(""));
  }
  T size = static_cast<T>(__builtin_fabs(static_cast<double>(quotient)));
  if (d == 0 || n == infinity) {
    size = infinity;
  } else if (d == infinity || n == 0) {
    size = 0;
  } else if (is_nan(quotient)) {
    size = infinity;  // the Newton steps of a quotient that overflows end in inf - inf
  } else if (D::exponent(numerator) - D::exponent(denominator) < D::kUnderflow) {
    size = 0;  // below half of the smallest denormal
  }
  return negative ? -size : size;
}

template <class T, bool flush>
void div_scale_lanes(const Instruction& instruction, Wave& wave) {
  uint64_t active = wave.exec();
  Scratch scratch[3], result;
  Source source[3];
  for (int i = 0; i < 3; ++i) source[i] = fetch<T>(instruction, wave, i, scratch[i], active);
  uint64_t rescale_mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    bool rescale = false;
    const T value = scale_operand(load<T, flush>(source[0], lane), load<T, flush>(source[1], lane),
                                  load<T, flush>(source[2], lane), rescale);
    store<flush>(value, result.lo.lane, result.hi.lane, lane);
    rescale_mask |= uint64_t{rescale} << lane;
  }
  store_dword(instruction, wave, active, result.lo.lane);
  if constexpr (sizeof(T) == 8) store_dword(instruction, wave, active, result.hi.lane, 1);
  write_mask(instruction, wave, instruction.sdst, rescale_mask & active);
}

template <class T>
void div_scale(const Instruction& instruction, Wave& wave) {
  // VOP3B has no room for abs, and negating an operand would break the comparison of sources.
  require_modifiers(instruction, 0, 0, false);
  if (sizeof(T) == 4 && wave.mode.flush_f32) return div_scale_lanes<T, true>(instruction, wave);
  div_scale_lanes<T, false>(instruction, wave);
}

template <class T, bool flush>
void div_fmas_lanes(const Instruction& instruction, Wave& wave) {
  using D = Division<T>;
  uint64_t active = wave.exec();
  Scratch scratch[3], result;
  Source source[3];
  for (int i = 0; i < 3; ++i) source[i] = fetch<T>(instruction, wave, i, scratch[i], active);
  const uint64_t vcc = wave.vcc();
  for (int lane = 0; lane < kLanes; ++lane) {
    const T a = load<T, flush>(source[0], lane), b = load<T, flush>(source[1], lane),
            c = load<T, flush>(source[2], lane);
    // A large quotient means that the denominator was scaled up, a small one the opposite.
    const int rescale = D::exponent(c) > D::kBias ? D::kScale : -D::kScale;
    const T value = vcc >> lane & 1 ? fused_and_scaled(a, b, c, rescale) : fused(a, b, c);
    store<flush>(value, result.lo.lane, result.hi.lane, lane);
  }
  store_dword(instruction, wave, active, result.lo.lane);
  if constexpr (sizeof(T) == 8) store_dword(instruction, wave, active, result.hi.lane, 1);
}

template <class T>
void div_fmas(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 7, 0, false);
  if (sizeof(T) == 4 && wave.mode.flush_f32) return div_fmas_lanes<T, true>(instruction, wave);
  div_fmas_lanes<T, false>(instruction, wave);
}

}  // namespace

void fill_valu_division(HandlerTable& t) {
  t[Op::v_div_scale_f32] = div_scale<float>;
  t[Op::v_div_scale_f64] = div_scale<double>;
  t[Op::v_div_fmas_f32] = div_fmas<float>;
  t[Op::v_div_fmas_f64] = div_fmas<double>;
  t[Op::v_div_fixup_f32] = map([](float q, float d, float n) { return fix_quotient(q, d, n); });
  t[Op::v_div_fixup_f64] = map([](double q, double d, double n) { return fix_quotient(q, d, n); });
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
