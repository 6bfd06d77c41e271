// Turns a function of one lane into the handler of an instruction. The function's parameter and
// result types say how sources are fetched, which modifiers are legal, and how the result is kept.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "emulator/simd/float_lanes.h"
#include "emulator/simd/operands.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

// Besides float, double and the 32- and 64-bit integers a lane function may take or return
// sixteen-bit values: F16 holds the value as a float, U16 and I16 as an extended integer.
struct F16 {
  float value;
};
struct U16 {
  uint32_t value;
};
struct I16 {
  int32_t value;
};

template <class T>
inline constexpr bool kIs16 =
    std::is_same_v<T, F16> || std::is_same_v<T, U16> || std::is_same_v<T, I16>;
template <class T>
inline constexpr bool kIsFloat =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, F16>;

template <class>
struct Signature;
template <class F, class R, class... A>
struct Signature<R (F::*)(A...) const> {
  using Result = R;
  static constexpr size_t kArity = sizeof...(A);
  template <size_t i>
  using Argument = std::tuple_element_t<i, std::tuple<A...>>;
  static constexpr bool kFloat32 = std::is_same_v<R, float> || (... || std::is_same_v<A, float>);
  static constexpr bool kFloat16Or64 = (kIsFloat<R> && !std::is_same_v<R, float>) ||
                                       (... || (kIsFloat<A> && !std::is_same_v<A, float>));
  // Bit i: source i is a float, so neg and abs apply; source i is 16 bits, so op_sel may apply.
  template <size_t... i>
  static constexpr unsigned float_sources(std::index_sequence<i...>) {
    return (0u | ... | (unsigned{kIsFloat<A>} << i));
  }
  template <size_t... i>
  static constexpr unsigned half_sources(std::index_sequence<i...>) {
    return (0u | ... | (unsigned{kIs16<A>} << i));
  }
};
template <class F>
using SignatureOf = Signature<decltype(&F::operator())>;

struct MapOptions {
  bool accumulate = false;  // the last argument is the destination's old value
  // op_sel chooses halves and the destination's other half is kept: the VOP3-only 16-bit
  // instructions of gfx9. All others read low halves and zero the high half.
  bool halves = false;
};

// neg and abs, applied to the dword that holds the sign.
inline const uint32_t* apply_modifiers(const Instruction& instruction, int i,
                                       const uint32_t* source, uint32_t sign,
                                       VectorRegister& scratch) {
  const bool negate = instruction.neg >> i & 1, absolute = instruction.abs >> i & 1;
  if (!negate && !absolute) return source;
  const uint32_t clear = absolute ? ~sign : ~0u, flip = negate ? sign : 0;
  MHA_SINK_FOR_LANES(lane) scratch.lane[lane] = (source[lane] & clear) ^ flip;
  return scratch.lane;
}

template <class T>
Source fetch(const Instruction& instruction, const Wave& wave, int i, Scratch& scratch,
             uint64_t& active) {
  Source source;
  if constexpr (sizeof(T) == 8) {
    source = source_qword(instruction, wave, i, scratch);
    if (i == 0 && instruction.dpp != Dpp::none) {
      active &= apply_dpp(instruction, wave, source.lo, scratch.lo);
      apply_dpp(instruction, wave, source.hi, scratch.hi);
    }
    if constexpr (kIsFloat<T>) {
      source.hi = apply_modifiers(instruction, i, source.hi, kSign, scratch.hi);
    }
    return source;
  } else {
    source.lo = source_dword(instruction, wave, i, scratch.lo);
    if (i == 0 && instruction.dpp != Dpp::none) {
      active &= apply_dpp(instruction, wave, source.lo, scratch.lo);
    }
    if constexpr (kIs16<T>) {
      const int shift = instruction.op_sel >> i & 1 ? 16 : 0;
      const uint32_t* whole = source.lo;
      if constexpr (std::is_same_v<T, I16>) {
        MHA_SINK_FOR_LANES(lane) {
          scratch.lo.lane[lane] =
              static_cast<uint32_t>(static_cast<int32_t>(whole[lane] << (16 - shift)) >> 16);
        }
      } else {
        MHA_SINK_FOR_LANES(lane) scratch.lo.lane[lane] = whole[lane] >> shift & 0xffffu;
      }
      source.lo = scratch.lo.lane;
      if constexpr (std::is_same_v<T, F16>) {
        apply_modifiers(instruction, i, source.lo, 0x8000u, scratch.lo);
        MHA_SINK_FOR_LANES(lane) {
          scratch.lo.lane[lane] = bits_of(half_to_float(scratch.lo.lane[lane]));
        }
      }
    } else if constexpr (kIsFloat<T>) {
      source.lo = apply_modifiers(instruction, i, source.lo, kSign, scratch.lo);
    }
    return source;
  }
}

template <class T, bool flush>
T load(const Source& source, int lane) {
  if constexpr (sizeof(T) == 8) {
    return __builtin_bit_cast(T, source.lo[lane] | uint64_t{source.hi[lane]} << 32);
  } else if constexpr (std::is_same_v<T, float> && flush) {
    return flush_denormal(as_float(source.lo[lane]));
  } else {
    return __builtin_bit_cast(T, source.lo[lane]);
  }
}

template <bool flush, class T>
void store(T value, uint32_t* lo, uint32_t* hi, int lane) {
  if constexpr (sizeof(T) == 8) {
    const uint64_t bits = __builtin_bit_cast(uint64_t, value);
    lo[lane] = static_cast<uint32_t>(bits);
    hi[lane] = static_cast<uint32_t>(bits >> 32);
  } else if constexpr (std::is_same_v<T, F16>) {
    lo[lane] = bits_of(value.value);  // rounded to half in a pass of its own
  } else if constexpr (kIs16<T>) {
    lo[lane] = static_cast<uint32_t>(value.value) & 0xffffu;
  } else if constexpr (std::is_same_v<T, float> && flush) {
    lo[lane] = bits_of(flush_denormal(value));
  } else {
    lo[lane] = __builtin_bit_cast(uint32_t, value);
  }
}

// Output modifiers of a float result: omod scales by 2, 4 or 1/2, then clamp limits to [0, 1].
inline void apply_output_modifiers(const Instruction& instruction, const Wave& wave,
                                   uint32_t* result) {
  if (instruction.omod != 0) {
    // The ISA ignores omod in IEEE mode and with denormals on; no compiler emits it there.
    if (wave.mode.ieee || !wave.mode.flush_f32) {
      unsupported(instruction, "an output modifier with IEEE mode or denormals on");
    }
    const float factor = instruction.omod == 1 ? 2.0f : (instruction.omod == 2 ? 4.0f : 0.5f);
    MHA_SINK_FOR_LANES(lane) {
      result[lane] = bits_of(flush_denormal(as_float(result[lane]) * factor));
    }
  }
  if (instruction.clamp) {
    const bool keep_nan = !wave.mode.dx10_clamp;
    MHA_SINK_FOR_LANES(lane) {
      const float x = as_float(result[lane]);
      const float limited = select(x > 1.0f, 1.0f, select(x > 0.0f, x, 0.0f));
      result[lane] = select(is_nan(x) & keep_nan, result[lane], bits_of(limited));
    }
  }
}

inline void require_modifiers(const Instruction& instruction, unsigned float_sources,
                              unsigned half_selects, bool output) {
  const bool sources = ((instruction.neg | instruction.abs) & ~float_sources) != 0 ||
                       (instruction.op_sel & ~half_selects) != 0 || instruction.neg_hi != 0;
  if (sources || (!output && (instruction.clamp || instruction.omod != 0))) {
    unsupported(instruction, "this combination of modifiers");
  }
}

// The loop itself, a function of its own so that `flatten` inlines the whole lane function and
// nothing else: a call left in it would keep it from being vectorised.
template <class F, bool flush, size_t... i>
[[gnu::flatten]] void apply_to_lanes(const Source* source, uint32_t* lo, uint32_t* hi,
                                     std::index_sequence<i...>) {
  using S = SignatureOf<F>;
  MHA_SINK_FOR_LANES(lane) {
    store<flush>(
        typename S::Result{F{}(load<typename S::template Argument<i>, flush>(source[i], lane)...)},
        lo, hi, lane);
  }
  if constexpr (std::is_same_v<typename S::Result, F16>) {
    MHA_SINK_FOR_LANES(lane) lo[lane] = float_to_half(as_float(lo[lane]));
  }
}

template <class F, MapOptions options, bool flush>
void map_lanes(const Instruction& instruction, Wave& wave) {
  using S = SignatureOf<F>;
  using R = typename S::Result;
  constexpr size_t kArity = S::kArity;
  uint64_t active = wave.exec();
  Scratch scratch[kArity];
  Source source[kArity];
  [&]<size_t... i>(std::index_sequence<i...>) {
    (..., (source[i] = options.accumulate && i + 1 == kArity
                           ? Source{}
                           : fetch<typename S::template Argument<i>>(instruction, wave, i,
                                                                     scratch[i], active)));
  }(std::make_index_sequence<kArity>{});

  uint32_t* const destination = vector_register(instruction, wave, instruction.dst);
  uint32_t* const destination_hi =
      sizeof(R) == 8 ? vector_register(instruction, wave, instruction.dst, 1) : nullptr;
  if constexpr (options.accumulate) source[kArity - 1] = {destination, destination_hi};

  const bool output = instruction.clamp || instruction.omod != 0;
  const bool direct = active == kAllLanes && !output && !options.halves;
  Scratch result;
  uint32_t* const lo = direct ? destination : result.lo.lane;
  uint32_t* const hi = direct ? destination_hi : result.hi.lane;
  apply_to_lanes<F, flush>(source, lo, hi, std::make_index_sequence<kArity>{});
  if (direct) return;

  if constexpr (std::is_same_v<R, float>) apply_output_modifiers(instruction, wave, lo);
  if constexpr (options.halves && kIs16<R>) {
    store_half(active, instruction.op_sel >> 3 & 1, lo, destination);
  } else {
    store_masked(active, lo, destination);
  }
  if constexpr (sizeof(R) == 8) store_masked(active, hi, destination_hi);
}

template <class F, MapOptions options>
void map_handler(const Instruction& instruction, Wave& wave) {
  using S = SignatureOf<F>;
  constexpr auto kIndices = std::make_index_sequence<S::kArity>{};
  constexpr unsigned kHalves =
      options.halves ? S::half_sources(kIndices) | (kIs16<typename S::Result> ? 8u : 0u) : 0u;
  require_modifiers(instruction, S::float_sources(kIndices), kHalves,
                    std::is_same_v<typename S::Result, float>);
  if constexpr (S::kFloat16Or64) {
    if (wave.mode.flush_f16_f64) unsupported(instruction, "flushing denormals of fp16 and fp64");
  }
  if constexpr (S::kFloat32) {
    if (wave.mode.flush_f32) return map_lanes<F, options, true>(instruction, wave);
  }
  map_lanes<F, options, false>(instruction, wave);
}

// The handler that applies a captureless lambda to every lane.
template <MapOptions options = {}, class F>
Handler map(F) {
  return map_handler<F, options>;
}

// A lambda whose template parameter is the wave's IEEE mode, with that parameter bound.
template <class F, bool ieee, class Member = decltype(&F::template operator()<ieee>)>
struct InMode;
template <class F, bool ieee, class R, class... A>
struct InMode<F, ieee, R (F::*)(A...) const> {
  R operator()(A... argument) const { return F{}.template operator()<ieee>(argument...); }
};

// Instructions whose NaN rules depend on the IEEE mode.
template <MapOptions options = {}, class F>
Handler map_by_ieee(F) {
  return [](const Instruction& instruction, Wave& wave) {
    if (wave.mode.ieee) return map_handler<InMode<F, true>, options>(instruction, wave);
    map_handler<InMode<F, false>, options>(instruction, wave);
  };
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
