#include "emulator/debug_line.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mha_sink::emulator {
namespace {

using Bytes = std::span<const uint8_t>;
using Text = DebugLines::Text;
using Row = DebugLines::Row;

// DWARF 5, section 7.22 (DW_LNS_*, DW_LNE_*, DW_LNCT_*) and 7.5.6 (DW_FORM_*).
enum StandardOpcode : uint8_t {
  kExtended = 0,
  kCopy = 1,
  kAdvancePc = 2,
  kAdvanceLine = 3,
  kSetFile = 4,
  kConstAddPc = 8,
  kFixedAdvancePc = 9
};
enum ExtendedOpcode : uint8_t { kEndSequence = 1, kSetAddress = 2, kDefineFile = 3 };
enum Content : uint64_t { kPath = 1, kDirectoryIndex = 2 };
enum Form : uint64_t {
  kData2 = 0x05,
  kData4 = 0x06,
  kData8 = 0x07,
  kString = 0x08,
  kBlock = 0x09,
  kData1 = 0x0b,
  kStrp = 0x0e,
  kUdata = 0x0f,
  kData16 = 0x1e,
  kLineStrp = 0x1f
};

// Reads forward. Past the end it reads zeros, remembers that, and is at the end.
class Cursor {
 public:
  explicit Cursor(Bytes bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  bool failed() const { return failed_; }
  void fail() {
    failed_ = true;
    rest_ = {};
  }

  template <typename T>
  T read() {
    T value{};
    const Bytes bytes = take(sizeof value);
    if (!failed_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  Bytes take(uint64_t count) {
    if (count > rest_.size()) {
      fail();
      return {};
    }
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  // LEB128 numbers; bits beyond the 64th are dropped.
  uint64_t unsigned_number() { return number(false); }
  int64_t signed_number() { return static_cast<int64_t>(number(true)); }
  // An offset or a length: 8 bytes in 64-bit DWARF, else 4.
  uint64_t offset(bool wide) { return wide ? read<uint64_t>() : read<uint32_t>(); }
  Text text() {
    const Text begin = rest_;
    const auto end = std::find(rest_.begin(), rest_.end(), 0);
    if (end == rest_.end()) fail();
    take(failed_ ? 0 : static_cast<uint64_t>(end - rest_.begin()) + 1);
    return begin;
  }

 private:
  uint64_t number(bool sign) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = read<uint8_t>();
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if (byte & 0x80) continue;
      if (sign && (byte & 0x40) && shift + 7 < 64) value |= ~uint64_t{0} << (shift + 7);
      return value;
    }
  }

  Bytes rest_;
  bool failed_ = false;
};

// The header of one unit: all that its program needs.
struct Unit {
  uint16_t version = 0;
  bool wide = false;
  uint8_t min_instruction_bytes = 0, line_range = 0, opcode_base = 0;
  int8_t line_base = 0;
  Bytes operand_counts;  // of opcode i at i - 1
  // In DebugLines. The first file is number 1 before version 5, then 0.
  uint32_t first_file = 0, first_directory = 0;
};

class Reader {
 public:
  Reader(const DebugSections& sections, uint64_t text_address, uint64_t text_bytes)
      : sections_(sections), text_address_(text_address), text_bytes_(text_bytes) {}

  DebugLines read() {
    Cursor units(sections_.line);
    while (!units.at_end()) {
      uint64_t bytes = units.read<uint32_t>();
      const bool wide = bytes == 0xffffffff;
      if (wide) bytes = units.read<uint64_t>();
      const Bytes unit = units.take(bytes);
      if (!units.failed()) read_unit(Cursor(unit), wide);
    }
    // Where one sequence ends and another begins, the beginning holds.
    std::stable_sort(lines_.rows.begin(), lines_.rows.end(), [](const Row& a, const Row& b) {
      return std::pair(a.address, a.file != DebugLines::kNoFile) <
             std::pair(b.address, b.file != DebugLines::kNoFile);
    });
    return std::move(lines_);
  }

 private:
  void read_unit(Cursor cursor, bool wide) {
    Unit unit;
    unit.wide = wide;
    unit.first_directory = static_cast<uint32_t>(lines_.directories.size());
    unit.first_file = static_cast<uint32_t>(lines_.files.size());
    std::vector<Row> found;
    if (!read_header(cursor, unit) || !run(cursor, unit, found)) return;
    lines_.rows.insert(lines_.rows.end(), found.begin(), found.end());
  }

  // Leaves the cursor at the unit's program.
  bool read_header(Cursor& cursor, Unit& unit) {
    unit.version = cursor.read<uint16_t>();
    if (unit.version < 2 || unit.version > 5) return false;
    if (unit.version == 5) cursor.read<uint16_t>();  // sizes of addresses and segment selectors
    Cursor header(cursor.take(cursor.offset(unit.wide)));
    unit.min_instruction_bytes = header.read<uint8_t>();
    if (unit.version >= 4 && header.read<uint8_t>() != 1) return false;  // operations of a VLIW
    header.read<uint8_t>();                                              // default_is_stmt
    unit.line_base = header.read<int8_t>();
    unit.line_range = header.read<uint8_t>();
    unit.opcode_base = header.read<uint8_t>();
    if (unit.line_range == 0 || unit.opcode_base == 0) return false;
    unit.operand_counts = header.take(unit.opcode_base - 1u);
    if (unit.version == 5) {
      read_entries(header, unit, [&](Text path, uint64_t) { lines_.directories.push_back(path); });
      read_entries(header, unit,
                   [&](Text path, uint64_t directory) { add_file(header, unit, path, directory); });
    } else {
      read_names(header, unit);
    }
    return !header.failed() && !cursor.failed();
  }

  // Versions 2 to 4: both lists end at an empty string. Directory 0 is where the compiler ran,
  // which only .debug_info says.
  void read_names(Cursor& header, const Unit& unit) {
    static constexpr uint8_t kNothing[1] = {0};
    lines_.directories.emplace_back(kNothing);
    for (Text name = header.text(); !header.failed() && name[0] != 0; name = header.text()) {
      lines_.directories.push_back(name);
    }
    for (Text name = header.text(); !header.failed() && name[0] != 0; name = header.text()) {
      read_file(header, unit, name);
    }
  }

  void read_file(Cursor& cursor, const Unit& unit, Text name) {
    add_file(cursor, unit, name, cursor.unsigned_number());
    cursor.unsigned_number();  // time of modification
    cursor.unsigned_number();  // bytes
  }

  void add_file(Cursor& cursor, const Unit& unit, Text name, uint64_t directory) {
    if (directory >= lines_.directories.size() - unit.first_directory) cursor.fail();
    if (cursor.failed()) return;
    lines_.files.push_back(
        {name, unit.first_directory + static_cast<uint32_t>(directory), unit.first_directory});
  }

  // Version 5: formats, then entries of that many values. An entry without a path is malformed,
  // which also ends a billion entries of no bytes each.
  template <typename Function>
  void read_entries(Cursor& header, const Unit& unit, Function add) {
    std::vector<std::pair<uint64_t, uint64_t>> formats(header.read<uint8_t>());
    for (auto& [content, form] : formats) {
      content = header.unsigned_number();
      form = header.unsigned_number();
    }
    for (uint64_t left = header.unsigned_number(); left > 0 && !header.failed(); --left) {
      Text path;
      uint64_t directory = 0;
      for (const auto& [content, form] : formats) {
        const auto [text, number] = read_value(header, form, unit.wide);
        if (content == kPath) path = text;
        if (content == kDirectoryIndex) directory = number;
      }
      if (path.empty()) header.fail();
      if (!header.failed()) add(path, directory);
    }
  }

  struct Value {
    Text text;
    uint64_t number = 0;
  };
  Value read_value(Cursor& header, uint64_t form, bool wide) {
    const auto from = [&](Bytes section) -> Value {
      const uint64_t offset = header.offset(wide);
      return {offset < section.size() ? section.subspan(offset) : Text(), 0};
    };
    switch (form) {
      case kString:
        return {header.text(), 0};
      case kLineStrp:
        return from(sections_.line_str);
      case kStrp:
        return from(sections_.str);
      case kUdata:
        return {{}, header.unsigned_number()};
      case kData1:
        return {{}, header.read<uint8_t>()};
      case kData2:
        return {{}, header.read<uint16_t>()};
      case kData4:
        return {{}, header.read<uint32_t>()};
      case kData8:
        return {{}, header.read<uint64_t>()};
      case kData16:  // an MD5 sum
        header.take(16);
        return {};
      case kBlock:
        header.take(header.unsigned_number());
        return {};
      default:
        header.fail();
        return {};
    }
  }

  struct State {
    uint64_t address = 0, file = 1;
    uint32_t line = 1;
  };

  // Executes the unit's program; false when it is malformed.
  bool run(Cursor program, const Unit& unit, std::vector<Row>& found) {
    State state;
    std::vector<Row> sequence;
    const auto advance = [&](uint64_t operations) {
      state.address += operations * unit.min_instruction_bytes;
    };
    while (!program.at_end()) {
      const auto opcode = program.read<uint8_t>();
      if (opcode >= unit.opcode_base) {
        const unsigned adjusted = opcode - unit.opcode_base;
        advance(adjusted / unit.line_range);
        state.line += static_cast<uint32_t>(unit.line_base + int(adjusted % unit.line_range));
        append(sequence, state, unit);
        continue;
      }
      switch (opcode) {
        case kExtended: {
          Cursor operation(program.take(program.unsigned_number()));
          const auto extended = operation.read<uint8_t>();
          if (extended == kEndSequence) {
            add_sequence(sequence, state.address, found);
            sequence.clear();
            state = {};
          } else if (extended == kSetAddress) {
            state.address = operation.read<uint64_t>();
          } else if (extended == kDefineFile && unit.version < 5) {
            read_file(operation, unit, operation.text());
          }
          if (operation.failed()) return false;
          break;
        }
        case kCopy:
          append(sequence, state, unit);
          break;
        case kAdvancePc:
          advance(program.unsigned_number());
          break;
        case kAdvanceLine:
          state.line += static_cast<uint32_t>(program.signed_number());
          break;
        case kSetFile:
          state.file = program.unsigned_number();
          break;
        case kConstAddPc:
          advance((255u - unit.opcode_base) / unit.line_range);
          break;
        case kFixedAdvancePc:
          state.address += program.read<uint16_t>();
          break;
        default:  // a column, a flag, or of a later version
          for (unsigned i = unit.operand_counts[opcode - 1u]; i > 0; --i) program.unsigned_number();
      }
    }
    return !program.failed();
  }

  void append(std::vector<Row>& sequence, const State& state, const Unit& unit) const {
    const uint64_t index = state.file - (unit.version < 5 ? 1 : 0);
    const bool known = index < lines_.files.size() - unit.first_file;
    const uint32_t file =
        known ? unit.first_file + static_cast<uint32_t>(index) : DebugLines::kNoFile;
    sequence.push_back({state.address, file, state.line});
  }

  // Addresses of a sequence only increase. One outside of the text section belongs to a function
  // that the linker dropped.
  void add_sequence(const std::vector<Row>& sequence, uint64_t end, std::vector<Row>& found) const {
    if (sequence.empty() || sequence.front().address < text_address_ ||
        end - text_address_ > text_bytes_ || end < sequence.back().address) {
      return;
    }
    const auto by_address = [](const Row& a, const Row& b) { return a.address < b.address; };
    if (!std::is_sorted(sequence.begin(), sequence.end(), by_address)) return;
    for (Row row : sequence) {
      if (row.address == end) break;  // a row of no bytes
      row.address -= text_address_;
      found.push_back(row);
    }
    found.push_back({end - text_address_});
  }

  const DebugSections& sections_;
  const uint64_t text_address_, text_bytes_;
  DebugLines lines_;
};

}  // namespace

DebugLines read_debug_lines(const DebugSections& sections, uint64_t text_address,
                            uint64_t text_bytes) {
  return Reader(sections, text_address, text_bytes).read();
}

}  // namespace mha_sink::emulator
