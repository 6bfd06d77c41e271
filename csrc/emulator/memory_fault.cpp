#include "emulator/memory_fault.h"

#include <sstream>

namespace mha_sink::emulator {
namespace {

std::string hex(uint64_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

std::string attempt(const char* access, size_t bytes, int lane) {
  return std::string(access) + " of " + std::to_string(bytes) + " bytes by lane " +
         std::to_string(lane) + " at ";
}

std::string describe_buffer(const Instruction& instruction, const Wave& wave) {
  const uint32_t* words = wave.sgpr + instruction.src[2].index;
  const uint64_t base = words[0] | uint64_t{words[1] & 0xffff} << 32;
  return "buffer s[" + std::to_string(instruction.src[2].index) + ":" +
         std::to_string(instruction.src[2].index + 3) + "]: base " + hex(base) + ", num_records " +
         std::to_string(words[2]) + ", word1 " + hex(words[1]) + ", word3 " + hex(words[3]);
}

}  // namespace

void throw_error(const char* message) { throw EmulationError(message); }

void throw_lds_fault(const Wave& wave, int lane, uint64_t address, size_t bytes,
                     const char* access) {
  throw EmulationError("LDS " + attempt(access, bytes, lane) + hex(address) +
                       " lies outside the workgroup's " +
                       std::to_string(wave.workgroup->lds.size()) + " bytes of LDS");
}

void throw_scratch_fault(const Wave& wave, int lane, uint64_t offset, size_t bytes,
                         const char* access) {
  throw EmulationError("scratch " + attempt(access, bytes, lane) + "offset " + hex(offset) +
                       " lies outside the kernel's " + std::to_string(wave.scratch_bytes) +
                       " bytes of scratch a lane");
}

void throw_memory_fault(const Instruction& instruction, const Wave& wave, int lane,
                        uint64_t address, size_t bytes, const char* access) {
  std::string message = attempt(access, bytes, lane) + wave.workgroup->memory->describe(address) +
                        " is outside what the launch may " +
                        (std::string_view(access) == "read" ? "read" : "write");
  if (instruction.format == Format::mubuf) {
    message += "; " + describe_buffer(instruction, wave);
  }
  throw EmulationError(message);
}

void throw_misaligned(int lane, uint64_t address, size_t bytes) {
  throw EmulationError(attempt("atomic", bytes, lane) + hex(address) + " is not naturally aligned");
}

void throw_descriptor(const Instruction& instruction, const Wave& wave, const char* reason) {
  throw EmulationError(std::string(reason) + "; " + describe_buffer(instruction, wave));
}

}  // namespace mha_sink::emulator
