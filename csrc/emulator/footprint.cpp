#include "emulator/footprint.h"

#include <algorithm>
#include <string_view>

#include "emulator/wave.h"

namespace mha_sink::emulator {
namespace {

// The numbers of Operand::index for OperandKind::special.
constexpr uint16_t kVccZero = 251, kExecZero = 252;

// Instructions whose destination is a source too.
bool reads_destination(const Instruction& i) {
  switch (i.op) {
    case Op::v_fmac_f32:
    case Op::v_fmac_f64:
    case Op::v_pk_fmac_f16:
    case Op::v_dot2c_i32_i16:
    case Op::v_dot4c_i32_i8:
    case Op::v_dot8c_i32_i4:
    case Op::v_swap_b32:
    case Op::v_permlane16_swap_b32:
    case Op::v_permlane32_swap_b32:
    case Op::s_addk_i32:
    case Op::s_mulk_i32:
    case Op::s_bitset0_b32:
    case Op::s_bitset0_b64:
    case Op::s_bitset1_b32:
    case Op::s_bitset1_b64:
      return true;
    default:
      return false;
  }
}

bool swaps(Op op) {
  return op == Op::v_swap_b32 || op == Op::v_permlane16_swap_b32 || op == Op::v_permlane32_swap_b32;
}

bool reads_scc(Op op) {
  switch (op) {
    case Op::s_cmov_b32:
    case Op::s_cmov_b64:
    case Op::s_cmovk_i32:
    case Op::s_cselect_b32:
    case Op::s_cselect_b64:
    case Op::s_addc_u32:
    case Op::s_subb_u32:
    case Op::s_cbranch_scc0:
    case Op::s_cbranch_scc1:
      return true;
    default:
      return false;
  }
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  for (std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

bool writes_scc(const Instruction& i) {
  const std::string_view name = mnemonic(i.op);
  switch (i.format) {
    case Format::sopc:
      return true;
    case Format::sopk:
      return starts_with_any(name, {"s_cmpk_", "s_addk_"});
    case Format::sop1:
      return starts_with_any(name, {"s_not_", "s_bcnt", "s_abs_"}) ||
             name.find("exec_b64") != name.npos;
    case Format::sop2:
      return !starts_with_any(name, {"s_cselect_", "s_bfm_", "s_mul_", "s_pack_"});
    default:
      return false;
  }
}

// Damaged code may name a tuple that begins inside a register file and ends outside.
uint8_t inside(RegisterId first, uint8_t count) {
  const int end = first < kSccId     ? kSccId
                  : first < kVgprIds ? kSccId + 1
                  : first < kAgprIds ? kAgprIds
                                     : kRegisterIds;
  return static_cast<uint8_t>(std::min<int>(count, end - first));
}

}  // namespace

std::string register_name(RegisterId id) {
  switch (id) {
    case kVcc:
      return "vcc_lo";
    case kVcc + 1:
      return "vcc_hi";
    case kM0:
      return "m0";
    case kExec:
      return "exec_lo";
    case kExec + 1:
      return "exec_hi";
    case kSccId:
      return "scc";
    default:
      if (id >= kAgprIds) return "a" + std::to_string(id - kAgprIds);
      if (id >= kVgprIds) return "v" + std::to_string(id - kVgprIds);
      return "s" + std::to_string(id);
  }
}

void Footprint::read(RegisterId first, uint8_t count, int source) {
  reads_[read_count_++] = {first, inside(first, count), static_cast<int8_t>(source)};
}

void Footprint::write(RegisterId first, uint8_t count) {
  writes_[write_count_++] = {first, inside(first, count), -1};
}

void Footprint::read(const Operand& operand, int source) {
  switch (operand.kind) {
    case OperandKind::sgpr:
      return read(operand.index, operand.dwords, source);
    case OperandKind::vgpr:
      return read(kVgprIds + operand.index, operand.dwords, source);
    case OperandKind::agpr:
      return read(kAgprIds + operand.index, operand.dwords, source);
    case OperandKind::special:
      if (operand.index == kVccZero) return read(kVcc, 2, source);
      if (operand.index == kExecZero) return read(kExec, 2, source);
      return read(kSccId, 1, source);
    default:
      return;
  }
}

void Footprint::write(const Operand& operand) {
  switch (operand.kind) {
    case OperandKind::sgpr:
      return write(operand.index, operand.dwords);
    case OperandKind::vgpr:
      return write(kVgprIds + operand.index, operand.dwords);
    case OperandKind::agpr:
      return write(kAgprIds + operand.index, operand.dwords);
    default:
      return;
  }
}

void Footprint::add_implied(const Instruction& i) {
  const std::string_view name = mnemonic(i.op);
  if (reads_scc(i.op)) read(kSccId, 1);
  if (writes_scc(i)) write(kSccId, 1);
  if (i.format == Format::sop1 && name.find("exec_b64") != name.npos) {
    read(kExec, 2);
    write(kExec, 2);
  }
  if (name.starts_with("v_cmpx_")) write(kExec, 2);
  if (name.starts_with("v_div_fmas_")) read(kVcc, 2);
  if (i.lds) read(kM0, 1);
  if (i.op == Op::s_cbranch_vccz || i.op == Op::s_cbranch_vccnz) read(kVcc, 2);
}

Footprint::Footprint(const Instruction& i) {
  for (int s = 0; s < 3; ++s) read(i.src[s], s);
  read(i.soffset);
  write(i.dst);
  write(i.sdst);
  if (reads_destination(i)) read(i.dst);
  if (swaps(i.op)) write(i.src[0]);
  add_implied(i);
}

}  // namespace mha_sink::emulator
