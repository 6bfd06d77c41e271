// The rows of opcodes.inc as a table: by instruction, and by the opcode field of a format.
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/instruction.h"

namespace mha_sink::emulator {

// What opcodes.inc calls a type: how many registers, and how a constant is widened.
enum class OperandType : uint8_t {
  none,
  b16,
  bf16,
  f16,
  b32,
  f32,
  b64,
  i64,
  f64,
  pk_b16,
  pk_f16,
  pk_f32,
  b96,
  b128,
  b256,
  b512,
  b1024,
  mask,
  carry,
  sgpr,
  acc
};

uint8_t dwords(OperandType type);

struct OpcodeRow {
  std::string_view name;
  Op op = Op::count;
  Format format = Format::sopp;
  uint16_t opcode = 0;
  bool carry_out = false;  // a second destination: the lane mask of VOP3B
  uint8_t sources = 0;
  OperandType destination = OperandType::none;
  OperandType source[3] = {};
};

const OpcodeRow& opcode_row(Op op);

// The address space in FLAT bits 15:14.
enum class Segment : uint8_t { flat, scratch, global };

// Null when gfx950 has no such opcode or the emulator does not know it. VOP3 finds the rows of
// VOP1, VOP2 and VOPC too; `segment` matters to Format::flat only.
const OpcodeRow* find_opcode(Format format, unsigned opcode, Segment segment = Segment::flat);

}  // namespace mha_sink::emulator
