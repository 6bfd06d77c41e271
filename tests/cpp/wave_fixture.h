// One wave with registers of its own, and instructions written by hand, for the tests of the
// emulator's vector families.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "emulator/opcode_table.h"
#include "emulator/simd/families.h"

namespace mha_sink::test {

using namespace mha_sink::emulator;

inline constexpr uint32_t kRegisters = 128;

struct TestWave {
  std::unique_ptr<VectorRegister[]> vgpr = std::make_unique<VectorRegister[]>(kRegisters);
  std::unique_ptr<VectorRegister[]> agpr = std::make_unique<VectorRegister[]>(kRegisters);
  Wave wave;

  TestWave() {
    wave.vgpr = vgpr.get();
    wave.agpr = agpr.get();
    wave.vgpr_count = wave.agpr_count = kRegisters;
    wave.write64(kExec, ~uint64_t{0});
  }

  // A wave in the same state, with registers of its own.
  TestWave(const TestWave& other) : wave(other.wave) {
    wave.vgpr = vgpr.get();
    wave.agpr = agpr.get();
    for (uint32_t i = 0; i < kRegisters; ++i) {
      vgpr[i] = other.vgpr[i];
      agpr[i] = other.agpr[i];
    }
  }

  uint32_t& v(uint32_t index, int lane) { return vgpr[index].lane[lane]; }
  float f(uint32_t index, int lane) { return std::bit_cast<float>(vgpr[index].lane[lane]); }
  void set(uint32_t index, int lane, float x) { v(index, lane) = std::bit_cast<uint32_t>(x); }
};

inline Operand vgpr(unsigned index, unsigned dwords = 1) {
  Operand operand;
  operand.kind = OperandKind::vgpr;
  operand.index = static_cast<uint16_t>(index);
  operand.dwords = static_cast<uint8_t>(dwords);
  return operand;
}

inline Operand agpr(unsigned index, unsigned dwords = 1) {
  Operand operand = vgpr(index, dwords);
  operand.kind = OperandKind::agpr;
  return operand;
}

inline Operand sgpr(unsigned index, unsigned dwords = 1) {
  Operand operand = vgpr(index, dwords);
  operand.kind = OperandKind::sgpr;
  return operand;
}

inline Operand constant(uint64_t bits) {
  Operand operand;
  operand.kind = OperandKind::constant;
  operand.constant = bits;
  return operand;
}

// Destination v[40..], sources v[8..], v[16..], v[24..], lane masks in SGPRs: as opcodes.inc says.
inline Instruction instruction_for(Op op) {
  const OpcodeRow& row = opcode_row(op);
  Instruction instruction;
  instruction.op = op;
  instruction.format = row.format;
  instruction.op_sel_hi = row.format == Format::vop3p ? 7 : 0;
  switch (row.destination) {
    case OperandType::none:
      break;
    case OperandType::sgpr:
      instruction.dst = sgpr(20);
      break;
    case OperandType::mask:
      instruction.dst = sgpr(kVcc, 2);
      break;
    case OperandType::acc:
      instruction.dst = agpr(40);
      break;
    default:
      instruction.dst = vgpr(40, dwords(row.destination));
  }
  if (row.carry_out) instruction.sdst = sgpr(30, 2);
  for (unsigned i = 0; i < row.sources; ++i) {
    const OperandType type = row.source[i];
    if (type == OperandType::mask) {
      instruction.src[i] = sgpr(kVcc, 2);
    } else if (type == OperandType::acc) {
      instruction.src[i] = agpr(8 + 8 * i);
    } else {
      instruction.src[i] = vgpr(8 + 8 * i, dwords(type));
    }
  }
  if (op == Op::v_readlane_b32 || op == Op::v_writelane_b32) instruction.src[1] = constant(37);
  if (op == Op::v_writelane_b32) instruction.src[0] = sgpr(12);
  return instruction;
}

inline void execute(const HandlerTable& table, const Instruction& instruction, TestWave& test) {
  const Handler handler = table.handler[static_cast<size_t>(instruction.op)];
  if (handler == nullptr) {
    expect(false, std::string(mnemonic(instruction.op)) + " has no handler");
    return;
  }
  handler(instruction, test.wave);
}

// Bits that hit the edges of every format: specials, small integers, and plain numbers.
inline uint32_t interesting_bits(std::mt19937& random) {
  static constexpr uint32_t kSpecial[] = {
      0u,          0x80000000u, 1u,          0x80000001u, 0x007fffffu, 0x00800000u, 0x3f800000u,
      0xbf800000u, 0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffc12345u,
      0x4f000000u, 0xcf000000u, 0x4f800000u, 0x7fffffffu, 0xffffffffu, 0x7fff8000u, 0x3c00bc00u,
      0x7c00fc00u, 0x7e007c01u, 0x00010001u, 0x03ff8400u, 0x43800000u, 0xc2fc0000u, 0x42ffffffu};
  switch (random() % 4) {
    case 0:
      return kSpecial[random() % std::size(kSpecial)];
    case 1:
      return random() % 200 - 100;
    case 2:
      return random();
    default:
      return std::bit_cast<uint32_t>(
          static_cast<float>(static_cast<int>(random() % 20001) - 10000) /
          static_cast<float>(1 + random() % 1000));
  }
}

inline void randomize(TestWave& test, std::mt19937& random) {
  for (uint32_t i = 0; i < kRegisters; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      test.vgpr[i].lane[lane] = interesting_bits(random);
      test.agpr[i].lane[lane] = interesting_bits(random);
    }
  }
  for (int i = 0; i < kVcc + 2; ++i) test.wave.sgpr[i] = interesting_bits(random);
}

inline std::vector<SimdLevel> supported_levels() {
  std::vector<SimdLevel> levels;
  for (SimdLevel level : {SimdLevel::baseline, SimdLevel::v3, SimdLevel::v4}) {
    if (supported(level)) levels.push_back(level);
  }
  return levels;
}

}  // namespace mha_sink::test
