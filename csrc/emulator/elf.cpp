#include "emulator/elf.h"

#include "emulator/hex.h"

namespace mha_sink::emulator {
namespace {

constexpr uint8_t kClass64 = 2, kLittleEndian = 1, kOsAbiAmdgpuHsa = 64;
// AMDGPUUsage, "EI_ABIVERSION": code object versions 4, 5 and 6.
constexpr uint8_t kFirstAbiVersion = 2, kLastAbiVersion = 4;
constexpr uint16_t kTypeShared = 3, kMachineAmdgpu = 224;
constexpr uint32_t kMachineMask = 0xff, kMachineGfx950 = 0x4f;
constexpr uint32_t kSegmentLoad = 1, kSegmentNote = 4;
constexpr uint32_t kSectionRela = 4, kSectionNoBits = 8, kSectionDynamicSymbols = 11;
constexpr uint64_t kCompressed = 0x800;
constexpr uint32_t kNoteMetadata = 32;

constexpr uint64_t kHeaderBytes = 64, kSegmentBytes = 56, kSectionBytes = 64, kSymbolBytes = 24,
                   kRelocationBytes = 24;

std::string number(uint64_t value) { return std::to_string(value); }

struct Section {
  uint32_t name = 0, type = 0, link = 0;
  uint64_t flags = 0, address = 0, offset = 0, bytes = 0;
};

void check_header(const ByteView& file) {
  auto require = [](bool holds, const std::string& message) {
    if (!holds) throw EmulationError(message);
  };
  require(file.size() >= kHeaderBytes,
          "the file has " + number(file.size()) + " bytes, less than the 64 of an ELF header");
  require(file.read<uint32_t>(0) == 0x464c457f, "the file does not start with the ELF magic");
  require(file.read<uint8_t>(4) == kClass64 && file.read<uint8_t>(5) == kLittleEndian,
          "the ELF file is not 64-bit little-endian");
  uint8_t os_abi = file.read<uint8_t>(7), abi_version = file.read<uint8_t>(8);
  require(os_abi == kOsAbiAmdgpuHsa,
          "the ELF OS ABI is " + number(os_abi) + ", not 64 (AMDGPU HSA)");
  require(abi_version >= kFirstAbiVersion && abi_version <= kLastAbiVersion,
          "the ELF ABI version is " + number(abi_version) +
              "; code object versions 4, 5 and 6 have 2, 3 and 4");
  uint16_t type = file.read<uint16_t>(16), machine = file.read<uint16_t>(18);
  require(machine == kMachineAmdgpu,
          "the ELF machine is " + number(machine) + ", not 224 (AMDGPU)");
  require(type == kTypeShared, "the ELF type is " + number(type) + ", not 3 (shared object)");
  uint32_t flags = file.read<uint32_t>(48);
  require((flags & kMachineMask) == kMachineGfx950,
          "the ELF flags " + hex(flags) + " name another processor than gfx950 (0x4f)");
}

std::vector<Section> read_sections(const ByteView& file) {
  uint64_t offset = file.read<uint64_t>(40);
  uint16_t entry_bytes = file.read<uint16_t>(58), count = file.read<uint16_t>(60);
  if (count && entry_bytes != kSectionBytes) {
    throw EmulationError("ELF section headers have " + number(entry_bytes) + " bytes, not 64");
  }
  std::vector<Section> sections(count);
  ByteView table(file.slice(offset, uint64_t{count} * kSectionBytes), "the ELF section headers");
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t at = i * kSectionBytes;
    sections[i] = {table.read<uint32_t>(at),      table.read<uint32_t>(at + 4),
                   table.read<uint32_t>(at + 40), table.read<uint64_t>(at + 8),
                   table.read<uint64_t>(at + 16), table.read<uint64_t>(at + 24),
                   table.read<uint64_t>(at + 32)};
  }
  return sections;
}

void read_symbols(const ByteView& file, const std::vector<Section>& sections,
                  const Section& section, Elf& elf) {
  if (!elf.symbols.empty()) throw EmulationError("two dynamic symbol tables");
  if (section.link >= sections.size()) {
    throw EmulationError("the dynamic symbol table links to section " + number(section.link) +
                         " of " + number(sections.size()));
  }
  const Section& strings = sections[section.link];
  ByteView names(file.slice(strings.offset, strings.bytes), "the symbol names");
  ByteView table(file.slice(section.offset, section.bytes), "the dynamic symbol table");
  for (uint64_t at = 0; at + kSymbolBytes <= table.size(); at += kSymbolBytes) {
    elf.symbols.push_back({names.text(table.read<uint32_t>(at)), table.read<uint64_t>(at + 8),
                           table.read<uint64_t>(at + 16), table.read<uint16_t>(at + 6) != 0});
  }
}

void read_relocations(const ByteView& file, const Section& section, Elf& elf) {
  ByteView table(file.slice(section.offset, section.bytes), "a relocation section");
  for (uint64_t at = 0; at + kRelocationBytes <= table.size(); at += kRelocationBytes) {
    auto info = table.read<uint64_t>(at + 8);
    elf.relocations.push_back({table.read<uint64_t>(at), static_cast<uint32_t>(info),
                               static_cast<uint32_t>(info >> 32), table.read<int64_t>(at + 16)});
  }
}

// Notes are (name bytes, data bytes, type, name, data), each padded to four bytes.
void read_notes(const ByteView& notes, Elf& elf) {
  auto padded = [](uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; };
  uint64_t at = 0;
  while (at + 12 <= notes.size()) {
    uint64_t name_bytes = notes.read<uint32_t>(at), data_bytes = notes.read<uint32_t>(at + 4);
    auto type = notes.read<uint32_t>(at + 8);
    uint64_t data = at + 12 + padded(name_bytes);
    if (type == kNoteMetadata && name_bytes == 7 && notes.text(at + 12) == "AMDGPU") {
      elf.metadata = notes.slice(data, data_bytes);
    }
    at = data + padded(data_bytes);
  }
}

void read_debug_section(std::span<const uint8_t> file, std::string_view name,
                        const Section& section, DebugSections& debug) {
  std::span<const uint8_t>* known = name == ".debug_line"       ? &debug.line
                                    : name == ".debug_line_str" ? &debug.line_str
                                    : name == ".debug_str"      ? &debug.str
                                                                : nullptr;
  const bool stored = section.type != kSectionNoBits && (section.flags & kCompressed) == 0 &&
                      section.offset <= file.size() &&
                      section.bytes <= file.size() - section.offset;
  if (known && stored) *known = file.subspan(section.offset, section.bytes);
}

void read_segments(const ByteView& file, Elf& elf) {
  uint64_t offset = file.read<uint64_t>(32);
  uint16_t entry_bytes = file.read<uint16_t>(54), count = file.read<uint16_t>(56);
  if (count && entry_bytes != kSegmentBytes) {
    throw EmulationError("ELF program headers have " + number(entry_bytes) + " bytes, not 56");
  }
  ByteView table(file.slice(offset, uint64_t{count} * kSegmentBytes), "the ELF program headers");
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t at = i * kSegmentBytes;
    auto type = table.read<uint32_t>(at);
    ElfSegment segment{table.read<uint64_t>(at + 8), table.read<uint64_t>(at + 16),
                       table.read<uint64_t>(at + 32), table.read<uint64_t>(at + 40)};
    if (type == kSegmentNote) {
      read_notes(ByteView(file.slice(segment.file_offset, segment.file_bytes), "the ELF notes"),
                 elf);
    } else if (type == kSegmentLoad) {
      file.slice(segment.file_offset, segment.file_bytes);
      if (segment.file_bytes > segment.memory_bytes) {
        throw EmulationError("an ELF segment has " + number(segment.file_bytes) +
                             " bytes in the file, more than its " + number(segment.memory_bytes) +
                             " in memory");
      }
      elf.segments.push_back(segment);
    }
  }
}

}  // namespace

std::span<const uint8_t> ByteView::slice(uint64_t offset, uint64_t bytes) const {
  if (offset > bytes_.size() || bytes > bytes_.size() - offset) {
    throw EmulationError(what_ + ": " + number(bytes) + " bytes at offset " + hex(offset) +
                         " lie outside of " + number(bytes_.size()));
  }
  return bytes_.subspan(offset, bytes);
}

std::string_view ByteView::text(uint64_t offset) const {
  std::span<const uint8_t> rest = slice(offset, 0);
  rest = bytes_.subspan(offset);
  const void* end = std::memchr(rest.data(), 0, rest.size());
  if (!end) throw EmulationError(what_ + ": the string at " + hex(offset) + " has no end");
  auto begin = reinterpret_cast<const char*>(rest.data());
  return {begin, static_cast<size_t>(static_cast<const char*>(end) - begin)};
}

Elf read_elf(std::span<const uint8_t> bytes) {
  ByteView file(bytes, "the ELF file");
  check_header(file);
  Elf elf;
  read_segments(file, elf);
  std::vector<Section> sections = read_sections(file);
  uint16_t names_index = file.read<uint16_t>(62);
  if (names_index >= sections.size()) throw EmulationError("the ELF file has no section names");
  const Section& names_section = sections[names_index];
  ByteView names(file.slice(names_section.offset, names_section.bytes), "the section names");
  for (const Section& section : sections) {
    if (section.type == kSectionDynamicSymbols) read_symbols(file, sections, section, elf);
    if (section.type == kSectionRela) read_relocations(file, section, elf);
    const std::string_view name = names.text(section.name);
    if (name == ".text") {
      elf.text_address = section.address;
      elf.text_bytes = section.bytes;
    }
    read_debug_section(bytes, name, section, elf.debug);
  }
  if (!elf.text_bytes) throw EmulationError("the ELF file has no .text section");
  if (elf.symbols.empty()) throw EmulationError("the ELF file has no dynamic symbol table");
  if (elf.segments.empty()) throw EmulationError("the ELF file has no segment to load");
  if (elf.metadata.empty()) throw EmulationError("the ELF file has no AMDGPU metadata note");
  return elf;
}

}  // namespace mha_sink::emulator
