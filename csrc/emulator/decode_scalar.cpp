// SOP1, SOP2, SOPC, SOPK and SOPP.
#include "emulator/encoding.h"

namespace mha_sink::emulator {
namespace {

Instruction decode_sopk(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::sopk, encoding.bits(27, 23));
  Instruction instruction = make_instruction(row, Format::sopk);
  instruction.simm = static_cast<int16_t>(encoding.bits(15, 0));
  // The one register field is the destination, or the only source of a compare and of s_setreg.
  unsigned field = encoding.bits(22, 16);
  if (row.op == Op::s_setreg_imm32_b32) {
    instruction.src[0] = source_operand(encoding, 255, OperandType::b32);
  } else if (row.sources) {
    instruction.src[0] = scalar_register(encoding, field, row.source[0]);
  } else {
    instruction.dst = scalar_register(encoding, field, row.destination);
  }
  return instruction;
}

Instruction decode_sop1(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::sop1, encoding.bits(15, 8));
  Instruction instruction = make_instruction(row, Format::sop1);
  if (row.destination != OperandType::none) {
    instruction.dst = scalar_register(encoding, encoding.bits(22, 16), row.destination);
  }
  instruction.src[0] = source_operand(encoding, encoding.bits(7, 0), row.source[0]);
  if (row.op == Op::s_getpc_b64) {
    instruction.src[0].kind = OperandKind::constant;
    instruction.src[0].dwords = 2;
    instruction.src[0].constant = encoding.pointer() + 4;
  }
  return instruction;
}

}  // namespace

Instruction decode_scalar(Encoding& encoding) {
  if (encoding.bits(31, 23) == 0b101111111) {
    const OpcodeRow& row = require_opcode(encoding, Format::sopp, encoding.bits(22, 16));
    Instruction instruction = make_instruction(row, Format::sopp);
    instruction.simm = static_cast<int16_t>(encoding.bits(15, 0));
    return instruction;
  }
  if (encoding.bits(31, 23) == 0b101111101) return decode_sop1(encoding);
  if (encoding.bits(31, 23) == 0b101111110) {
    const OpcodeRow& row = require_opcode(encoding, Format::sopc, encoding.bits(22, 16));
    Instruction instruction = make_instruction(row, Format::sopc);
    instruction.src[0] = source_operand(encoding, encoding.bits(7, 0), row.source[0]);
    instruction.src[1] = source_operand(encoding, encoding.bits(15, 8), row.source[1]);
    return instruction;
  }
  if (encoding.bits(31, 28) == 0b1011) return decode_sopk(encoding);

  const OpcodeRow& row = require_opcode(encoding, Format::sop2, encoding.bits(29, 23));
  Instruction instruction = make_instruction(row, Format::sop2);
  instruction.dst = scalar_register(encoding, encoding.bits(22, 16), row.destination);
  instruction.src[0] = source_operand(encoding, encoding.bits(7, 0), row.source[0]);
  instruction.src[1] = source_operand(encoding, encoding.bits(15, 8), row.source[1]);
  return instruction;
}

}  // namespace mha_sink::emulator
