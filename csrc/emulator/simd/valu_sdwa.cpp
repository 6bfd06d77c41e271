// SDWA: the plain instruction on extracted parts of its sources, its result inserted into a part of
// the destination.
#include "emulator/simd/operands.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

struct Field {
  uint32_t shift, bits;
};

Field field_of(Sdwa::Part part) {
  if (part == Sdwa::Part::dword) return {0, 32};
  const auto index = static_cast<uint32_t>(part);
  return part < Sdwa::Part::word0 ? Field{8 * index, 8} : Field{16 * (index - 4), 16};
}

uint32_t extend(uint32_t value, uint32_t bits, bool sign) {
  const uint32_t unused = 32 - bits;
  return sign ? static_cast<uint32_t>(static_cast<int32_t>(value << unused) >> unused)
              : value << unused >> unused;
}

uint32_t insert(uint32_t value, uint32_t old, Field field, Sdwa::Rest rest) {
  const uint32_t low = extend(value, field.bits, false) << field.shift;
  if (rest == Sdwa::Rest::sign) return extend(value, field.bits, true) << field.shift;
  if (rest == Sdwa::Rest::zero) return low;
  return low | (old & ~(extend(~0u, field.bits, false) << field.shift));
}

// Stands in for a wave's vector registers: v0 and v1 the sources, v2 the destination.
class SmallRegisterFile {
 public:
  explicit SmallRegisterFile(Wave& wave) : wave_(wave), vgpr_(wave.vgpr), count_(wave.vgpr_count) {}
  ~SmallRegisterFile() { leave(); }
  SmallRegisterFile(const SmallRegisterFile&) = delete;
  SmallRegisterFile& operator=(const SmallRegisterFile&) = delete;

  void enter() {
    wave_.vgpr = registers;
    wave_.vgpr_count = 3;
  }
  void leave() {
    wave_.vgpr = vgpr_;
    wave_.vgpr_count = count_;
  }

  VectorRegister registers[3];

 private:
  Wave& wave_;
  VectorRegister* vgpr_;
  uint32_t count_;
};

Operand small_register(uint16_t index) {
  Operand operand;
  operand.kind = OperandKind::vgpr;
  operand.index = index;
  return operand;
}

void execute_sdwa(const Instruction& instruction, Wave& wave) {
  const Handler plain = handlers().handler[static_cast<size_t>(instruction.op)];
  if (plain == nullptr) unsupported(instruction, "this instruction");
  const Sdwa& sdwa = instruction.sdwa;
  SmallRegisterFile file(wave);
  Instruction inner = instruction;
  inner.sdwa = {};
  for (uint16_t i = 0; i < 2; ++i) {
    if (instruction.src[i].kind == OperandKind::none) continue;
    VectorRegister scratch;
    const uint32_t* source = source_dword(instruction, wave, i, scratch);
    const Field field = field_of(sdwa.src[i]);
    for (int lane = 0; lane < kLanes; ++lane) {
      file.registers[i].lane[lane] =
          extend(source[lane] >> field.shift, field.bits, sdwa.sext >> i & 1);
    }
    inner.src[i] = small_register(i);
  }
  // Comparisons and v_readfirstlane write scalar registers, which have no parts.
  const bool has_result = is_vector(instruction.dst);
  uint32_t* const destination =
      has_result ? vector_register(instruction, wave, instruction.dst) : nullptr;
  VectorRegister& result = file.registers[2];
  if (has_result) {
    for (int lane = 0; lane < kLanes; ++lane) result.lane[lane] = destination[lane];
    inner.dst = small_register(2);
  }
  file.enter();
  plain(inner, wave);
  file.leave();
  if (!has_result) return;
  const Field field = field_of(sdwa.dst);
  for (int lane = 0; lane < kLanes; ++lane) {
    result.lane[lane] = insert(result.lane[lane], destination[lane], field, sdwa.rest);
  }
  store_masked(wave.exec(), result.lane, destination);
}

}  // namespace

void fill_valu_sdwa(HandlerTable& table) { table.sdwa = execute_sdwa; }

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
