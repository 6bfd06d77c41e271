// Which registers an instruction reads and writes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "emulator/instruction.h"

namespace mha_sink::emulator {

// One numbering of all registers: SGPRs by the ISA's numbers (vcc 106, m0 124, exec 126), then SCC,
// VGPRs and AGPRs.
using RegisterId = uint16_t;
inline constexpr RegisterId kSccId = 128, kVgprIds = 256, kAgprIds = 512, kRegisterIds = 768;

// "v12", "a3", "s5", "vcc_lo", "scc"
std::string register_name(RegisterId id);

struct RegisterRange {
  RegisterId first = 0;
  uint8_t count = 0;
  int8_t source = -1;  // reads: which Instruction::src; -1 for soffset and what is implied
};

// EXEC as the lane mask of vector instructions is not listed, nor is the MODE register.
class Footprint {
 public:
  explicit Footprint(const Instruction& instruction);

  std::span<const RegisterRange> reads() const { return {reads_.data(), read_count_}; }
  std::span<const RegisterRange> writes() const { return {writes_.data(), write_count_}; }

 private:
  void read(const Operand& operand, int source = -1);
  void read(RegisterId first, uint8_t count, int source = -1);
  void write(const Operand& operand);
  void write(RegisterId first, uint8_t count);
  void add_implied(const Instruction& instruction);

  // Three sources, a destination that is read, and two of VCC, EXEC, M0 and SCC.
  std::array<RegisterRange, 7> reads_;
  std::array<RegisterRange, 5> writes_;
  uint8_t read_count_ = 0, write_count_ = 0;
};

}  // namespace mha_sink::emulator
