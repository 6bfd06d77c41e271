// v_cmp_* and v_cmpx_*: a lane mask with zeros for inactive lanes; v_cmpx also replaces EXEC.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

template <class F, bool flush>
[[gnu::flatten]] void compare_all(const Source& a, const Source& b, VectorRegister& result) {
  using A = typename SignatureOf<F>::template Argument<0>;
  using B = typename SignatureOf<F>::template Argument<1>;
  MHA_SINK_FOR_LANES(lane) {
    result.lane[lane] = select(F{}(load<A, flush>(a, lane), load<B, flush>(b, lane)), ~0u, 0u);
  }
}

template <class F, bool flush>
uint64_t compare_lanes(const Instruction& instruction, const Wave& wave) {
  using S = SignatureOf<F>;
  using A = typename S::template Argument<0>;
  using B = typename S::template Argument<1>;
  uint64_t active = wave.exec();
  Scratch scratch[2];
  const Source a = fetch<A>(instruction, wave, 0, scratch[0], active);
  const Source b = fetch<B>(instruction, wave, 1, scratch[1], active);
  if (active != wave.exec()) unsupported(instruction, "a comparison in lanes that DPP disables");
  VectorRegister result;
  compare_all<F, flush>(a, b, result);
  return collect(result) & active;
}

template <class F, bool write_exec>
void compare(const Instruction& instruction, Wave& wave) {
  using S = SignatureOf<F>;
  require_modifiers(instruction, S::float_sources(std::make_index_sequence<2>{}), 0, false);
  if constexpr (S::kFloat16Or64) {
    if (wave.mode.flush_f16_f64) unsupported(instruction, "flushing denormals of fp16 and fp64");
  }
  const uint64_t mask = S::kFloat32 && wave.mode.flush_f32
                            ? compare_lanes<F, true>(instruction, wave)
                            : compare_lanes<F, false>(instruction, wave);
  write_mask(instruction, wave, instruction.dst, mask);
  if constexpr (write_exec) wave.write64(kExec, mask);
}

template <class T>
auto value(T x) {
  if constexpr (kIs16<T>) {
    return x.value;
  } else {
    return x;
  }
}

template <class F>
void set(HandlerTable& t, Op plain, Op with_exec, F) {
  t[plain] = compare<F, false>;
  t[with_exec] = compare<F, true>;
}

// The class bits of the ISA: signaling and quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal,
// +normal, +inf. `exponent_all_ones` and so on are of the operand's own format.
bool is_in_class(uint32_t mask, bool negative, bool nan, bool quiet_nan, bool infinite, bool zero,
                 bool denormal) {
  const uint32_t positive_bit = infinite ? 9 : (zero ? 6 : (denormal ? 7 : 8));
  const uint32_t bit = nan ? (quiet_nan ? 1 : 0) : (negative ? 11 - positive_bit : positive_bit);
  return mask >> bit & 1;
}

bool has_class(float x, uint32_t mask) {
  const uint32_t bits = bits_of(x), magnitude = bits & ~kSign;
  return is_in_class(mask, bits >> 31, magnitude > kInfinity, bits >> 22 & 1,
                     magnitude == kInfinity, magnitude == 0, magnitude < 0x800000u);
}
bool has_class(F16 x, uint32_t mask) {
  // As a float the half keeps its class but for denormals, which lie below 2^-14.
  const uint32_t bits = bits_of(x.value), magnitude = bits & ~kSign;
  return is_in_class(mask, bits >> 31, magnitude > kInfinity, bits >> 22 & 1,
                     magnitude == kInfinity, magnitude == 0, magnitude < 0x38800000u);
}
bool has_class(double x, uint32_t mask) {
  const uint64_t bits = bits_of(x), magnitude = bits & ~(uint64_t{1} << 63);
  constexpr uint64_t kInfinity64 = uint64_t{0x7ff} << 52;
  return is_in_class(mask, bits >> 63, magnitude > kInfinity64, bits >> 51 & 1,
                     magnitude == kInfinity64, magnitude == 0, magnitude < uint64_t{1} << 52);
}

#define MHA_SINK_COMPARE(suffix, name, T, expression)               \
  set(t, Op::v_cmp_##name##_##suffix, Op::v_cmpx_##name##_##suffix, \
      []([[maybe_unused]] T x, [[maybe_unused]] T y) {              \
        [[maybe_unused]] const auto a = value(x);                   \
        [[maybe_unused]] const auto b = value(y);                   \
        return expression;                                          \
      })

#define MHA_SINK_COMPARE_INTEGER(suffix, T) \
  MHA_SINK_COMPARE(suffix, f, T, false);    \
  MHA_SINK_COMPARE(suffix, lt, T, a < b);   \
  MHA_SINK_COMPARE(suffix, eq, T, a == b);  \
  MHA_SINK_COMPARE(suffix, le, T, a <= b);  \
  MHA_SINK_COMPARE(suffix, gt, T, a > b);   \
  MHA_SINK_COMPARE(suffix, ne, T, a != b);  \
  MHA_SINK_COMPARE(suffix, ge, T, a >= b);  \
  MHA_SINK_COMPARE(suffix, t, T, true)

#define MHA_SINK_COMPARE_FLOAT(suffix, T)                 \
  MHA_SINK_COMPARE(suffix, f, T, false);                  \
  MHA_SINK_COMPARE(suffix, lt, T, a < b);                 \
  MHA_SINK_COMPARE(suffix, eq, T, a == b);                \
  MHA_SINK_COMPARE(suffix, le, T, a <= b);                \
  MHA_SINK_COMPARE(suffix, gt, T, a > b);                 \
  MHA_SINK_COMPARE(suffix, lg, T, (a < b) | (a > b));     \
  MHA_SINK_COMPARE(suffix, ge, T, a >= b);                \
  MHA_SINK_COMPARE(suffix, o, T, (a == a) & (b == b));    \
  MHA_SINK_COMPARE(suffix, u, T, (a != a) | (b != b));    \
  MHA_SINK_COMPARE(suffix, nge, T, !(a >= b));            \
  MHA_SINK_COMPARE(suffix, nlg, T, !((a < b) | (a > b))); \
  MHA_SINK_COMPARE(suffix, ngt, T, !(a > b));             \
  MHA_SINK_COMPARE(suffix, nle, T, !(a <= b));            \
  MHA_SINK_COMPARE(suffix, neq, T, a != b);               \
  MHA_SINK_COMPARE(suffix, nlt, T, !(a < b));             \
  MHA_SINK_COMPARE(suffix, tru, T, true)

}  // namespace

void fill_valu_compare(HandlerTable& t) {
  MHA_SINK_COMPARE_INTEGER(i16, I16);
  MHA_SINK_COMPARE_INTEGER(u16, U16);
  MHA_SINK_COMPARE_INTEGER(i32, int32_t);
  MHA_SINK_COMPARE_INTEGER(u32, uint32_t);
  MHA_SINK_COMPARE_INTEGER(i64, int64_t);
  MHA_SINK_COMPARE_INTEGER(u64, uint64_t);
  MHA_SINK_COMPARE_FLOAT(f16, F16);
  MHA_SINK_COMPARE_FLOAT(f32, float);
  MHA_SINK_COMPARE_FLOAT(f64, double);
  set(t, Op::v_cmp_class_f32, Op::v_cmpx_class_f32,
      [](float a, uint32_t b) { return has_class(a, b); });
  set(t, Op::v_cmp_class_f64, Op::v_cmpx_class_f64,
      [](double a, uint32_t b) { return has_class(a, b); });
  set(t, Op::v_cmp_class_f16, Op::v_cmpx_class_f16,
      [](F16 a, uint32_t b) { return has_class(a, b); });
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
