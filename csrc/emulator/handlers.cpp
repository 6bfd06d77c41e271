// The handler of every instruction, from the families compiled for the best x86-64 level.
#include <cstdlib>
#include <string>

#include "emulator/salu.h"
#include "emulator/simd/families.h"

namespace mha_sink::emulator {

namespace {

constexpr SimdLevel kLevels[] = {SimdLevel::v4, SimdLevel::v3, SimdLevel::baseline};

SimdLevel best_level() {
  for (SimdLevel level : kLevels) {
    if (supported(level)) return level;
  }
  return SimdLevel::baseline;
}

SimdLevel chosen_level() {
  const char* name = std::getenv("MHA_SINK_SIMD");
  if (name == nullptr || *name == '\0') return best_level();
  for (SimdLevel level : kLevels) {
    if (to_string(level) == name) return level;
  }
  throw EmulationError("MHA_SINK_SIMD is \"" + std::string(name) +
                       "\"; it must be baseline, v3 or v4");
}

#define MHA_SINK_FILL_FAMILIES(level)     \
  level::fill_valu_compare(table);        \
  level::fill_valu_cross_lane(table);     \
  level::fill_valu_division(table);       \
  level::fill_valu_float16(table);        \
  level::fill_valu_float32(table);        \
  level::fill_valu_float64(table);        \
  level::fill_valu_integer(table);        \
  level::fill_valu_packed(table);         \
  level::fill_valu_sdwa(table);           \
  level::fill_valu_transcendental(table); \
  level::fill_mfma(table);                \
  level::fill_mfma_integer(table);        \
  level::fill_lds(table);                 \
  level::fill_vmem(table)

}  // namespace

std::string_view to_string(SimdLevel level) {
  switch (level) {
    case SimdLevel::v3:
      return "v3";
    case SimdLevel::v4:
      return "v4";
    default:
      return "baseline";
  }
}

bool supported(SimdLevel level) {
#ifdef MHA_SINK_SIMD_v3
  if (level == SimdLevel::v3) return __builtin_cpu_supports("x86-64-v3");
#endif
#ifdef MHA_SINK_SIMD_v4
  if (level == SimdLevel::v4) return __builtin_cpu_supports("x86-64-v4");
#endif
  return level == SimdLevel::baseline;
}

HandlerTable handlers_for(SimdLevel level) {
  if (!supported(level)) {
    throw EmulationError("this build on this processor has no x86-64-" +
                         std::string(to_string(level)) + " instruction families");
  }
  HandlerTable table;
  fill_salu(table);
  fill_smem(table);
#ifdef MHA_SINK_SIMD_v4
  if (level == SimdLevel::v4) {
    MHA_SINK_FILL_FAMILIES(v4);
    return table;
  }
#endif
#ifdef MHA_SINK_SIMD_v3
  if (level == SimdLevel::v3) {
    MHA_SINK_FILL_FAMILIES(v3);
    return table;
  }
#endif
  MHA_SINK_FILL_FAMILIES(baseline);
  return table;
}

const HandlerTable& handlers() {
  static const HandlerTable table = handlers_for(chosen_level());
  return table;
}

void unsupported(const Instruction& instruction, const char* what) {
  throw EmulationError(std::string(mnemonic(instruction.op)) + ": " + what + " is not supported");
}

}  // namespace mha_sink::emulator
