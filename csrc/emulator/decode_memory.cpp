// SMEM, DS, MUBUF and FLAT (with global and scratch).
#include <string>

#include "emulator/encoding.h"

namespace mha_sink::emulator {
namespace {

int32_t sign_extend(uint32_t value, unsigned bits) {
  return static_cast<int32_t>(value << (32 - bits)) >> (32 - bits);
}

bool is_atomic(const OpcodeRow& row) { return row.name.find("_atomic_") != row.name.npos; }

Instruction decode_smem(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::smem, encoding.bits(25, 18));
  Instruction instruction = make_instruction(row, Format::smem);
  if (row.destination == OperandType::none) return instruction;
  instruction.dst = scalar_register(encoding, encoding.bits(12, 6), row.destination);
  if (!row.sources) return instruction;
  // The field counts pairs of registers.
  instruction.src[0] = scalar_register(encoding, 2 * encoding.bits(5, 0), row.source[0]);
  instruction.sc0 = encoding.bit(16);
  bool immediate = encoding.bit(17), register_offset = encoding.bit(14);
  if (immediate) instruction.offset = sign_extend(encoding.bits(52, 32), 21);
  if (register_offset) {
    instruction.soffset = scalar_register(encoding, encoding.bits(63, 57), OperandType::b32);
  } else if (!immediate) {
    instruction.soffset = scalar_register(encoding, encoding.bits(38, 32), OperandType::b32);
  }
  return instruction;
}

Instruction decode_ds(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::ds, encoding.bits(24, 17));
  Instruction instruction = make_instruction(row, Format::ds);
  if (encoding.bit(16)) encoding.fail("gfx950 has no global data share");
  bool accumulation = encoding.bit(25);
  instruction.offset = static_cast<int32_t>(encoding.bits(15, 0));
  if (row.destination != OperandType::none) {
    instruction.dst = vector_register(encoding.bits(63, 56), row.destination, accumulation);
  }
  instruction.src[0] = vector_register(encoding.bits(39, 32), row.source[0]);
  if (row.sources > 1) {
    instruction.src[1] = vector_register(encoding.bits(47, 40), row.source[1], accumulation);
  }
  if (row.sources > 2) {
    instruction.src[2] = vector_register(encoding.bits(55, 48), row.source[2], accumulation);
  }
  return instruction;
}

Instruction decode_mubuf(Encoding& encoding) {
  const OpcodeRow& row = require_opcode(encoding, Format::mubuf, encoding.bits(24, 18));
  Instruction instruction = make_instruction(row, Format::mubuf);
  instruction.sc0 = encoding.bit(14);
  instruction.sc1 = encoding.bit(15);
  instruction.nt = encoding.bit(17);
  if (row.destination == OperandType::none && !row.sources) return instruction;

  instruction.offset = static_cast<int32_t>(encoding.bits(11, 0));
  instruction.offen = encoding.bit(12);
  instruction.idxen = encoding.bit(13);
  instruction.lds = encoding.bit(16);
  bool accumulation = encoding.bit(55), atomic = is_atomic(row);
  unsigned data = encoding.bits(47, 40);
  if (instruction.lds && (atomic || row.sources)) {
    encoding.fail(std::string(row.name) + " has no form that moves data to LDS");
  }
  if (!instruction.lds && row.destination != OperandType::none && (!atomic || instruction.sc0)) {
    instruction.dst = vector_register(data, row.destination, accumulation);
  }
  if (instruction.offen || instruction.idxen) {
    bool both = instruction.offen && instruction.idxen;
    instruction.src[0] =
        vector_register(encoding.bits(39, 32), both ? OperandType::b64 : OperandType::b32);
  }
  if (row.sources) instruction.src[1] = vector_register(data, row.source[0], accumulation);
  // The field counts groups of four registers.
  instruction.src[2] = scalar_register(encoding, 4 * encoding.bits(52, 48), OperandType::b128);
  instruction.soffset = source_operand(encoding, encoding.bits(63, 56), OperandType::b32);
  return instruction;
}

Instruction decode_flat(Encoding& encoding) {
  unsigned space = encoding.bits(15, 14);
  if (space > static_cast<unsigned>(Segment::global)) {
    encoding.fail("unknown address space 3 of a FLAT instruction");
  }
  auto segment = static_cast<Segment>(space);
  const OpcodeRow& row = require_opcode(encoding, Format::flat, encoding.bits(24, 18), segment);
  Instruction instruction = make_instruction(row, Format::flat);
  instruction.sc0 = encoding.bit(16);
  instruction.nt = encoding.bit(17);
  instruction.sc1 = encoding.bit(25);
  instruction.offset = segment == Segment::flat ? static_cast<int32_t>(encoding.bits(11, 0))
                                                : sign_extend(encoding.bits(12, 0), 13);
  instruction.lds = row.name.find("_lds_") != row.name.npos;

  constexpr unsigned kOff = 0x7f;
  unsigned saddr = encoding.bits(54, 48), vaddr = encoding.bits(39, 32);
  bool has_saddr = segment != Segment::flat && saddr != kOff;
  if (segment == Segment::scratch) {
    if (encoding.bit(13)) instruction.src[0] = vector_register(vaddr, OperandType::b32);
  } else {
    instruction.src[0] = vector_register(vaddr, has_saddr ? OperandType::b32 : OperandType::b64);
  }
  if (has_saddr) {
    instruction.src[2] = scalar_register(
        encoding, saddr, segment == Segment::scratch ? OperandType::b32 : OperandType::b64);
  }
  bool accumulation = encoding.bit(55);
  if (row.destination != OperandType::none && (!is_atomic(row) || instruction.sc0)) {
    instruction.dst = vector_register(encoding.bits(63, 56), row.destination, accumulation);
  }
  if (row.sources) {
    instruction.src[1] = vector_register(encoding.bits(47, 40), row.source[0], accumulation);
  }
  return instruction;
}

}  // namespace

Instruction decode_memory(Encoding& encoding) {
  encoding.set_words(2);
  switch (encoding.bits(31, 26)) {
    case 0b110000:
      return decode_smem(encoding);
    case 0b110110:
      return decode_ds(encoding);
    case 0b110111:
      return decode_flat(encoding);
    case 0b111000:
      return decode_mubuf(encoding);
    default:
      encoding.fail("unknown instruction format");
  }
}

}  // namespace mha_sink::emulator
