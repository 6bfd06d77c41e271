// Damage to code objects, launches and calls, drawn from a seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/elf.h"
#include "emulator/launch.h"
#include "fuzz_corpus.h"

namespace mha_sink::test {

// The same numbers on every machine, which std's distributions do not promise.
class Dice {
 public:
  explicit Dice(uint64_t seed) : generator_(seed) {}

  uint64_t bits() { return generator_(); }
  uint64_t below(uint64_t count) { return bits() % count; }
  bool once_in(uint64_t count) { return below(count) == 0; }
  template <class Container>
  const auto& pick(const Container& choices) {
    return *std::next(std::begin(choices), static_cast<ptrdiff_t>(below(std::size(choices))));
  }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return std::data(choices)[below(choices.size())];
  }

 private:
  std::mt19937_64 generator_;
};

// Where a code object holds what.
struct Layout {
  struct Part {
    uint64_t offset, bytes;
  };
  Part text{};
  std::vector<Part> structures;  // headers, notes, symbols, relocations, descriptors
  std::vector<Part> lines;       // line tables and their strings

  explicit Layout(std::span<const uint8_t> file) {
    const emulator::ByteView view(file, "the corpus");
    const auto table = view.read<uint64_t>(40);
    const auto count = view.read<uint16_t>(60);
    const uint64_t names = view.read<uint64_t>(table + 64 * view.read<uint16_t>(62) + 24);
    structures.push_back({0, 64});
    structures.push_back({view.read<uint64_t>(32), view.read<uint16_t>(56) * uint64_t{56}});
    structures.push_back({table, count * uint64_t{64}});
    for (uint64_t at = table; at < table + count * uint64_t{64}; at += 64) {
      const auto type = view.read<uint32_t>(at + 4);
      const Part part{view.read<uint64_t>(at + 24), view.read<uint64_t>(at + 32)};
      constexpr uint32_t kNoBits = 8;
      constexpr uint64_t kExecutable = 4;
      if (part.bytes == 0 || type == kNoBits) continue;
      const std::string_view name = view.text(names + view.read<uint32_t>(at));
      if (view.read<uint64_t>(at + 8) & kExecutable) {
        text = part;
      } else if (name == ".debug_line" || name == ".debug_line_str" || name == ".debug_str") {
        lines.push_back(part);
      } else {
        structures.push_back(part);
      }
    }
  }
};

inline void put(std::vector<uint8_t>& file, uint64_t at, uint64_t value, size_t bytes) {
  if (file.size() < at + bytes) return;
  std::memcpy(file.data() + at, &value, bytes);
}

inline void damage_structure(Dice& dice, std::vector<uint8_t>& file, const Layout& layout) {
  const bool lines = !layout.lines.empty() && dice.once_in(2);
  const Layout::Part part = dice.pick(lines ? layout.lines : layout.structures);
  const uint64_t at = part.offset + dice.below(part.bytes);
  const auto width = size_t{1} << dice.below(4);
  const uint64_t aligned = at / width * width;
  switch (dice.below(7)) {
    case 0:
      if (at < file.size()) file[at] ^= static_cast<uint8_t>(1u << dice.below(8));
      break;
    case 1:
      put(file, aligned, dice.bits(), width);
      break;
    case 2:
      put(file, aligned,
          dice.pick({uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x7fffffff},
                     uint64_t{0x80000000}, uint64_t{0x7fffffffffffffff}, uint64_t{1} << 63,
                     uint64_t{file.size()}, uint64_t{file.size()} - 1}),
          width);
      break;
    case 3: {
      // A little more or less: counts and offsets that are off by one, or by a whole entry.
      uint64_t value = 0;
      if (file.size() < aligned + width) break;
      std::memcpy(&value, file.data() + aligned, width);
      const uint64_t step = dice.pick({uint64_t{1}, uint64_t{4}, uint64_t{24}, uint64_t{64}});
      put(file, aligned, dice.once_in(2) ? value + step : value - step, width);
      break;
    }
    case 4: {
      const Layout::Part other = dice.pick(layout.structures);
      const uint64_t bytes = std::min({part.bytes, other.bytes, uint64_t{64}});
      if (std::max(part.offset, other.offset) + bytes <= file.size()) {
        std::memmove(file.data() + part.offset, file.data() + other.offset, bytes);
      }
      break;
    }
    case 5:
      file.resize(dice.once_in(2) ? dice.below(file.size() + 1) : file.size() + dice.below(4096));
      break;
    default:
      if (at < file.size()) {
        file.erase(file.begin() + static_cast<ptrdiff_t>(at),
                   file.begin() + static_cast<ptrdiff_t>(
                                      std::min<uint64_t>(file.size(), at + 1 + dice.below(16))));
      }
  }
}

// Fixed bits of each encoding, so that more than one random word in a thousand is an instruction:
// SOP1, SOP2, SOPC, SOPK, SOPP, SMEM, VOP1, VOP2, VOPC, VOP3, VOP3P and MAI, DS, FLAT, MUBUF.
inline uint32_t random_instruction_word(Dice& dice) {
  struct Prefix {
    uint32_t value;
    int free_bits;
  };
  static constexpr Prefix kPrefixes[] = {
      {0xbe800000, 23}, {0x80000000, 30}, {0xbf000000, 23}, {0xb0000000, 28}, {0xbf800000, 23},
      {0xc0000000, 26}, {0x7e000000, 25}, {0x00000000, 31}, {0x7c000000, 25}, {0xd0000000, 26},
      {0xd3800000, 23}, {0xd8000000, 26}, {0xdc000000, 26}, {0xe0000000, 26}};
  const Prefix& prefix = dice.pick(kPrefixes);
  const uint32_t word =
      prefix.value | static_cast<uint32_t>(dice.below(uint64_t{1} << prefix.free_bits));
  // VOP1, VOP2 and VOPC whose next word is SDWA, DPP or a literal.
  if (prefix.value >> 24 < 0x80 && dice.once_in(4)) {
    return (word & ~0x1ffu) | dice.pick({249u, 250u, 255u});
  }
  return word;
}

inline void damage_code(Dice& dice, std::vector<uint8_t>& file, const Layout& layout,
                        const RecordedLaunch& donor, const Layout& donor_layout) {
  const uint64_t at = layout.text.offset + dice.below(layout.text.bytes / 4) * 4;
  uint32_t word = 0;
  if (file.size() < at + 8) return;
  std::memcpy(&word, file.data() + at, 4);
  switch (dice.below(5)) {
    case 0:
      put(file, at, word ^ uint32_t{1} << dice.below(32), 4);
      break;
    case 1:  // operand fields
      put(file, at, (word & 0xffff0000u) | static_cast<uint32_t>(dice.below(1 << 16)), 4);
      break;
    case 2:
      put(file, at, random_instruction_word(dice), 4);
      break;
    case 3: {  // an instruction of another kernel, with its second word
      const uint64_t from =
          donor_layout.text.offset + dice.below(donor_layout.text.bytes / 4 - 1) * 4;
      std::memcpy(file.data() + at, donor.object.data() + from, 8);
      break;
    }
    default:
      put(file, at, random_instruction_word(dice) | dice.bits() << 32, 8);
  }
}

// A launch to damage: the spec refers to the vectors.
struct DamagedLaunch {
  std::vector<std::byte> arguments;
  std::vector<emulator::MemoryRange> buffers;
  emulator::LaunchSpec spec;

  explicit DamagedLaunch(const RecordedLaunch& launch)
      : arguments(launch.arguments), buffers(launch.buffers) {
    spec.workgroups = launch.workgroups;
    spec.workgroup_size = launch.workgroup_size;
  }

  emulator::LaunchSpec& refreshed() {
    spec.arguments = arguments;
    spec.memory = buffers;
    return spec;
  }
};

inline void damage_arguments(Dice& dice, std::vector<std::byte>& arguments,
                             const std::vector<emulator::MemoryRange>& buffers) {
  const size_t width = dice.pick({size_t{4}, size_t{8}});
  if (dice.once_in(6) || arguments.size() < width) {
    const int64_t change = dice.pick({-8, -4, -1, 1, 4, 8, 256});
    arguments.resize(
        static_cast<size_t>(std::max<int64_t>(0, static_cast<int64_t>(arguments.size()) + change)));
    return;
  }
  std::byte* at = arguments.data() + dice.below(arguments.size() / width) * width;
  uint64_t value = 0;
  std::memcpy(&value, at, width);
  switch (dice.below(5)) {
    case 0:
      value = dice.pick({uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x7fffffff},
                         uint64_t{0x80000000}, uint64_t{1} << 47, uint64_t{1} << 62});
      break;
    case 1:  // pointers off their alignment, sizes off by one
      value += dice.pick({uint64_t{1}, uint64_t{2}, uint64_t{4}, ~uint64_t{0}});
      break;
    case 2:
      if (!buffers.empty()) value = dice.pick(buffers).begin;
      break;
    case 3:
      value ^= uint64_t{1} << dice.below(8 * width);
      break;
    default:
      value = dice.bits();
  }
  std::memcpy(at, &value, width);
}

// A launch may be told of less memory than it needs, not of memory that is not there.
inline void damage_buffers(Dice& dice, std::vector<emulator::MemoryRange>& buffers) {
  if (buffers.empty()) return;
  const size_t index = dice.below(buffers.size());
  emulator::MemoryRange& buffer = buffers[index];
  const uint64_t cut = std::min<uint64_t>(buffer.bytes, 1 + dice.below(1 + buffer.bytes));
  switch (dice.below(4)) {
    case 0:
      buffers.erase(buffers.begin() + static_cast<ptrdiff_t>(index));
      break;
    case 1:
      buffer.bytes -= cut;
      break;
    case 2:
      buffer.begin += cut;
      buffer.bytes -= cut;
      break;
    default:
      buffer.writable = false;
  }
}

inline void damage_launch(Dice& dice, DamagedLaunch& launch) {
  emulator::LaunchSpec& spec = launch.spec;
  switch (dice.below(8)) {
    case 0:
      spec.workgroups[dice.below(3)] = dice.pick({0u, 1u, 2u, 3u, 4u, 0x80000000u, ~0u});
      break;
    case 1:
      spec.workgroup_size[dice.below(3)] =
          dice.pick({0u, 1u, 2u, 63u, 64u, 65u, 255u, 257u, 512u, 1024u, 1025u, 0x80000000u, ~0u});
      break;
    case 2:
      spec.dynamic_lds_bytes =
          dice.pick({1u, 4u, 1024u, 32768u, 160u * 1024, 160u * 1024 + 1, 0x80000000u, ~0u});
      break;
    case 3:
      spec.schedule.quantum = dice.pick({0u, 1u, 2u, 50u, ~0u});
      spec.schedule.reverse = dice.once_in(2);
      break;
    case 4:
      damage_buffers(dice, launch.buffers);
      break;
    default:
      damage_arguments(dice, launch.arguments, launch.buffers);
  }
  // What is legal must also end soon.
  uint64_t total = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const uint64_t items = uint64_t{spec.workgroups[axis]} * spec.workgroup_size[axis];
    if (items > std::numeric_limits<uint32_t>::max()) return;
    total *= std::min<uint64_t>(spec.workgroups[axis], 1024);
  }
  if (total > 16) spec.workgroups = {2, 1, 1};
}

}  // namespace mha_sink::test
