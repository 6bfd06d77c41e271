// A gfx950 code object (AMDGPU ELF, code object version 5 or 6), loaded and decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emulator/instruction.h"
#include "emulator/line_table.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {

struct KernelArgument {
  std::string name, value_kind;
  uint32_t offset = 0, size = 0;
};

// One kernel: its descriptor (LLVM AMDGPUUsage, "Kernel Descriptor"), metadata and program.
struct Kernel {
  std::string name;
  // From the descriptor.
  uint32_t lds_bytes = 0, scratch_bytes = 0, kernarg_bytes = 0;
  uint32_t vgpr_count = 0, agpr_count = 0;  // allocated: architectural and accumulation
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0;
  uint8_t kernarg_preload_dwords = 0, kernarg_preload_offset = 0;
  FloatMode mode;
  // From the metadata note; counts are what the compiler reports as used.
  uint32_t sgpr_used = 0, vgpr_used = 0, agpr_used = 0, vgpr_spills = 0, sgpr_spills = 0;
  std::vector<KernelArgument> arguments;
  // Decoded from entry; one past the last instruction reachable ends the vector.
  std::vector<Instruction> program;
  uint32_t entry = 0;                      // index of the first instruction to execute
  std::shared_ptr<const LineTable> lines;  // of the code object; null: it has none
};

// How messages name one of the kernel's instructions: "`ds_read_b32 v1, v0` at 0x1c", and
// " (faults.hip:41)" after it where its line is known.
std::string describe(const Kernel& kernel, const Instruction& instruction);

class CodeObject {
 public:
  // Parses and relocates; throws EmulationError naming what is malformed. `name` is for messages.
  CodeObject(std::span<const uint8_t> elf, std::string name);
  ~CodeObject();
  CodeObject(CodeObject&&) noexcept;

  const std::string& name() const;
  const std::vector<Kernel>& kernels() const;
  const Kernel& kernel(std::string_view name) const;  // throws EmulationError listing what exists
  // The loaded image: readable by the kernels (constant data).
  MemoryRange image() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The hottest loop of a kernel, found statically: the innermost loop with the most MFMAs.
struct StaticProfile {
  uint32_t instructions = 0, mfma = 0, accvgpr_moves = 0;  // of the whole kernel
  uint32_t loop_instructions = 0, loop_mfma = 0, loop_accvgpr_moves = 0;
};
StaticProfile static_profile(const Kernel& kernel);

}  // namespace mha_sink::emulator
