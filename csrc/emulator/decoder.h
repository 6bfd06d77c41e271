// From the machine code of one kernel to instructions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/instruction.h"
#include "emulator/line_table.h"

namespace mha_sink::emulator {

// The machine code of one function: `address` is the byte offset of its first byte from the start
// of the text section, `pointer` where the loaded code object holds that byte (s_getpc_b64 reads
// it).
struct Code {
  std::span<const uint8_t> bytes;
  uint32_t address = 0;
  uint64_t pointer = 0;
  const LineTable* lines = nullptr;  // for messages
};

// Decodes the instruction `offset` bytes into the code; sets no handler and no branch target.
// Throws EmulationError naming the address and the encoding of what it does not know.
Instruction decode_instruction(const Code& code, uint32_t offset);

// Decodes the whole function in order and resolves branch targets. What follows the last
// instruction that can be reached, such as padding, is left out. Execution cannot run past the end:
// the last instruction is one that never falls through.
std::vector<Instruction> decode_program(const Code& code);

}  // namespace mha_sink::emulator
