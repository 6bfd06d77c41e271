// Messages of accesses that a GPU would fault on. Kept apart from the vectorised families, so that
// no string code is compiled for a processor that the machine may not have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/wave.h"

namespace mha_sink::emulator {

// The executor adds kernel, instruction, workgroup and wave.
[[noreturn]] void throw_error(const char* message);

// `access` is what was tried: "read", "write", "atomic".
[[noreturn]] void throw_lds_fault(const Wave& wave, int lane, uint64_t address, size_t bytes,
                                  const char* access);
[[noreturn]] void throw_scratch_fault(const Wave& wave, int lane, uint64_t offset, size_t bytes,
                                      const char* access);
// For a buffer instruction the message includes its descriptor.
[[noreturn]] void throw_memory_fault(const Instruction& instruction, const Wave& wave, int lane,
                                     uint64_t address, size_t bytes, const char* access);
[[noreturn]] void throw_misaligned(int lane, uint64_t address, size_t bytes);
// A buffer descriptor whose addressing mode is not a raw buffer.
[[noreturn]] void throw_descriptor(const Instruction& instruction, const Wave& wave,
                                   const char* reason);

}  // namespace mha_sink::emulator
