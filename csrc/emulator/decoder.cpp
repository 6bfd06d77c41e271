#include "emulator/decoder.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "emulator/encoding.h"
#include "emulator/error.h"
#include "emulator/hex.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {
namespace {

bool is_branch(Op op) {
  return op == Op::s_branch || (op >= Op::s_cbranch_scc0 && op <= Op::s_cbranch_execnz);
}

// s_trap ends the wave here: there is no trap handler.
bool never_falls_through(Op op) {
  return op == Op::s_endpgm || op == Op::s_branch || op == Op::s_setpc_b64 || op == Op::s_trap;
}

// Byte offset in the code that a branch goes to; it may lie outside.
int64_t branch_offset(const Instruction& branch, const Code& code) {
  return int64_t{branch.address} - code.address + 4 + int64_t{branch.simm} * 4;
}

}  // namespace

Instruction decode_instruction(const Code& code, uint32_t offset) {
  Encoding encoding(code, offset);
  Instruction instruction;
  if (!encoding.bit(31) || encoding.bits(31, 26) == 0b110100) {
    instruction = decode_vector(encoding);
  } else if (encoding.bits(31, 30) == 0b10) {
    instruction = decode_scalar(encoding);
  } else {
    instruction = decode_memory(encoding);
  }
  instruction.bytes = static_cast<uint8_t>(encoding.bytes());
  instruction.address = encoding.address();
  if (offset + uint64_t{instruction.bytes} > code.bytes.size()) {
    encoding.fail("the code ends inside it");
  }
  return instruction;
}

std::vector<Instruction> decode_program(const Code& code) {
  std::vector<Instruction> program;
  std::unordered_map<int64_t, uint32_t> index_at;  // byte offset -> instruction
  int64_t furthest_target = 0;
  uint32_t offset = 0;
  while (offset < code.bytes.size()) {
    Instruction instruction;
    try {
      instruction = decode_instruction(code, offset);
    } catch (const EmulationError&) {
      bool reachable = program.empty() || !never_falls_through(program.back().op) ||
                       furthest_target >= int64_t{offset};
      if (reachable) throw;
      break;
    }
    index_at[offset] = static_cast<uint32_t>(program.size());
    if (is_branch(instruction.op)) {
      furthest_target = std::max(furthest_target, branch_offset(instruction, code));
    }
    instruction.handler = instruction.sdwa.used
                              ? handlers().sdwa
                              : handlers().handler[static_cast<size_t>(instruction.op)];
    offset += instruction.bytes;
    program.push_back(instruction);
  }
  // Padding: whatever follows the last terminator and no branch goes to.
  size_t end = program.size();
  while (end > 0 && !never_falls_through(program[end - 1].op)) --end;
  if (end < program.size() && furthest_target < int64_t{program[end].address} - code.address) {
    program.resize(end);
  }
  if (program.empty() || !never_falls_through(program.back().op)) {
    throw EmulationError("the code at " + hex(code.address) + " runs past its end, " +
                         hex(uint64_t{code.address} + offset) +
                         ": no s_endpgm or s_branch is last");
  }
  for (Instruction& instruction : program) {
    if (!is_branch(instruction.op)) continue;
    int64_t target = branch_offset(instruction, code);
    auto found = index_at.find(target);
    if (found == index_at.end() || found->second >= program.size()) {
      throw EmulationError("the branch at " + hex(instruction.address) +
                           source_suffix(code.lines, instruction.address) + " goes to " +
                           hex(static_cast<uint64_t>(code.address + target)) +
                           ", which is no instruction of this kernel");
    }
    instruction.target = found->second;
  }
  return program;
}

}  // namespace mha_sink::emulator
