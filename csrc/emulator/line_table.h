// Which source line each instruction comes from, where the code object says so: the line tables
// that compilers write for -g and -gline-tables-only (DWARF, versions 2 to 5).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "emulator/debug_line.h"
#include "emulator/elf.h"

namespace mha_sink::emulator {

struct SourceLine {
  std::string path;  // as the compiler recorded it: absolute, or relative to where it ran
  uint32_t line = 0;
};

// Lines only help to read a message, so nothing here is an error: what is malformed has no lines.
// Of an inlined call the tables name the innermost position.
class LineTable {
 public:
  // Copies the sections, and reads them when the first line is asked for.
  LineTable(const DebugSections& sections, uint64_t text_address, uint64_t text_bytes);
  LineTable(const LineTable&) = delete;
  LineTable& operator=(const LineTable&) = delete;

  // Of the instruction that begins so many bytes into the text section. From any thread.
  std::optional<SourceLine> find(uint64_t address) const;

 private:
  const std::vector<uint8_t> line_, line_strings_, strings_;
  const uint64_t text_address_, text_bytes_;
  mutable std::once_flag read_;
  mutable DebugLines lines_;  // of the copies
};

// For messages: " (faults.hip:41)", or nothing where no line is known.
std::string source_suffix(const LineTable* lines, uint64_t address);

}  // namespace mha_sink::emulator
