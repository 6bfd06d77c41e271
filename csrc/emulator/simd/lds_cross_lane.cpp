// DS instructions that move data between lanes and touch no memory.
#include "emulator/simd/lds.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

void write_active(const Instruction& instruction, Wave& wave, const VectorRegister& result) {
  store_dword(instruction, wave, wave.exec(), result.lane);
}

// An inactive source lane reads as 0.
uint32_t read_lane(const uint32_t* data, uint64_t active, uint32_t lane) {
  return active >> lane & 1 ? data[lane] : 0;
}

// Addresses are bytes of a row of 64 dwords, and wrap.
uint32_t addressed_lane(const uint32_t* vaddr, int lane, int32_t offset) {
  return (vaddr[lane] + static_cast<uint32_t>(offset)) / 4 % kLanes;
}

void bpermute(const Instruction& instruction, Wave& wave) {
  const uint32_t* vaddr = vector_register(instruction, wave, instruction.src[0]);
  const uint32_t* data = vector_register(instruction, wave, instruction.src[1]);
  const uint64_t active = wave.exec();
  VectorRegister result;
  for (int lane = 0; lane < kLanes; ++lane) {
    result.lane[lane] = read_lane(data, active, addressed_lane(vaddr, lane, instruction.offset));
  }
  write_active(instruction, wave, result);
}

void permute(const Instruction& instruction, Wave& wave) {
  const uint32_t* vaddr = vector_register(instruction, wave, instruction.src[0]);
  const uint32_t* data = vector_register(instruction, wave, instruction.src[1]);
  VectorRegister result = {};
  for_each_lane(wave.exec(), [&](int lane) {
    result.lane[addressed_lane(vaddr, lane, instruction.offset)] = data[lane];
  });
  write_active(instruction, wave, result);
}

// The offset is the pattern (CDNA3 ISA, DS_SWIZZLE_B32). Groups of 32 lanes, or of 4 in quad mode.
void swizzle(const Instruction& instruction, Wave& wave) {
  const uint32_t pattern = static_cast<uint32_t>(instruction.offset);
  const bool quad = pattern >> 8 == 0x80, rotate = pattern >> 13 == 0b110;
  if (pattern >> 15 != 0 && !quad && !rotate) {
    unsupported(instruction, "this pattern (bit masks, quad permutations and rotations are known)");
  }
  const uint32_t* data = vector_register(instruction, wave, instruction.src[0]);
  const uint64_t active = wave.exec();
  VectorRegister result;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t in_row = lane % 32;
    uint32_t from;
    if (quad) {
      from = (in_row & ~3u) | (pattern >> 2 * (in_row & 3) & 3);
    } else if (rotate) {
      const uint32_t mask = pattern & 0x1f, count = pattern >> 5 & 0x1f;
      const uint32_t turned = pattern >> 10 & 1 ? in_row - count : in_row + count;
      from = (in_row & mask) | (turned & 0x1f & ~mask);
    } else {
      from = ((in_row & pattern) | (pattern >> 5 & 0x1f)) ^ (pattern >> 10 & 0x1f);
      from &= 0x1f;
    }
    result.lane[lane] = read_lane(data, active, (lane & 32) | from);
  }
  write_active(instruction, wave, result);
}

}  // namespace

void fill_lds_cross_lane(HandlerTable& table) {
  table[Op::ds_bpermute_b32] = bpermute;
  table[Op::ds_permute_b32] = permute;
  table[Op::ds_swizzle_b32] = swizzle;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
