// Instructions that move data between lanes or between lanes and scalar registers.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

void require_none(const Instruction& instruction) {
  require_modifiers(instruction, 0, 0, false);
  if (instruction.dpp != Dpp::none) unsupported(instruction, "DPP");
}

void write_scalar(const Instruction& instruction, Wave& wave, uint32_t value) {
  if (instruction.dst.kind != OperandKind::sgpr || instruction.dst.index >= 128) {
    unsupported(instruction, "a destination outside the scalar registers");
  }
  wave.sgpr[instruction.dst.index] = value;
}

// The lowest active lane; lane 0 when none is.
void read_first_lane(const Instruction& instruction, Wave& wave) {
  require_none(instruction);
  VectorRegister scratch;
  const uint32_t* source = source_dword(instruction, wave, 0, scratch);
  const uint64_t exec = wave.exec();
  write_scalar(instruction, wave, source[exec == 0 ? 0 : __builtin_ctzll(exec)]);
}

void read_lane(const Instruction& instruction, Wave& wave) {
  require_none(instruction);
  VectorRegister scratch;
  const uint32_t* source = source_dword(instruction, wave, 0, scratch);
  write_scalar(instruction, wave, source[scalar(instruction, wave, instruction.src[1]) & 63]);
}

// Whatever EXEC is.
void write_lane(const Instruction& instruction, Wave& wave) {
  require_none(instruction);
  const uint64_t lane = scalar(instruction, wave, instruction.src[1]) & 63;
  vector_register(instruction, wave, instruction.dst)[lane] =
      static_cast<uint32_t>(scalar(instruction, wave, instruction.src[0]));
}

void swap_registers(const Instruction& instruction, Wave& wave) {
  require_none(instruction);
  uint32_t* const a = vector_register(instruction, wave, instruction.dst);
  uint32_t* const b = vector_register(instruction, wave, instruction.src[0]);
  const VectorRegister old = *reinterpret_cast<const VectorRegister*>(a);
  store_masked(wave.exec(), b, a);
  store_masked(wave.exec(), old.lane, b);
}

// Swaps the upper `width` lanes of each 2 * width of vdst with the lower of src0; EXEC is ignored.
template <int width>
void permlane_swap(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 0, 1, false);
  if ((instruction.bound_ctrl || instruction.op_sel != 0) && wave.exec() != kAllLanes) {
    unsupported(instruction, "fi or bound_ctrl with inactive lanes");
  }
  uint32_t* const a = vector_register(instruction, wave, instruction.dst);
  uint32_t* const b = vector_register(instruction, wave, instruction.src[0]);
  for (int base = 0; base < kLanes; base += 2 * width) {
    uint32_t upper[width], lower[width];
    for (int i = 0; i < width; ++i) upper[i] = a[base + width + i];
    for (int i = 0; i < width; ++i) lower[i] = b[base + i];
    for (int i = 0; i < width; ++i) a[base + width + i] = lower[i];
    for (int i = 0; i < width; ++i) b[base + i] = upper[i];
  }
}

// Bits of the mask below this lane, counted among lanes 0..31 or 32..63, plus the second source.
template <bool high>
void count_lower_lanes(const Instruction& instruction, Wave& wave) {
  require_none(instruction);
  VectorRegister scratch[2], result;
  const uint32_t* mask = source_dword(instruction, wave, 0, scratch[0]);
  const uint32_t* addend = source_dword(instruction, wave, 1, scratch[1]);
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t below = (uint64_t{1} << lane) - 1;
    const uint32_t counted = mask[lane] & static_cast<uint32_t>(high ? below >> 32 : below);
    result.lane[lane] = addend[lane] + static_cast<uint32_t>(__builtin_popcount(counted));
  }
  store_dword(instruction, wave, wave.exec(), result.lane);
}

}  // namespace

void fill_valu_cross_lane(HandlerTable& t) {
  t[Op::v_nop] = [](const Instruction&, Wave&) {};
  t[Op::v_readfirstlane_b32] = read_first_lane;
  t[Op::v_readlane_b32] = read_lane;
  t[Op::v_writelane_b32] = write_lane;
  t[Op::v_swap_b32] = swap_registers;
  t[Op::v_permlane16_swap_b32] = permlane_swap<16>;
  t[Op::v_permlane32_swap_b32] = permlane_swap<32>;
  t[Op::v_mbcnt_lo_u32_b32] = count_lower_lanes<false>;
  t[Op::v_mbcnt_hi_u32_b32] = count_lower_lanes<true>;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
