#include "emulator/opcode_table.h"

#include <array>
#include <initializer_list>

namespace mha_sink::emulator {
namespace {

constexpr size_t kOpcodes = static_cast<size_t>(Op::count);
constexpr size_t kFormats = static_cast<size_t>(Format::flat) + 1;
constexpr size_t kMaxOpcode = 1024;     // VOP3 has the widest opcode field: 10 bits
constexpr size_t kSegmentStride = 128;  // FLAT has 7 bits; the segments follow each other
constexpr unsigned kVop2InVop3 = 0x100, kVop1InVop3 = 0x140;

constexpr OpcodeRow make_row(Format format, uint16_t opcode, Op op, std::string_view name,
                             std::initializer_list<OperandType> types) {
  OpcodeRow row;
  row.name = name;
  row.op = op;
  row.format = format;
  row.opcode = opcode;
  bool first = true;
  for (OperandType type : types) {
    if (first) {
      row.destination = type;
    } else if (type == OperandType::carry) {
      row.carry_out = true;
    } else {
      row.source[row.sources++] = type;
    }
    first = false;
  }
  return row;
}

using enum OperandType;
constexpr std::array<OpcodeRow, kOpcodes> kRows = {
#define MHA_SINK_OP(format, opcode, name, ...) \
  make_row(Format::format, opcode, Op::name, #name, {__VA_ARGS__}),
#include "emulator/opcodes.inc"
#undef MHA_SINK_OP
};

constexpr size_t slot(const OpcodeRow& row) {
  if (row.format != Format::flat) return row.opcode;
  if (row.name.starts_with("scratch_")) return kSegmentStride + row.opcode;
  if (row.name.starts_with("global_")) return 2 * kSegmentStride + row.opcode;
  return row.opcode;
}

using Index = std::array<std::array<uint16_t, kMaxOpcode>, kFormats>;

// Position in kRows plus one; zero where there is no instruction.
Index make_index() {
  Index index{};
  auto vop3 = static_cast<size_t>(Format::vop3);
  for (size_t i = 0; i < kRows.size(); ++i) {
    const OpcodeRow& row = kRows[i];
    auto entry = static_cast<uint16_t>(i + 1);
    index[static_cast<size_t>(row.format)][slot(row)] = entry;
    if (row.format == Format::vopc) index[vop3][row.opcode] = entry;
    if (row.format == Format::vop2) index[vop3][kVop2InVop3 + row.opcode] = entry;
    if (row.format == Format::vop1) index[vop3][kVop1InVop3 + row.opcode] = entry;
  }
  // These two carry a 32-bit literal in VOP2 and have no VOP3 form.
  for (Op op : {Op::v_fmamk_f32, Op::v_fmaak_f32}) {
    index[vop3][kVop2InVop3 + opcode_row(op).opcode] = 0;
  }
  return index;
}

}  // namespace

uint8_t dwords(OperandType type) {
  switch (type) {
    case none:
      return 0;
    case b64:
    case i64:
    case f64:
    case pk_f32:
    case mask:
    case carry:
      return 2;
    case b96:
      return 3;
    case b128:
      return 4;
    case b256:
      return 8;
    case b512:
      return 16;
    case b1024:
      return 32;
    default:
      return 1;
  }
}

const OpcodeRow& opcode_row(Op op) { return kRows[static_cast<size_t>(op)]; }

const OpcodeRow* find_opcode(Format format, unsigned opcode, Segment segment) {
  static const Index index = make_index();
  if (format == Format::flat) opcode += kSegmentStride * static_cast<unsigned>(segment);
  if (opcode >= kMaxOpcode) return nullptr;
  uint16_t entry = index[static_cast<size_t>(format)][opcode];
  return entry ? &kRows[entry - 1] : nullptr;
}

}  // namespace mha_sink::emulator
