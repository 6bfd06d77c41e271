// VOP3P: two 16-bit values in a register or two fp32 values in a pair, and the mixed-precision fma.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

// Which dword or half each of the two results reads of source i, and whether it is negated.
bool selects_high(const Instruction& instruction, int i, int result) {
  return (result == 0 ? instruction.op_sel : instruction.op_sel_hi) >> i & 1;
}
bool negates(const Instruction& instruction, int i, int result) {
  return (result == 0 ? instruction.neg : instruction.neg_hi) >> i & 1;
}

void require_packed(const Instruction& instruction, bool floating) {
  const bool negate = (instruction.neg | instruction.neg_hi) != 0;
  if (instruction.clamp || instruction.omod != 0 || instruction.abs != 0 ||
      instruction.dpp != Dpp::none || (negate && !floating)) {
    unsupported(instruction, "this combination of modifiers");
  }
}

// The halves that one result reads, zero-extended in place.
template <class T>
void select_halves(const Instruction& instruction, int i, int result, const uint32_t* source,
                   VectorRegister& out) {
  const int shift = selects_high(instruction, i, result) ? 16 : 0;
  const uint32_t flip = negates(instruction, i, result) ? 0x8000u : 0;
  MHA_SINK_FOR_LANES(lane) {
    const uint32_t half = (source[lane] >> shift & 0xffffu) ^ flip;
    if constexpr (std::is_same_v<T, F16>) {
      out.lane[lane] = bits_of(half_to_float(half));
    } else if constexpr (std::is_same_v<T, I16>) {
      out.lane[lane] = static_cast<uint32_t>(static_cast<int32_t>(half << 16) >> 16);
    } else {
      out.lane[lane] = half;
    }
  }
}

template <class F, MapOptions options>
void map_packed_16(const Instruction& instruction, Wave& wave) {
  using S = SignatureOf<F>;
  constexpr size_t kArity = S::kArity;
  using First = typename S::template Argument<0>;
  require_packed(instruction, kIsFloat<First>);
  if (kIsFloat<First> && wave.mode.flush_f16_f64) {
    unsupported(instruction, "flushing denormals of fp16");
  }
  uint32_t* const destination = vector_register(instruction, wave, instruction.dst);
  VectorRegister scratch[kArity], half[kArity], result[2];
  const uint32_t* source[kArity];
  for (size_t i = 0; i < kArity; ++i) {
    source[i] = options.accumulate && i + 1 == kArity
                    ? destination
                    : source_dword(instruction, wave, static_cast<int>(i), scratch[i]);
  }
  for (int r = 0; r < 2; ++r) {
    Source lanes[kArity];
    [&]<size_t... i>(std::index_sequence<i...>) {
      (..., select_halves<typename S::template Argument<i>>(instruction, i, r, source[i], half[i]));
      (..., (lanes[i].lo = half[i].lane));
    }(std::make_index_sequence<kArity>{});
    apply_to_lanes<F, false>(lanes, result[r].lane, nullptr, std::make_index_sequence<kArity>{});
  }
  MHA_SINK_FOR_LANES(lane) result[0].lane[lane] |= result[1].lane[lane] << 16;
  store_masked(wave.exec(), result[0].lane, destination);
}

template <class F>
Handler packed_16(F) {
  return map_packed_16<F, MapOptions{}>;
}

template <class F>
Handler packed_16_by_ieee(F) {
  return [](const Instruction& instruction, Wave& wave) {
    if (wave.mode.ieee) return map_packed_16<InMode<F, true>, MapOptions{}>(instruction, wave);
    map_packed_16<InMode<F, false>, MapOptions{}>(instruction, wave);
  };
}

// VOP2 has no selects: the low result of the low halves, the high of the high ones.
template <class F>
Handler packed_accumulate(F) {
  return [](const Instruction& instruction, Wave& wave) {
    require_modifiers(instruction, 0, 0, false);
    Instruction selected = instruction;
    selected.op_sel_hi = 7;
    map_packed_16<F, MapOptions{.accumulate = true}>(selected, wave);
  };
}

// One dword of a pk_f32 source.
const uint32_t* packed_dword(const Instruction& instruction, const Wave& wave, int i, int result,
                             VectorRegister& scratch) {
  const Operand& operand = instruction.src[i];
  const bool high = selects_high(instruction, i, result);
  const uint32_t* lanes = nullptr;
  if (is_vector(operand)) {
    lanes = vector_register(instruction, wave, operand, high);
  } else {
    if (operand.kind == OperandKind::constant && high) {
      unsupported(instruction, "the high dword of a constant");
    }
    const uint64_t value = scalar(instruction, wave, operand);
    lanes = broadcast(static_cast<uint32_t>(high ? value >> 32 : value), scratch);
  }
  if (!negates(instruction, i, result)) return lanes;
  MHA_SINK_FOR_LANES(lane) scratch.lane[lane] = lanes[lane] ^ kSign;
  return scratch.lane;
}

template <class F, bool flush>
void map_packed_f32(const Instruction& instruction, Wave& wave) {
  constexpr size_t kArity = SignatureOf<F>::kArity;
  const uint64_t active = wave.exec();
  uint32_t* const destination[] = {vector_register(instruction, wave, instruction.dst, 0),
                                   vector_register(instruction, wave, instruction.dst, 1)};
  VectorRegister scratch[2][kArity], low;
  Source source[2][kArity];
  for (int r = 0; r < 2; ++r) {
    for (size_t i = 0; i < kArity; ++i) {
      source[r][i].lo = packed_dword(instruction, wave, static_cast<int>(i), r, scratch[r][i]);
    }
  }
  // The low result waits in `low`: the high one may read the register that it replaces.
  const bool direct = active == kAllLanes && !instruction.clamp;
  VectorRegister high;
  uint32_t* const out[] = {low.lane, direct ? destination[1] : high.lane};
  for (int r = 0; r < 2; ++r) {
    apply_to_lanes<F, flush>(source[r], out[r], nullptr, std::make_index_sequence<kArity>{});
    apply_output_modifiers(instruction, wave, out[r]);
  }
  if (direct) {
    MHA_SINK_FOR_LANES(lane) destination[0][lane] = low.lane[lane];
    return;
  }
  for (int r = 0; r < 2; ++r) store_masked(active, out[r], destination[r]);
}

template <class F>
Handler packed_f32(F) {
  return [](const Instruction& instruction, Wave& wave) {
    if (instruction.abs != 0 || instruction.omod != 0 || instruction.dpp != Dpp::none) {
      unsupported(instruction, "this combination of modifiers");
    }
    if (wave.mode.flush_f32) return map_packed_f32<F, true>(instruction, wave);
    map_packed_f32<F, false>(instruction, wave);
  };
}

// The low result is a dword of source 0, the high one a dword of source 1, chosen by op_sel alone.
void packed_move(const Instruction& instruction, Wave& wave) {
  require_packed(instruction, false);
  VectorRegister scratch[2], result[2];
  for (int r = 0; r < 2; ++r) {
    const uint32_t* lanes = packed_dword(instruction, wave, r, 0, scratch[r]);
    MHA_SINK_FOR_LANES(lane) result[r].lane[lane] = lanes[lane];
  }
  for (uint32_t r = 0; r < 2; ++r) {
    store_dword(instruction, wave, wave.exec(), result[r].lane, r);
  }
}

enum class MixResult { single, low_half, high_half };

// Each source is a float, or with op_sel_hi the half that op_sel chooses; neg_hi means abs.
template <MixResult kind, bool flush>
void fma_mix_lanes(const Instruction& instruction, Wave& wave) {
  VectorRegister scratch[3], result;
  const uint32_t* source[3];
  for (int i = 0; i < 3; ++i) {
    const uint32_t* whole = source_dword(instruction, wave, i, scratch[i]);
    const bool is_half = instruction.op_sel_hi >> i & 1;
    const bool high = instruction.op_sel >> i & 1;
    if (!is_half && high) unsupported(instruction, "op_sel on an fp32 source");
    const int shift = high ? 16 : 0;
    const uint32_t clear = instruction.neg_hi >> i & 1 ? ~kSign : ~0u;
    const uint32_t flip = instruction.neg >> i & 1 ? kSign : 0;
    if (is_half) {
      MHA_SINK_FOR_LANES(lane) {
        scratch[i].lane[lane] = bits_of(half_to_float(whole[lane] >> shift & 0xffffu));
      }
    } else {
      MHA_SINK_FOR_LANES(lane) {
        scratch[i].lane[lane] =
            flush ? bits_of(flush_denormal(as_float(whole[lane]))) : whole[lane];
      }
    }
    MHA_SINK_FOR_LANES(lane) scratch[i].lane[lane] = (scratch[i].lane[lane] & clear) ^ flip;
    source[i] = scratch[i].lane;
  }
  MHA_SINK_FOR_LANES(lane) {
    store<flush>(
        fused(as_float(source[0][lane]), as_float(source[1][lane]), as_float(source[2][lane])),
        result.lane, nullptr, lane);
  }
  apply_output_modifiers(instruction, wave, result.lane);
  uint32_t* const destination = vector_register(instruction, wave, instruction.dst);
  if constexpr (kind == MixResult::single) {
    store_masked(wave.exec(), result.lane, destination);
  } else {
    MHA_SINK_FOR_LANES(lane) result.lane[lane] = float_to_half(as_float(result.lane[lane]));
    store_half(wave.exec(), kind == MixResult::high_half, result.lane, destination);
  }
}

template <MixResult kind>
void fma_mix(const Instruction& instruction, Wave& wave) {
  if (instruction.abs != 0 || instruction.omod != 0 || instruction.dpp != Dpp::none) {
    unsupported(instruction, "this combination of modifiers");
  }
  if (wave.mode.flush_f16_f64) unsupported(instruction, "flushing denormals of fp16");
  if (wave.mode.flush_f32) return fma_mix_lanes<kind, true>(instruction, wave);
  fma_mix_lanes<kind, false>(instruction, wave);
}

void fill_integer(HandlerTable& t) {
  t[Op::v_pk_add_u16] = packed_16([](U16 a, U16 b) { return U16{a.value + b.value}; });
  t[Op::v_pk_sub_u16] = packed_16([](U16 a, U16 b) { return U16{a.value - b.value}; });
  t[Op::v_pk_add_i16] = t[Op::v_pk_add_u16];
  t[Op::v_pk_sub_i16] = t[Op::v_pk_sub_u16];
  t[Op::v_pk_mul_lo_u16] = packed_16([](U16 a, U16 b) { return U16{a.value * b.value}; });
  t[Op::v_pk_mad_u16] =
      packed_16([](U16 a, U16 b, U16 c) { return U16{a.value * b.value + c.value}; });
  t[Op::v_pk_mad_i16] = t[Op::v_pk_mad_u16];  // the low 16 bits do not depend on the signs
  t[Op::v_pk_lshlrev_b16] = packed_16([](U16 a, U16 b) { return U16{b.value << (a.value & 15)}; });
  t[Op::v_pk_lshrrev_b16] = packed_16([](U16 a, U16 b) { return U16{b.value >> (a.value & 15)}; });
  t[Op::v_pk_ashrrev_i16] = packed_16([](U16 a, I16 b) { return I16{b.value >> (a.value & 15)}; });
  t[Op::v_pk_max_i16] =
      packed_16([](I16 a, I16 b) { return I16{a.value > b.value ? a.value : b.value}; });
  t[Op::v_pk_min_i16] =
      packed_16([](I16 a, I16 b) { return I16{a.value < b.value ? a.value : b.value}; });
  t[Op::v_pk_max_u16] =
      packed_16([](U16 a, U16 b) { return U16{a.value > b.value ? a.value : b.value}; });
  t[Op::v_pk_min_u16] =
      packed_16([](U16 a, U16 b) { return U16{a.value < b.value ? a.value : b.value}; });
}

F16 fused_half(F16 a, F16 b, F16 c) {
  return F16{to_odd_float(static_cast<double>(a.value) * b.value + c.value)};
}

void fill_half(HandlerTable& t) {
  t[Op::v_pk_add_f16] = packed_16([](F16 a, F16 b) { return F16{a.value + b.value}; });
  t[Op::v_pk_mul_f16] = packed_16([](F16 a, F16 b) { return F16{a.value * b.value}; });
  t[Op::v_pk_fma_f16] = packed_16([](F16 a, F16 b, F16 c) { return fused_half(a, b, c); });
  t[Op::v_pk_fmac_f16] = packed_accumulate([](F16 a, F16 b, F16 d) { return fused_half(a, b, d); });
  t[Op::v_pk_min_f16] = packed_16_by_ieee(
      []<bool ieee>(F16 a, F16 b) { return F16{minimum_number<ieee>(a.value, b.value)}; });
  t[Op::v_pk_max_f16] = packed_16_by_ieee(
      []<bool ieee>(F16 a, F16 b) { return F16{maximum_number<ieee>(a.value, b.value)}; });
  t[Op::v_pk_minimum3_f16] = packed_16([](F16 a, F16 b, F16 c) {
    return F16{minimum_propagating(minimum_propagating(a.value, b.value), c.value)};
  });
  t[Op::v_pk_maximum3_f16] = packed_16([](F16 a, F16 b, F16 c) {
    return F16{maximum_propagating(maximum_propagating(a.value, b.value), c.value)};
  });
}

}  // namespace

void fill_valu_packed(HandlerTable& t) {
  fill_integer(t);
  fill_half(t);
  t[Op::v_pk_fma_f32] = packed_f32([](float a, float b, float c) { return fused(a, b, c); });
  t[Op::v_pk_mul_f32] = packed_f32([](float a, float b) { return a * b; });
  t[Op::v_pk_add_f32] = packed_f32([](float a, float b) { return a + b; });
  t[Op::v_pk_mov_b32] = packed_move;
  t[Op::v_fma_mix_f32] = fma_mix<MixResult::single>;
  t[Op::v_fma_mixlo_f16] = fma_mix<MixResult::low_half>;
  t[Op::v_fma_mixhi_f16] = fma_mix<MixResult::high_half>;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
