#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/opcode_table.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[96];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string register_range(const char* prefix, unsigned index, unsigned dwords) {
  if (dwords <= 1) return format("%s%u", prefix, index);
  return format("%s[%u:%u]", prefix, index, index + dwords - 1);
}

std::string scalar_name(unsigned index, unsigned dwords) {
  struct Pair {
    unsigned index;
    const char* name;
  };
  static constexpr Pair kPairs[] = {
      {102, "flat_scratch"}, {104, "xnack_mask"}, {106, "vcc"}, {126, "exec"}};
  for (const Pair& pair : kPairs) {
    if (index == pair.index && dwords == 2) return pair.name;
    if ((index & ~1u) == pair.index && dwords == 1) {
      return std::string(pair.name) + (index & 1 ? "_hi" : "_lo");
    }
  }
  if (index == static_cast<unsigned>(kM0)) return "m0";
  constexpr unsigned kFirstTrap = 108;
  if (index >= kFirstTrap) return register_range("ttmp", index - kFirstTrap, dwords);
  return register_range("s", index, dwords);
}

struct NamedFloat {
  uint64_t bits;
  const char* text;
};

std::string constant_text(uint64_t bits, OperandType type) {
  static constexpr NamedFloat kHalf[] = {
      {0x3800, "0.5"},  {0xb800, "-0.5"}, {0x3c00, "1.0"},  {0xbc00, "-1.0"},      {0x4000, "2.0"},
      {0xc000, "-2.0"}, {0x4400, "4.0"},  {0xc400, "-4.0"}, {0x3118, "0.15915494"}};
  static constexpr NamedFloat kBfloat[] = {
      {0x3f00, "0.5"},  {0xbf00, "-0.5"}, {0x3f80, "1.0"},  {0xbf80, "-1.0"},      {0x4000, "2.0"},
      {0xc000, "-2.0"}, {0x4080, "4.0"},  {0xc080, "-4.0"}, {0x3e22, "0.15915494"}};
  static constexpr NamedFloat kSingle[] = {
      {0x3f000000, "0.5"},  {0xbf000000, "-0.5"}, {0x3f800000, "1.0"},
      {0xbf800000, "-1.0"}, {0x40000000, "2.0"},  {0xc0000000, "-2.0"},
      {0x40800000, "4.0"},  {0xc0800000, "-4.0"}, {0x3e22f983, "0.15915494"}};
  static constexpr NamedFloat kDouble[] = {{0x3fe0000000000000, "0.5"},
                                           {0xbfe0000000000000, "-0.5"},
                                           {0x3ff0000000000000, "1.0"},
                                           {0xbff0000000000000, "-1.0"},
                                           {0x4000000000000000, "2.0"},
                                           {0xc000000000000000, "-2.0"},
                                           {0x4010000000000000, "4.0"},
                                           {0xc010000000000000, "-4.0"},
                                           {0x3fc45f306dc9c882, "0.15915494309189532"}};
  auto number = static_cast<int64_t>(bits);
  if (number >= -16 && number <= 64) return std::to_string(number);
  const NamedFloat(*names)[9] = &kSingle;
  switch (type) {
    case OperandType::b16:
    case OperandType::f16:
    case OperandType::pk_f16:
      names = &kHalf;
      break;
    case OperandType::bf16:
      names = &kBfloat;
      break;
    case OperandType::b64:
    case OperandType::i64:
    case OperandType::f64:
    case OperandType::mask:
      names = &kDouble;
      break;
    default:
      break;
  }
  for (const NamedFloat& named : *names) {
    if (named.bits == bits) return named.text;
  }
  if (type == OperandType::f64) bits >>= 32;  // a literal is the high half
  return format("0x%llx", static_cast<unsigned long long>(bits));
}

std::string operand_text(const Operand& operand, OperandType type) {
  switch (operand.kind) {
    case OperandKind::none:
      return "off";
    case OperandKind::sgpr:
      return scalar_name(operand.index, operand.dwords);
    case OperandKind::vgpr:
      return register_range("v", operand.index, operand.dwords);
    case OperandKind::agpr:
      return register_range("a", operand.index, operand.dwords);
    case OperandKind::constant:
      return constant_text(operand.constant, type);
    case OperandKind::special:
      return operand.index == 251 ? "src_vccz" : operand.index == 252 ? "src_execz" : "src_scc";
  }
  return "?";
}

// Mnemonic, then operands joined by commas, then modifiers joined by spaces.
class Line {
 public:
  explicit Line(std::string mnemonic) : text_(std::move(mnemonic)) {}
  void operand(const std::string& operand) {
    text_ += (any_ ? ", " : " ") + operand;
    any_ = true;
  }
  void modifier(const std::string& modifier) { text_ += " " + modifier; }
  void modifier_if(bool set, const char* name) {
    if (set) modifier(name);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool any_ = false;
};

std::string bit_list(const char* name, unsigned bits, unsigned count) {
  std::string text = std::string(name) + ":[";
  for (unsigned i = 0; i < count; ++i) text += (i ? "," : "") + std::to_string(bits >> i & 1);
  return text + "]";
}

std::string dpp_control(unsigned control) {
  if (control <= 0xff) {
    return format("quad_perm:[%u,%u,%u,%u]", control & 3, control >> 2 & 3, control >> 4 & 3,
                  control >> 6 & 3);
  }
  switch (control) {
    case 0x130:
      return "wave_shl:1";
    case 0x134:
      return "wave_rol:1";
    case 0x138:
      return "wave_shr:1";
    case 0x13c:
      return "wave_ror:1";
    case 0x140:
      return "row_mirror";
    case 0x141:
      return "row_half_mirror";
    case 0x142:
      return "row_bcast:15";
    case 0x143:
      return "row_bcast:31";
    default:
      break;
  }
  static const char* const kRows[] = {"row_shl", "row_shr", "row_ror"};
  if (control <= 0x12f && (control & 0xf)) {
    return format("%s:%u", kRows[(control >> 4) & 3], control & 0xf);
  }
  if (control >= 0x150 && control <= 0x15f) return format("row_newbcast:%u", control & 0xf);
  return format("dpp_ctrl:0x%x", control);
}

void sopp_operands(Line& line, const Instruction& i) {
  unsigned immediate = static_cast<uint16_t>(i.simm);
  switch (i.op) {
    case Op::s_waitcnt: {
      unsigned vmcnt = (immediate & 0xf) | (immediate >> 14 << 4);
      unsigned expcnt = immediate >> 4 & 7, lgkmcnt = immediate >> 8 & 0xf;
      // A counter at its maximum waits for nothing and is left out, unless all are.
      const bool all = vmcnt == 63 && expcnt == 7 && lgkmcnt == 15;
      if (all || vmcnt != 63) line.modifier(format("vmcnt(%u)", vmcnt));
      if (all || expcnt != 7) line.modifier(format("expcnt(%u)", expcnt));
      if (all || lgkmcnt != 15) line.modifier(format("lgkmcnt(%u)", lgkmcnt));
      return;
    }
    case Op::s_barrier:
    case Op::s_wakeup:
    case Op::s_icache_inv:
      return;
    case Op::s_endpgm:
      if (immediate == 0) return;
      break;
    case Op::s_branch:
    case Op::s_cbranch_scc0:
    case Op::s_cbranch_scc1:
    case Op::s_cbranch_vccz:
    case Op::s_cbranch_vccnz:
    case Op::s_cbranch_execz:
    case Op::s_cbranch_execnz:
      line.operand(format("0x%x", i.address + 4 + 4 * static_cast<unsigned>(i.simm)));
      return;
    default:
      break;
  }
  line.operand(std::to_string(immediate));
}

void sopk_operands(Line& line, const Instruction& i) {
  auto immediate = static_cast<uint16_t>(i.simm);
  std::string hardware_register = format("hwreg(%u, %u, %u)", immediate & 0x3fu,
                                         immediate >> 6 & 0x1fu, (immediate >> 11 & 0x1fu) + 1);
  switch (i.op) {
    case Op::s_getreg_b32:
      line.operand(operand_text(i.dst, OperandType::b32));
      line.operand(hardware_register);
      return;
    case Op::s_setreg_b32:
    case Op::s_setreg_imm32_b32:
      line.operand(hardware_register);
      line.operand(operand_text(i.src[0], OperandType::b32));
      return;
    default:
      line.operand(
          operand_text(i.dst.kind == OperandKind::none ? i.src[0] : i.dst, OperandType::b32));
      line.operand(format("0x%x", immediate));
  }
}

void source_operands(Line& line, const Instruction& i, const OpcodeRow& row) {
  bool packed = i.format == Format::vop3p;
  for (unsigned s = 0; s < row.sources; ++s) {
    // The constant of these two is a literal even where an inline constant has its value.
    bool literal = (i.op == Op::v_fmamk_f32 && s == 1) || (i.op == Op::v_fmaak_f32 && s == 2);
    std::string text = literal ? format("0x%x", static_cast<uint32_t>(i.src[s].constant))
                               : operand_text(i.src[s], row.source[s]);
    if (!packed && (i.abs >> s & 1)) text = "|" + text + "|";
    if (!packed && (i.neg >> s & 1)) text = "-" + text;
    if (i.sdwa.sext >> s & 1) text = "sext(" + text + ")";
    line.operand(text);
  }
}

void sdwa_modifiers(Line& line, const Instruction& i, const OpcodeRow& row) {
  static const char* const kParts[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                       "WORD_0", "WORD_1", "DWORD"};
  static const char* const kRests[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};
  auto part = [](Sdwa::Part selected) { return kParts[static_cast<size_t>(selected)]; };
  if (i.format != Format::vopc) {
    line.modifier(format("dst_sel:%s", part(i.sdwa.dst)));
    line.modifier(format("dst_unused:%s", kRests[static_cast<size_t>(i.sdwa.rest)]));
  }
  line.modifier(format("src0_sel:%s", part(i.sdwa.src[0])));
  if (row.sources > 1) line.modifier(format("src1_sel:%s", part(i.sdwa.src[1])));
}

void vector_modifiers(Line& line, const Instruction& i, const OpcodeRow& row) {
  if (row.name.starts_with("v_permlane")) {
    line.modifier_if(i.bound_ctrl, "bound_ctrl:1");
    line.modifier_if(i.op_sel != 0, "fi:1");
    return;
  }
  // Dot products of bytes and nibbles have no halves to select.
  const bool halves = !row.name.starts_with("v_dot4") && !row.name.starts_with("v_dot8");
  if (i.format == Format::vop3p) {
    unsigned all = (1u << row.sources) - 1;
    bool mix = row.name.starts_with("v_fma_mix");
    if (halves && (i.op_sel & all)) line.modifier(bit_list("op_sel", i.op_sel, row.sources));
    if (halves && (i.op_sel_hi & all) != (mix ? 0 : all)) {
      line.modifier(bit_list("op_sel_hi", i.op_sel_hi, row.sources));
    }
    if (i.neg & all) line.modifier(bit_list("neg_lo", i.neg, row.sources));
    if (i.neg_hi & all) line.modifier(bit_list("neg_hi", i.neg_hi, row.sources));
  } else if (i.op_sel) {
    unsigned bits = (i.op_sel & ((1u << row.sources) - 1)) | (i.op_sel >> 3 << row.sources);
    line.modifier(bit_list("op_sel", bits, row.sources + 1));
  }
  if (i.simm) {  // v_bitop3
    line.modifier(format("bitop3:0x%x", static_cast<unsigned>(i.simm)));
  }
  line.modifier_if(i.clamp, "clamp");
  static const char* const kOutputModifiers[] = {"", "mul:2", "mul:4", "div:2"};
  line.modifier_if(i.omod != 0, kOutputModifiers[i.omod & 3]);
  if (i.sdwa.used) sdwa_modifiers(line, i, row);
  if (i.cbsz) line.modifier(format("cbsz:%u", i.cbsz));
  if (i.abid) line.modifier(format("abid:%u", i.abid));
  if (i.blgp) line.modifier(format("blgp:%u", i.blgp));
  if (i.dpp == Dpp::dpp16) {
    line.modifier(dpp_control(i.dpp_ctrl));
    line.modifier(format("row_mask:0x%x", i.row_mask));
    line.modifier(format("bank_mask:0x%x", i.bank_mask));
  }
  line.modifier_if(i.bound_ctrl, "bound_ctrl:1");
}

void cache_modifiers(Line& line, const Instruction& i) {
  line.modifier_if(i.sc0, "sc0");
  line.modifier_if(i.nt, "nt");
  line.modifier_if(i.sc1, "sc1");
}

void ds_operands(Line& line, const Instruction& i, const OpcodeRow& row) {
  if (i.dst.kind != OperandKind::none) line.operand(operand_text(i.dst, row.destination));
  source_operands(line, i, row);
  if (row.name.starts_with("ds_read2") || row.name.starts_with("ds_write2")) {
    if (i.offset & 0xff) line.modifier(format("offset0:%d", i.offset & 0xff));
    if (i.offset >> 8) line.modifier(format("offset1:%d", i.offset >> 8));
  } else if (i.offset) {
    line.modifier(format("offset:%d", i.offset));
  }
}

void mubuf_operands(Line& line, const Instruction& i, const OpcodeRow& row) {
  if (i.src[2].kind != OperandKind::none) {
    const Operand& data = i.src[1].kind != OperandKind::none ? i.src[1] : i.dst;
    if (!i.lds) line.operand(operand_text(data, row.destination));
    line.operand(operand_text(i.src[0], OperandType::b32));
    line.operand(operand_text(i.src[2], OperandType::b128));
    line.operand(operand_text(i.soffset, OperandType::b32));
    line.modifier_if(i.idxen, "idxen");
    line.modifier_if(i.offen, "offen");
    if (i.offset) line.modifier(format("offset:%d", i.offset));
  }
  cache_modifiers(line, i);
  line.modifier_if(i.lds, "lds");
}

void flat_operands(Line& line, const Instruction& i, const OpcodeRow& row) {
  if (i.dst.kind != OperandKind::none) line.operand(operand_text(i.dst, row.destination));
  line.operand(operand_text(i.src[0], OperandType::b64));
  if (i.src[1].kind != OperandKind::none) line.operand(operand_text(i.src[1], row.source[0]));
  if (!row.name.starts_with("flat_")) line.operand(operand_text(i.src[2], OperandType::b64));
  if (i.offset) line.modifier(format("offset:%d", i.offset));
  cache_modifiers(line, i);
}

void smem_operands(Line& line, const Instruction& i, const OpcodeRow& row) {
  if (i.dst.kind == OperandKind::none) return;
  line.operand(operand_text(i.dst, row.destination));
  if (i.src[0].kind == OperandKind::none) return;
  line.operand(operand_text(i.src[0], row.source[0]));
  bool register_offset = i.soffset.kind != OperandKind::none;
  std::string offset =
      i.offset < 0 ? format("-0x%x", -i.offset) : format("0x%x", static_cast<unsigned>(i.offset));
  line.operand(register_offset ? operand_text(i.soffset, OperandType::b32) : offset);
  if (register_offset && i.offset) line.modifier("offset:" + offset);
  line.modifier_if(i.sc0, "glc");
}

}  // namespace

std::string_view mnemonic(Op op) {
  return op < Op::count ? opcode_row(op).name : std::string_view("unknown");
}

std::string to_string(const Instruction& i) {
  if (i.op >= Op::count) return "unknown";
  const OpcodeRow& row = opcode_row(i.op);
  const char* suffix = i.sdwa.used ? "_sdwa" : i.dpp == Dpp::dpp16 ? "_dpp" : "";
  Line line(std::string(row.name) + suffix);
  switch (i.format) {
    case Format::sopp:
      sopp_operands(line, i);
      break;
    case Format::sopk:
      sopk_operands(line, i);
      break;
    case Format::smem:
      smem_operands(line, i, row);
      break;
    case Format::ds:
      ds_operands(line, i, row);
      break;
    case Format::mubuf:
      mubuf_operands(line, i, row);
      break;
    case Format::flat:
      flat_operands(line, i, row);
      break;
    default:
      if (i.dst.kind != OperandKind::none) line.operand(operand_text(i.dst, row.destination));
      if (i.sdst.kind != OperandKind::none) line.operand(operand_text(i.sdst, OperandType::carry));
      source_operands(line, i, row);
      vector_modifiers(line, i, row);
  }
  return line.take();
}

}  // namespace mha_sink::emulator
