// Bounds-checked reading of an AMDGPU ELF file (ELF specification; LLVM AMDGPUUsage, "ELF Code
// Object").
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/error.h"

namespace mha_sink::emulator {

// Bytes of a file whose every read is checked; `what` names them in messages.
class ByteView {
 public:
  ByteView(std::span<const uint8_t> bytes, std::string what)
      : bytes_(bytes), what_(std::move(what)) {}

  template <typename T>
  T read(uint64_t offset) const {
    T value;
    std::memcpy(&value, slice(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const uint8_t> slice(uint64_t offset, uint64_t bytes) const;
  // The zero-terminated string at `offset`.
  std::string_view text(uint64_t offset) const;
  uint64_t size() const { return bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
  std::string what_;
};

struct ElfSegment {
  uint64_t file_offset = 0, address = 0, file_bytes = 0, memory_bytes = 0;
};

struct ElfSymbol {
  std::string_view name;
  uint64_t address = 0, bytes = 0;
  bool defined = false;
};

struct ElfRelocation {
  uint64_t address = 0;
  uint32_t type = 0, symbol = 0;  // index into symbols of the same table
  int64_t addend = 0;
};

// Of .debug_line and the sections that hold its strings. Empty where one is missing, compressed or
// cut off: they are for people, not for hardware.
struct DebugSections {
  std::span<const uint8_t> line, line_str, str;
};

// What the emulator needs of one file. Views point into the bytes it was read from.
struct Elf {
  std::vector<ElfSegment> segments;        // PT_LOAD
  std::vector<ElfSymbol> symbols;          // the dynamic symbol table
  std::vector<ElfRelocation> relocations;  // all RELA sections; symbols of that same table
  std::span<const uint8_t> metadata;       // NT_AMDGPU_METADATA note
  uint64_t text_address = 0, text_bytes = 0;
  DebugSections debug;
};

// Throws EmulationError unless this is a gfx950 shared object of code object version 4, 5 or 6.
Elf read_elf(std::span<const uint8_t> file);

}  // namespace mha_sink::emulator
