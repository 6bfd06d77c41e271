// The line tables of an ELF file as rows (DWARF 5, section 6.2; versions 2 to 5).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/elf.h"

namespace mha_sink::emulator {

struct DebugLines {
  // Begins at a string. The zero byte that ends it is looked for when the string is needed: a table
  // may name one string of a megabyte a million times.
  using Text = std::span<const uint8_t>;

  struct File {
    Text name;
    // Indices into directories: its own, and where the compiler ran, to which both are relative.
    uint32_t directory = 0, compiled_in = 0;
  };
  static constexpr uint32_t kNoFile = UINT32_MAX;
  // From this byte of the text section on, until the next row.
  struct Row {
    uint64_t address = 0;
    uint32_t file = kNoFile, line = 0;  // kNoFile: what no row describes begins here
  };

  std::vector<Text> directories;
  std::vector<File> files;
  std::vector<Row> rows;  // by address; the last of several at one address holds
};

// Never fails: a unit that is malformed, or that uses what is not read (several operations an
// instruction, names by index), has no rows. Time and memory grow with the sections' bytes alone.
// What is returned refers to the sections.
DebugLines read_debug_lines(const DebugSections& sections, uint64_t text_address,
                            uint64_t text_bytes);

}  // namespace mha_sink::emulator
