#include <array>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "emulator/launch.h"
#include "emulator/opcode_table.h"

namespace mha_sink::emulator {
namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  for (std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

InstructionClass vector_class(std::string_view name) {
  if (name == "v_nop") return InstructionClass::nop;
  if (name.starts_with("v_mfma_")) return InstructionClass::mfma;
  if (name.starts_with("v_accvgpr_")) return InstructionClass::accvgpr;
  // The quarter-rate unit.
  if (starts_with_any(name,
                      {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"})) {
    return InstructionClass::trans;
  }
  return InstructionClass::valu;
}

InstructionClass control_class(Op op) {
  switch (op) {
    case Op::s_waitcnt:
      return InstructionClass::wait;
    case Op::s_barrier:
      return InstructionClass::barrier;
    case Op::s_branch:
    case Op::s_cbranch_scc0:
    case Op::s_cbranch_scc1:
    case Op::s_cbranch_vccz:
    case Op::s_cbranch_vccnz:
    case Op::s_cbranch_execz:
    case Op::s_cbranch_execnz:
    case Op::s_endpgm:
      return InstructionClass::branch;
    default:
      return InstructionClass::nop;
  }
}

InstructionClass classify_row(const OpcodeRow& row) {
  switch (row.format) {
    case Format::sopp:
      return control_class(row.op);
    case Format::smem:
      return InstructionClass::smem;
    case Format::ds:
      return InstructionClass::lds;
    case Format::mubuf:
    case Format::flat:
      return row.name.find("_atomic_") != row.name.npos ? InstructionClass::atomic
                                                        : InstructionClass::vmem;
    case Format::sop1:
    case Format::sop2:
    case Format::sopc:
    case Format::sopk:
      if (row.op == Op::s_setpc_b64 || row.op == Op::s_swappc_b64) return InstructionClass::branch;
      return InstructionClass::salu;
    default:
      return vector_class(row.name);
  }
}

constexpr size_t kOps = static_cast<size_t>(Op::count);

std::array<InstructionClass, kOps> classify_all() {
  std::array<InstructionClass, kOps> classes{};
  for (size_t i = 0; i < kOps; ++i) classes[i] = classify_row(opcode_row(static_cast<Op>(i)));
  return classes;
}

}  // namespace

InstructionClass classify(Op op) {
  static const std::array<InstructionClass, kOps> classes = classify_all();
  return op < Op::count ? classes[static_cast<size_t>(op)] : InstructionClass::count;
}

std::string_view to_string(InstructionClass c) {
  static constexpr std::string_view kNames[] = {"mfma", "accvgpr", "valu", "trans", "lds",
                                                "vmem", "atomic",  "smem", "salu",  "branch",
                                                "wait", "barrier", "nop"};
  static_assert(std::size(kNames) == static_cast<size_t>(InstructionClass::count));
  return c < InstructionClass::count ? kNames[static_cast<size_t>(c)] : "unknown";
}

}  // namespace mha_sink::emulator
