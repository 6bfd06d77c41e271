// The instruction families that are compiled once for each x86-64 level, and the choice of level.
#pragma once

#include <string_view>

#include "emulator/wave.h"

namespace mha_sink::emulator {

enum class SimdLevel : uint8_t { baseline, v3, v4 };
std::string_view to_string(SimdLevel level);
bool supported(SimdLevel level);  // by this build and this processor

// Every family's handlers at one level; throws EmulationError when it is not supported.
HandlerTable handlers_for(SimdLevel level);

// Throws EmulationError: "<mnemonic>: <what> is not supported". Kept out of the vectorised files,
// so that no string code is compiled for a processor that the machine may not have.
[[noreturn]] void unsupported(const Instruction& instruction, const char* what);

#define MHA_SINK_DECLARE_FAMILIES(level)        \
  namespace level {                             \
  void fill_valu_compare(HandlerTable&);        \
  void fill_valu_cross_lane(HandlerTable&);     \
  void fill_valu_division(HandlerTable&);       \
  void fill_valu_float16(HandlerTable&);        \
  void fill_valu_float32(HandlerTable&);        \
  void fill_valu_float64(HandlerTable&);        \
  void fill_valu_integer(HandlerTable&);        \
  void fill_valu_packed(HandlerTable&);         \
  void fill_valu_sdwa(HandlerTable&);           \
  void fill_valu_transcendental(HandlerTable&); \
  void fill_mfma(HandlerTable&);                \
  void fill_mfma_integer(HandlerTable&);        \
  void fill_lds(HandlerTable&);                 \
  void fill_vmem(HandlerTable&);                \
  }
MHA_SINK_DECLARE_FAMILIES(baseline)
MHA_SINK_DECLARE_FAMILIES(v3)
MHA_SINK_DECLARE_FAMILIES(v4)
#undef MHA_SINK_DECLARE_FAMILIES

}  // namespace mha_sink::emulator
