// What the metadata note and the kernel descriptor say of one kernel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/code_object.h"

namespace mha_sink::emulator {

// Name, register use and arguments of every kernel in the note (LLVM AMDGPUUsage, "Code Object V3
// Metadata" and later). Throws EmulationError naming the missing or malformed entry.
std::vector<Kernel> read_metadata(std::span<const uint8_t> note);

constexpr uint64_t kDescriptorBytes = 64;

// Fills what the 64-byte descriptor holds; returns the offset of the kernel's code from it.
int64_t read_descriptor(std::span<const uint8_t> descriptor, Kernel& kernel);

// Throws EmulationError when an instruction names a register that the kernel does not own. A kernel
// without accumulation registers may name all it was allocated as architectural ones: they lie
// behind each other in the register file. Its counts are changed accordingly.
void check_registers(Kernel& kernel);

}  // namespace mha_sink::emulator
