#include "emulator/encoding.h"

#include <cstring>
#include <string>

#include "emulator/error.h"
#include "emulator/hex.h"

namespace mha_sink::emulator {
namespace {

// Field values of the ISA's scalar operand numbering.
constexpr unsigned kLastRegister = 127, kZero = 128, kLastPositive = 192, kLastNegative = 208;
constexpr unsigned kFirstAperture = 235, kLastAperture = 238;
constexpr unsigned kFirstFloat = 240, kLastFloat = 248;
constexpr unsigned kVccz = 251, kScc = 253, kLiteral = 255;

// 0.5, -0.5, 1, -1, 2, -2, 4, -4 and 1/(2 pi) by type.
constexpr uint64_t kFloat16[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                                 0xc000, 0x4400, 0xc400, 0x3118};
constexpr uint64_t kFloat32[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                 0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
constexpr uint64_t kFloat64[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                 0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                 0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

uint64_t float_constant(unsigned field, OperandType type) {
  unsigned index = field - kFirstFloat;
  switch (type) {
    case OperandType::b16:
    case OperandType::f16:
    case OperandType::pk_f16:
      return kFloat16[index];
    case OperandType::bf16:
      return kFloat32[index] >> 16;
    case OperandType::b64:
    case OperandType::i64:
    case OperandType::f64:
    case OperandType::mask:
      return kFloat64[index];
    default:
      return kFloat32[index];
  }
}

// A 32-bit literal is the high half of a double; an unsigned or untyped 64-bit operand is
// zero-extended (CDNA3 ISA, "Literal constants").
uint64_t literal_constant(uint32_t literal, OperandType type) {
  switch (type) {
    case OperandType::b16:
    case OperandType::bf16:
    case OperandType::f16:
      return literal & 0xffff;
    case OperandType::f64:
      return uint64_t{literal} << 32;
    case OperandType::i64:
      return static_cast<uint64_t>(int64_t{static_cast<int32_t>(literal)});
    default:
      return literal;
  }
}

Operand scalar_source(Encoding& encoding, unsigned field, OperandType type) {
  if (field <= kLastRegister) return scalar_register(encoding, field, type);
  Operand operand;
  operand.dwords = dwords(type);
  operand.kind = OperandKind::constant;
  if (field <= kLastPositive) {
    operand.constant = field - kZero;
  } else if (field <= kLastNegative) {
    operand.constant = static_cast<uint64_t>(-static_cast<int64_t>(field - kLastPositive));
  } else if (field >= kFirstFloat && field <= kLastFloat) {
    operand.constant = float_constant(field, type);
  } else if (field >= kVccz && field <= kScc) {
    operand.kind = OperandKind::special;
    operand.index = static_cast<uint16_t>(field);
  } else if (field == kLiteral) {
    operand.constant = literal_constant(encoding.literal(), type);
  } else if (field >= kFirstAperture && field <= kLastAperture) {
    static const char* const kNames[] = {"src_shared_base", "src_shared_limit", "src_private_base",
                                         "src_private_limit"};
    encoding.fail(std::string("the aperture operand ") + kNames[field - kFirstAperture] +
                  " is not supported: generic pointers are global pointers here");
  } else {
    encoding.fail("unknown source operand " + std::to_string(field));
  }
  return operand;
}

}  // namespace

uint32_t Encoding::word(unsigned index) {
  uint64_t begin = uint64_t{offset_} + 4 * index;
  if (begin + 4 > code_.bytes.size()) {
    throw EmulationError("the code ends inside the instruction at " + hex(address(), 4) +
                         source_suffix(code_.lines, address()));
  }
  uint32_t value;
  std::memcpy(&value, code_.bytes.data() + begin, 4);
  return value;
}

uint32_t Encoding::bits(unsigned high, unsigned low) {
  unsigned index = low / 32;
  uint32_t value = word(index) >> (low % 32);
  unsigned width = high - low + 1;
  return width == 32 ? value : value & ((1u << width) - 1);
}

uint32_t Encoding::literal() {
  literal_used_ = true;
  return word(words_);
}

void Encoding::fail(std::string_view what) {
  std::string text = "cannot decode the instruction at " + hex(address(), 4) +
                     source_suffix(code_.lines, address()) + " (encoding";
  for (unsigned i = 0; i < 2 && uint64_t{offset_} + 4 * (i + 1) <= code_.bytes.size(); ++i) {
    text += " " + hex(word(i), 8);
  }
  throw EmulationError(text + "): " + std::string(what));
}

Operand scalar_register(Encoding& encoding, unsigned field, OperandType type) {
  Operand operand;
  operand.kind = OperandKind::sgpr;
  operand.index = static_cast<uint16_t>(field);
  operand.dwords = dwords(type);
  if (field + operand.dwords > kLastRegister + 1) {
    encoding.fail("s" + std::to_string(field) + " begins " + std::to_string(operand.dwords) +
                  " scalar registers, past the last one");
  }
  return operand;
}

Operand vector_register(unsigned index, OperandType type, bool accumulation) {
  Operand operand;
  operand.kind = accumulation ? OperandKind::agpr : OperandKind::vgpr;
  operand.index = static_cast<uint16_t>(index);
  operand.dwords = dwords(type);
  return operand;
}

Operand source_operand(Encoding& encoding, unsigned field, OperandType type, bool accumulation) {
  if (type == OperandType::none) return {};
  if (field < 256) return scalar_source(encoding, field, type);
  return vector_register(field - 256, type, accumulation || type == OperandType::acc);
}

const OpcodeRow& require_opcode(Encoding& encoding, Format format, unsigned opcode,
                                Segment segment) {
  static const char* const kNames[] = {"SOP1",  "SOP2", "SOPC", "SOPK",  "SOPP",
                                       "SMEM",  "VOP1", "VOP2", "VOPC",  "VOP3",
                                       "VOP3P", "MAI",  "DS",   "MUBUF", "FLAT"};
  const OpcodeRow* row = find_opcode(format, opcode, segment);
  if (!row) {
    encoding.fail("unknown " + std::string(kNames[static_cast<size_t>(format)]) + " opcode " +
                  hex(opcode, 2));
  }
  return *row;
}

Instruction make_instruction(const OpcodeRow& row, Format format) {
  Instruction instruction;
  instruction.op = row.op;
  instruction.format = format;
  return instruction;
}

}  // namespace mha_sink::emulator
