// VOP1, VOP2, VOPC with their DPP forms, VOP3, VOP3P and the matrix instructions.
#include <string>

#include "emulator/encoding.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {
namespace {

constexpr unsigned kSdwa = 249, kDpp = 250, kLiteral = 255;

Operand implied_vcc(OperandType type) {
  Operand operand;
  operand.kind = OperandKind::sgpr;
  operand.index = kVcc;
  operand.dwords = dwords(type);
  return operand;
}

Sdwa::Part sdwa_part(Encoding& encoding, unsigned field) {
  if (field > static_cast<unsigned>(Sdwa::Part::dword)) encoding.fail("unknown SDWA select 7");
  return static_cast<Sdwa::Part>(field);
}

// The second word of the SDWA forms; returns src0.
Operand decode_sdwa(Encoding& encoding, const OpcodeRow& row, Instruction& instruction) {
  for (OperandType type : {row.destination, row.source[0], row.source[1]}) {
    if (dwords(type) > 1 && type != OperandType::mask) {
      encoding.fail(std::string(row.name) + " has 64-bit operands and no SDWA form");
    }
  }
  encoding.set_words(2);
  Sdwa& sdwa = instruction.sdwa;
  sdwa.used = true;
  if (row.format == Format::vopc) {
    if (encoding.bit(47)) {
      instruction.dst = scalar_register(encoding, encoding.bits(46, 40), row.destination);
    }
  } else {
    sdwa.dst = sdwa_part(encoding, encoding.bits(42, 40));
    unsigned rest = encoding.bits(44, 43);
    if (rest > static_cast<unsigned>(Sdwa::Rest::keep)) encoding.fail("unknown SDWA dst_unused 3");
    sdwa.rest = static_cast<Sdwa::Rest>(rest);
    instruction.clamp = encoding.bit(45);
    instruction.omod = static_cast<uint8_t>(encoding.bits(47, 46));
  }
  for (unsigned i = 0; i < 2; ++i) {
    unsigned low = 48 + 8 * i;
    sdwa.src[i] = sdwa_part(encoding, encoding.bits(low + 2, low));
    sdwa.sext |= static_cast<uint8_t>(encoding.bits(low + 3, low + 3) << i);
    instruction.neg |= static_cast<uint8_t>(encoding.bits(low + 4, low + 4) << i);
    instruction.abs |= static_cast<uint8_t>(encoding.bits(low + 5, low + 5) << i);
  }
  unsigned field = encoding.bits(39, 32);
  if (!encoding.bit(55)) return vector_register(field, row.source[0]);
  if (field == kLiteral) encoding.fail("an SDWA instruction takes no literal");
  return source_operand(encoding, field, row.source[0]);
}

// Src1 of VOP2 and VOPC: a vector register, or in SDWA forms a scalar operand.
Operand second_source(Encoding& encoding, const OpcodeRow& row, const Instruction& instruction) {
  unsigned field = encoding.bits(16, 9);
  if (!instruction.sdwa.used || !encoding.bit(63)) return vector_register(field, row.source[1]);
  if (field == kLiteral) encoding.fail("an SDWA instruction takes no literal");
  return source_operand(encoding, field, row.source[1]);
}

// Src0 of the 32-bit vector formats: an operand, or the one that a DPP or SDWA word names.
Operand first_source(Encoding& encoding, const OpcodeRow& row, Instruction& instruction) {
  unsigned field = encoding.bits(8, 0);
  if (field == kSdwa) return decode_sdwa(encoding, row, instruction);
  if (field != kDpp) return source_operand(encoding, field, row.source[0]);
  encoding.set_words(2);
  instruction.dpp = Dpp::dpp16;
  instruction.dpp_ctrl = static_cast<uint16_t>(encoding.bits(48, 40));
  instruction.bound_ctrl = encoding.bit(51);
  instruction.neg = static_cast<uint8_t>(encoding.bits(52, 52) | encoding.bits(54, 54) << 1);
  instruction.abs = static_cast<uint8_t>(encoding.bits(53, 53) | encoding.bits(55, 55) << 1);
  instruction.bank_mask = static_cast<uint8_t>(encoding.bits(59, 56));
  instruction.row_mask = static_cast<uint8_t>(encoding.bits(63, 60));
  return vector_register(encoding.bits(39, 32), row.source[0], row.source[0] == OperandType::acc);
}

Instruction decode_vop1(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::vop1, encoding.bits(16, 9));
  Instruction instruction = make_instruction(row, Format::vop1);
  if (row.destination == OperandType::none) return instruction;
  unsigned destination = encoding.bits(24, 17);
  instruction.dst =
      row.destination == OperandType::sgpr
          ? scalar_register(encoding, destination, row.destination)
          : vector_register(destination, row.destination, row.destination == OperandType::acc);
  instruction.src[0] = first_source(encoding, row, instruction);
  return instruction;
}

Instruction decode_vop2(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::vop2, encoding.bits(30, 25));
  Instruction instruction = make_instruction(row, Format::vop2);
  instruction.dst = vector_register(encoding.bits(24, 17), row.destination);
  if (row.carry_out) instruction.sdst = implied_vcc(OperandType::carry);
  instruction.src[0] = first_source(encoding, row, instruction);
  Operand second = second_source(encoding, row, instruction);
  if (row.op == Op::v_fmamk_f32 || row.op == Op::v_fmaak_f32) {
    // Both compute src0 * src1 + src2; the literal is the multiplier of one, the addend of the
    // other.
    Operand literal = source_operand(encoding, kLiteral, OperandType::f32);
    bool multiplier = row.op == Op::v_fmamk_f32;
    instruction.src[1] = multiplier ? literal : second;
    instruction.src[2] = multiplier ? second : literal;
    return instruction;
  }
  instruction.src[1] = second;
  if (row.source[2] == OperandType::mask) instruction.src[2] = implied_vcc(OperandType::mask);
  return instruction;
}

Instruction decode_vopc(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::vopc, encoding.bits(24, 17));
  Instruction instruction = make_instruction(row, Format::vopc);
  instruction.dst = implied_vcc(row.destination);
  instruction.src[0] = first_source(encoding, row, instruction);
  instruction.src[1] = second_source(encoding, row, instruction);
  return instruction;
}

Instruction decode_vop3(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::vop3, encoding.bits(25, 16));
  Instruction instruction = make_instruction(row, Format::vop3);
  encoding.set_words(2);
  unsigned destination = encoding.bits(7, 0);
  switch (row.destination) {
    case OperandType::none:
      break;
    case OperandType::sgpr:
    case OperandType::mask:
      instruction.dst = scalar_register(encoding, destination, row.destination);
      break;
    default:
      instruction.dst =
          vector_register(destination, row.destination, row.destination == OperandType::acc);
  }
  const unsigned low[] = {32, 41, 50};
  for (unsigned i = 0; i < row.sources; ++i) {
    unsigned field = encoding.bits(low[i] + 8, low[i]);
    if (field == kLiteral) encoding.fail("a VOP3 instruction takes no literal on gfx950");
    instruction.src[i] = source_operand(encoding, field, row.source[i]);
  }
  instruction.clamp = encoding.bit(15);
  if (row.carry_out) {
    instruction.sdst = scalar_register(encoding, encoding.bits(14, 8), OperandType::carry);
  } else {
    instruction.abs = static_cast<uint8_t>(encoding.bits(10, 8));
    instruction.op_sel = static_cast<uint8_t>(encoding.bits(14, 11));
  }
  instruction.omod = static_cast<uint8_t>(encoding.bits(60, 59));
  instruction.neg = static_cast<uint8_t>(encoding.bits(63, 61));

  if (row.op == Op::v_bitop3_b32 || row.op == Op::v_bitop3_b16) {
    instruction.simm = instruction.omod << 6 | instruction.abs << 3 | instruction.neg;
    instruction.omod = instruction.abs = instruction.neg = 0;
  } else if (row.op == Op::v_permlane16_swap_b32 || row.op == Op::v_permlane32_swap_b32) {
    // op_sel:0 is fi (fetch inactive lanes) and stays where it is.
    instruction.bound_ctrl = (instruction.op_sel & 2) != 0;
    instruction.op_sel &= 1;
  }
  return instruction;
}

Instruction decode_vop3p(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::vop3p, encoding.bits(22, 16));
  Instruction instruction = make_instruction(row, Format::vop3p);
  instruction.dst = vector_register(encoding.bits(7, 0), row.destination);
  const unsigned low[] = {32, 41, 50};
  for (unsigned i = 0; i < row.sources; ++i) {
    unsigned field = encoding.bits(low[i] + 8, low[i]);
    if (field == kLiteral) encoding.fail("a VOP3P instruction takes no literal on gfx950");
    instruction.src[i] = source_operand(encoding, field, row.source[i]);
  }
  instruction.neg_hi = static_cast<uint8_t>(encoding.bits(10, 8));
  instruction.op_sel = static_cast<uint8_t>(encoding.bits(13, 11));
  instruction.op_sel_hi = static_cast<uint8_t>(encoding.bits(60, 59) | encoding.bits(14, 14) << 2);
  instruction.clamp = encoding.bit(15);
  instruction.neg = static_cast<uint8_t>(encoding.bits(63, 61));
  return instruction;
}

// A and B carry one accumulation bit each, C and D share one.
Instruction decode_mai(Encoding& encoding, const OpcodeRow& row) {
  Instruction instruction = make_instruction(row, Format::mai);
  if (row.op == Op::v_accvgpr_read_b32 || row.op == Op::v_accvgpr_write_b32) {
    instruction.dst =
        vector_register(encoding.bits(7, 0), row.destination, row.destination == OperandType::acc);
    instruction.src[0] = source_operand(encoding, encoding.bits(40, 32), row.source[0]);
    if (row.source[0] == OperandType::acc && instruction.src[0].kind != OperandKind::agpr) {
      encoding.fail("v_accvgpr_read_b32 needs an accumulation register");
    }
    return instruction;
  }
  bool accumulation = encoding.bit(15);
  instruction.dst = vector_register(encoding.bits(7, 0), row.destination, accumulation);
  instruction.src[0] =
      source_operand(encoding, encoding.bits(40, 32), row.source[0], encoding.bit(59));
  instruction.src[1] =
      source_operand(encoding, encoding.bits(49, 41), row.source[1], encoding.bit(60));
  instruction.src[2] = source_operand(encoding, encoding.bits(58, 50), row.source[2], accumulation);
  for (int i = 0; i < 2; ++i) {
    OperandKind kind = instruction.src[i].kind;
    if (kind != OperandKind::vgpr && kind != OperandKind::agpr) {
      encoding.fail(std::string(row.name) + " needs vector registers for A and B");
    }
  }
  OperandKind kind = instruction.src[2].kind;
  if (kind == OperandKind::sgpr || kind == OperandKind::special ||
      encoding.bits(58, 50) == kLiteral) {
    encoding.fail(std::string(row.name) + " needs vector registers or an inline constant for C");
  }
  instruction.cbsz = static_cast<uint8_t>(encoding.bits(10, 8));
  instruction.abid = static_cast<uint8_t>(encoding.bits(14, 11));
  instruction.blgp = static_cast<uint8_t>(encoding.bits(63, 61));
  return instruction;
}

}  // namespace

Instruction decode_vector(Encoding& encoding) {
  if (encoding.bits(31, 25) == 0b0111111) return decode_vop1(encoding);
  if (encoding.bits(31, 25) == 0b0111110) return decode_vopc(encoding);
  if (!encoding.bit(31)) return decode_vop2(encoding);
  if (encoding.bits(31, 23) != 0b110100111) return decode_vop3(encoding);
  encoding.set_words(2);
  const OpcodeRow* row = find_opcode(Format::mai, encoding.bits(22, 16));
  return row ? decode_mai(encoding, *row) : decode_vop3p(encoding);
}

}  // namespace mha_sink::emulator
