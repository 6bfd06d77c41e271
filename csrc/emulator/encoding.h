// The words of one encoded instruction, and its operand fields.
#pragma once

#include <cstdint>
#include <string_view>

#include "emulator/decoder.h"
#include "emulator/instruction.h"
#include "emulator/opcode_table.h"

namespace mha_sink::emulator {

class Encoding {
 public:
  Encoding(const Code& code, uint32_t offset) : code_(code), offset_(offset) {}

  // Bits of the first two words, numbered from 63 down to 0.
  uint32_t bits(unsigned high, unsigned low);
  bool bit(unsigned index) { return bits(index, index) != 0; }
  // The fixed size of the format; one word unless said otherwise.
  void set_words(unsigned words) { words_ = words; }
  // The 32-bit word after the fixed ones, counted into the instruction's size once.
  uint32_t literal();

  unsigned bytes() const { return 4 * (words_ + (literal_used_ ? 1 : 0)); }
  uint32_t address() const { return code_.address + offset_; }
  uint64_t pointer() const { return code_.pointer + offset_; }

  [[noreturn]] void fail(std::string_view what);

 private:
  uint32_t word(unsigned index);

  const Code& code_;
  uint32_t offset_;
  unsigned words_ = 1;
  bool literal_used_ = false;
};

// Operand fields. The 9-bit source field of vector instructions is the 8-bit scalar one below 256
// and a vector register from there on.
Operand scalar_register(Encoding& encoding, unsigned field, OperandType type);
Operand vector_register(unsigned index, OperandType type, bool accumulation = false);
Operand source_operand(Encoding& encoding, unsigned field, OperandType type,
                       bool accumulation = false);

// Each fills op, format and the operands of its formats.
Instruction decode_scalar(Encoding& encoding);
Instruction decode_vector(Encoding& encoding);
Instruction decode_memory(Encoding& encoding);

// The row of an opcode, or an EmulationError naming format and opcode.
const OpcodeRow& require_opcode(Encoding& encoding, Format format, unsigned opcode,
                                Segment segment = Segment::flat);
Instruction make_instruction(const OpcodeRow& row, Format format);

}  // namespace mha_sink::emulator
