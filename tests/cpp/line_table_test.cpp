// Line tables written by hand: every version, every opcode, and damage.
#include "emulator/line_table.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check.h"

namespace mha_sink::test {
namespace {

using emulator::DebugSections;
using emulator::LineTable;
using emulator::source_suffix;

constexpr uint64_t kText = 0x2900, kTextBytes = 0x1000;
constexpr uint8_t kOpcodeBase = 13, kLineRange = 14;
constexpr int8_t kLineBase = -5;

struct Bytes : std::vector<uint8_t> {
  using vector::vector;

  template <typename T>
  Bytes& put(T value) {
    const auto* data = reinterpret_cast<const uint8_t*>(&value);
    insert(end(), data, data + sizeof value);
    return *this;
  }
  Bytes& uleb(uint64_t value) {
    for (; value >= 0x80; value >>= 7) push_back(static_cast<uint8_t>(value | 0x80));
    push_back(static_cast<uint8_t>(value));
    return *this;
  }
  Bytes& sleb(int64_t value) {
    for (; value < -0x40 || value >= 0x40; value >>= 7) {
      push_back(static_cast<uint8_t>(value | 0x80));
    }
    push_back(static_cast<uint8_t>(value & 0x7f));
    return *this;
  }
  Bytes& text(std::string_view value) {
    insert(end(), value.begin(), value.end());
    push_back(0);
    return *this;
  }
  Bytes& add(const Bytes& other) {
    insert(end(), other.begin(), other.end());
    return *this;
  }

  // The line program.
  Bytes& special(unsigned operations, int lines) {
    return put(static_cast<uint8_t>(kOpcodeBase + operations * kLineRange +
                                    static_cast<unsigned>(lines - kLineBase)));
  }
  Bytes& extended(uint8_t opcode, const Bytes& operands = {}) {
    return put<uint8_t>(0).uleb(operands.size() + 1).put(opcode).add(operands);
  }
  Bytes& set_address(uint64_t address) { return extended(2, Bytes().put(address)); }
  Bytes& end_sequence() { return extended(1); }
  Bytes& copy() { return put<uint8_t>(1); }
  Bytes& advance_pc(uint64_t operations) { return put<uint8_t>(2).uleb(operations); }
  Bytes& advance_line(int64_t lines) { return put<uint8_t>(3).sleb(lines); }
  Bytes& set_file(uint64_t file) { return put<uint8_t>(4).uleb(file); }
};

// The header's fields, to be set wrongly one at a time.
struct Unit {
  uint16_t version = 5;
  bool wide = false;
  uint8_t min_instruction_bytes = 4, operations = 1, line_range = kLineRange;
  uint8_t opcode_base = kOpcodeBase;
  Bytes names;  // directories and files
  Bytes program;

  Bytes header() const {
    Bytes header;
    header.put(min_instruction_bytes);
    if (version >= 4) header.put(operations);
    header.put<uint8_t>(1).put(kLineBase).put(line_range).put(opcode_base);
    constexpr uint8_t kOperands[] = {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
    for (unsigned i = 1; i < opcode_base; ++i) header.put<uint8_t>(i <= 12 ? kOperands[i - 1] : 2);
    return header.add(names);
  }
  Bytes bytes() const {
    const auto offset = [&](Bytes& to, uint64_t value) {
      wide ? to.put(value) : to.put(static_cast<uint32_t>(value));
    };
    Bytes body;
    body.put(version);
    if (version == 5) body.put<uint8_t>(8).put<uint8_t>(0);
    offset(body, header().size());
    body.add(header()).add(program);
    Bytes unit;
    if (wide) unit.put<uint32_t>(0xffffffff);
    offset(unit, body.size());
    return unit.add(body);
  }
};

// Directory "inc", and the files 1, kernel.hip where the compiler ran, and 2, inc/tile.h.
Bytes names_until_4() {
  Bytes names;
  names.text("inc").text("");
  names.text("kernel.hip").uleb(0).uleb(7).uleb(1000);
  names.text("tile.h").uleb(1).uleb(0).uleb(0);
  return names.text("");
}

constexpr char kLineStrings[] = "/src\0inc\0kernel.hip\0tile.h";
constexpr uint32_t kAtInc = 5, kAtKernel = 9, kAtTile = 20;

// The same; file 0 is file 1 again, as clang writes it, with sums that nobody reads.
Bytes names_5(bool wide) {
  const auto strings = [&](Bytes& to, uint32_t at) {
    wide ? to.put<uint64_t>(at) : to.put<uint32_t>(at);
  };
  Bytes names;
  names.put<uint8_t>(1).uleb(1).uleb(0x1f).uleb(2);  // path: line_strp
  strings(names, 0), strings(names, kAtInc);
  // path: line_strp, directory: udata, MD5: data16, one of a vendor: block
  names.put<uint8_t>(4).uleb(1).uleb(0x1f).uleb(2).uleb(0x0f).uleb(5).uleb(0x1e);
  names.uleb(0x2001).uleb(0x09).uleb(3);
  for (const auto& [name, directory] : {std::pair{kAtKernel, 0}, {kAtKernel, 0}, {kAtTile, 1}}) {
    strings(names, name);
    names.uleb(static_cast<uint64_t>(directory)).put<uint64_t>(1).put<uint64_t>(2);
    names.uleb(2).put<uint16_t>(0x4142);
  }
  return names;
}

Bytes small_program() {
  Bytes program;
  program.set_address(kText).advance_line(40).copy();  // line 41
  program.special(2, 3);                               // + 8: 44
  program.set_file(2).special(1, -5);                  // + 12: tile.h, 39
  return program.advance_pc(2).end_sequence();         // until + 20
}

Unit unit_of(uint16_t version, bool wide = false) {
  Unit unit;
  unit.version = version, unit.wide = wide;
  unit.names = version == 5 ? names_5(wide) : names_until_4();
  unit.program = small_program();
  return unit;
}

// Keeps the sections that a table is made from.
struct Table {
  Bytes line, line_strings, strings;
  LineTable table;

  explicit Table(Bytes line_section, Bytes string_section = {})
      : line(std::move(line_section)),
        line_strings(std::begin(kLineStrings), std::end(kLineStrings)),
        strings(std::move(string_section)),
        table(DebugSections{line, line_strings, strings}, kText, kTextBytes) {}
  explicit Table(const Unit& unit) : Table(unit.bytes()) {}

  std::string at(uint64_t address) const {
    const auto source = table.find(address);
    return source ? source->path + ":" + std::to_string(source->line) : "";
  }
  bool none() const {
    for (uint64_t address = 0; address < kTextBytes; address += 4) {
      if (table.find(address)) return false;
    }
    return true;
  }
};

void expect_lines(const Table& table, const std::string& what,
                  std::initializer_list<std::pair<uint64_t, const char*>> expected) {
  for (const auto& [address, line] : expected) {
    const std::string found = table.at(address);
    expect(found == line,
           what + ", + " + std::to_string(address) + ": \"" + found + "\", not \"" + line + "\"");
  }
}

void test_versions() {
  for (const bool wide : {false, true}) {
    for (const uint16_t version : {2, 3, 4, 5}) {
      const std::string src = version == 5 ? "/src/" : "";
      const std::string kernel = src + "kernel.hip:", tile = src + "inc/tile.h:39";
      const std::string what = "version " + std::to_string(version) + (wide ? ", 64-bit" : "");
      const Table table(unit_of(version, wide));
      expect_lines(table, what,
                   {{0, (kernel + "41").c_str()},
                    {4, (kernel + "41").c_str()},
                    {7, (kernel + "41").c_str()},
                    {8, (kernel + "44").c_str()},
                    {12, tile.c_str()},
                    {16, tile.c_str()},
                    {20, ""},
                    {kTextBytes, ""}});
      expect(source_suffix(&table.table, 12) == " (tile.h:39)", what + ": the base name");
      expect(source_suffix(&table.table, 20).empty(), what + ": no name where no line is");
    }
  }
  expect(source_suffix(nullptr, 0).empty(), "no table, no line");
}

void test_opcodes() {
  Unit unit = unit_of(4);
  unit.opcode_base = 15;  // two more standard opcodes, of two operands each
  Bytes& program = unit.program = {};
  program.set_address(kText).put<uint8_t>(3).sleb(99).copy();  // 100
  program.put<uint8_t>(5).uleb(300).put<uint8_t>(6).put<uint8_t>(7);
  program.put<uint8_t>(10).put<uint8_t>(11).put<uint8_t>(12).uleb(1);
  program.put<uint8_t>(13).uleb(1000).uleb(1).put<uint8_t>(14).uleb(1).uleb(2);
  program.extended(4, Bytes().uleb(5)).extended(0x80, Bytes().text("a vendor's"));
  program.put<uint8_t>(8).advance_line(-99).copy();  // const_add_pc: + (255 - 15) / 14 * 4 = 68
  program.put<uint8_t>(9).put<uint16_t>(2).advance_line(1 << 20).copy();  // + 70, unscaled
  program.advance_pc(300).set_file(2).copy();                             // + 1270
  program.extended(3, Bytes().text("defined.h").uleb(1).uleb(0).uleb(0));
  program.advance_pc(1).set_file(3).copy();                               // + 1274
  program.advance_pc(1).set_file(4).copy();                               // + 1278: no such file
  program.advance_pc(1).set_file(1).advance_line(-(1 << 20) - 1).copy();  // line 0
  program.advance_pc(1).advance_line(5).copy().advance_line(1).copy();    // the last one holds
  program.advance_pc(1).end_sequence();
  expect_lines(Table(unit), "opcodes",
               {{0, "kernel.hip:100"},
                {64, "kernel.hip:100"},
                {68, "kernel.hip:1"},
                {69, "kernel.hip:1"},
                {70, "kernel.hip:1048577"},
                {1269, "kernel.hip:1048577"},
                {1270, "inc/tile.h:1048577"},
                {1274, "inc/defined.h:1048577"},
                {1278, ""},
                {1282, ""},
                {1286, "kernel.hip:6"},
                {1290, ""}});

  unit = unit_of(3);
  unit.min_instruction_bytes = 1;
  expect_lines(Table(unit), "instructions of 1 byte",
               {{1, "kernel.hip:41"}, {2, "kernel.hip:44"}, {3, "inc/tile.h:39"}, {5, ""}});

  unit = unit_of(3);
  unit.opcode_base = 10;  // as in version 2: 10 to 12 are special
  unit.program = Bytes().set_address(kText).advance_line(9).put<uint8_t>(12);
  unit.program.advance_pc(1).end_sequence();
  expect_lines(Table(unit), "opcode base 10", {{0, "kernel.hip:7"}, {4, ""}});
}

Bytes sequence(uint64_t begin, uint64_t instructions, int64_t line) {
  Bytes program;
  program.set_address(begin).advance_line(line - 1).copy();
  return program.advance_pc(instructions).end_sequence();
}

void test_sequences() {
  Unit unit = unit_of(5);
  Bytes& program = unit.program = {};
  program.add(sequence(kText + 0x200, 4, 20)).add(sequence(kText + 0x100, 0x40, 10));
  program.add(sequence(kText - 8, 3, 9))
      .add(sequence(0, 0x1000, 1))
      .add(sequence(~uint64_t{0}, 2, 2));  // dropped by the linker
  program.add(sequence(kText + kTextBytes - 4, 1, 30)).add(sequence(kText + kTextBytes - 8, 3, 3));
  program.set_address(kText + 0x404).copy().set_address(kText + 0x400).copy().advance_pc(4);
  program.end_sequence().end_sequence();
  // The last row has no bytes.
  program.set_address(kText + 0x300).copy().advance_pc(1).advance_line(8).copy().end_sequence();
  program.set_address(kText + 0x500).copy().advance_pc(1);  // never ended
  const Unit other = unit_of(4);
  expect_lines(Table(unit.bytes().add(other.bytes())), "sequences",
               {{0, "kernel.hip:41"},
                {4, "kernel.hip:41"},
                {20, ""},
                {0xfc, ""},
                {0x100, "/src/kernel.hip:10"},
                {0x1fc, "/src/kernel.hip:10"},
                {0x200, "/src/kernel.hip:20"},
                {0x20c, "/src/kernel.hip:20"},
                {0x210, ""},
                {0x300, "/src/kernel.hip:1"},
                {0x304, ""},
                {0x400, ""},
                {0x404, ""},
                {0x500, ""},
                {kTextBytes - 8, ""},
                {kTextBytes - 4, "/src/kernel.hip:30"}});
}

// Names in other places than clang puts them.
void test_names() {
  const auto table = [](const Bytes& files, const Bytes& strings = {}) {
    Unit unit = unit_of(5);
    unit.names = Bytes().put<uint8_t>(1).uleb(1).uleb(8).uleb(1).text("here").add(files);
    unit.program = Bytes().set_address(kText).set_file(0).copy().advance_pc(1).end_sequence();
    return std::make_unique<Table>(unit.bytes(), strings);
  };
  const auto inline_name = [](std::string_view name) {
    return Bytes().put<uint8_t>(1).uleb(1).uleb(8).uleb(1).text(name);
  };
  expect_lines(*table(inline_name("a.hip")), "an inline name", {{0, "here/a.hip:1"}});
  expect_lines(*table(inline_name("./b/../a.hip")), "a name with dots", {{0, "here/a.hip:1"}});
  expect_lines(*table(inline_name("/a.hip")), "an absolute name", {{0, "/a.hip:1"}});
  expect_lines(*table(inline_name("a\n\x1b.hip")), "control characters", {{0, "here/a??.hip:1"}});
  expect_lines(*table(inline_name("")), "no name", {{0, ""}});
  expect_lines(*table(inline_name(std::string(4096, 'a'))), "a path of 4096 bytes",
               {{0, ("here/" + std::string(4096, 'a') + ":1").c_str()}});
  expect_lines(*table(inline_name(std::string(4097, 'a'))), "a longer path", {{0, ""}});
  const auto latin = table(inline_name("k\xe4.hip"));
  expect(source_suffix(&latin->table, 0) == " (k?.hip:1)", "bytes that are no UTF-8");

  // Directory by data1, path by strp.
  const auto files = [](uint8_t directory, uint32_t at) {
    return Bytes().put<uint8_t>(2).uleb(2).uleb(0x0b).uleb(1).uleb(0x0e).uleb(1).put(directory).put(
        at);
  };
  const Bytes strings = Bytes().text("x").text("s.hip");
  expect_lines(*table(files(0, 2), strings), "a name in .debug_str", {{0, "here/s.hip:1"}});
  expect(table(files(0, 8), strings)->none(), "a name past .debug_str");
  expect(table(files(0, 2))->none(), "no .debug_str");
  expect(table(files(1, 2), strings)->none(), "no such directory");
  const Bytes open_end{'o', 'p', 'e', 'n'};
  expect(table(files(0, 0), open_end)->none(), "a name that does not end");
}

void test_malformed() {
  const auto broken = [](const std::string& what, auto damage) {
    for (const uint16_t version : {4, 5}) {
      Unit unit = unit_of(version);
      expect(!Table(unit).none(), "the twin of: " + what);
      damage(unit);
      // A unit of its own before and behind has its lines.
      Unit first = unit_of(4), last = unit_of(5);
      first.program = sequence(kText + 0x100, 1, 5), last.program = sequence(kText + 0x200, 1, 6);
      const Table table(first.bytes().add(unit.bytes()).add(last.bytes()));
      expect_lines(table, what, {{0, ""}, {0x100, "kernel.hip:5"}, {0x200, "/src/kernel.hip:6"}});
    }
  };
  broken("line range 0", [](Unit& unit) { unit.line_range = 0; });
  broken("opcode base 0", [](Unit& unit) { unit.opcode_base = 0; });
  broken("VLIW", [](Unit& unit) { unit.operations = 4; });
  broken("version 1", [](Unit& unit) { unit.version = 1; });
  broken("version 6", [](Unit& unit) { unit.version = 6; });
  broken("no names", [](Unit& unit) { unit.names.clear(); });
  broken("an operation without opcode",
         [](Unit& unit) { unit.program.put<uint8_t>(0).put<uint8_t>(0); });
  broken("an operation past the end",
         [](Unit& unit) { unit.program.put<uint8_t>(0).uleb(uint64_t{1} << 63).put<uint8_t>(2); });
  broken("an address of 4 bytes",
         [](Unit& unit) { unit.program.extended(2, Bytes().put<uint32_t>(8)); });
  broken("a number that does not end", [](Unit& unit) {
    unit.program.put<uint8_t>(2);
    for (int i = 0; i < 1000; ++i) unit.program.put<uint8_t>(0xff);
  });
  broken("an operand that is missing", [](Unit& unit) { unit.program.put<uint8_t>(9); });
  const auto names = [](const Bytes& bytes) {
    return [bytes](Unit& unit) {
      unit.names = unit.version == 5 ? bytes : Bytes().text("").text("a").uleb(1).uleb(0).uleb(0);
    };
  };
  // Nothing is read for an entry of no formats.
  broken("2^62 empty entries", names(Bytes().put<uint8_t>(0).uleb(uint64_t{1} << 62)));
  broken("2^62 entries that are missing",
         names(Bytes().put<uint8_t>(1).uleb(1).uleb(8).uleb(uint64_t{1} << 62).text("a")));
  broken("an unknown form", names(Bytes().put<uint8_t>(1).uleb(1).uleb(0x1a).uleb(1).uleb(0)));
}

void test_damage() {
  for (const uint16_t version : {2, 4, 5}) {
    const Bytes whole = unit_of(version).bytes();
    for (size_t size = 0; size < whole.size(); ++size) {
      expect(Table(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size))).none(),
             "cut off after " + std::to_string(size));
    }
    // Lengths that agree with what is left, and random bytes: no crash, and no line of elsewhere.
    std::mt19937 random(version);
    for (int i = 0; i < 20000; ++i) {
      Bytes damaged = whole;
      if (i % 2) damaged.resize(random() % whole.size() + 1);
      for (unsigned left = random() % 4; left > 0; --left) {
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      }
      if (damaged.size() >= 4) {
        const auto length = static_cast<uint32_t>(damaged.size() - 4);
        std::memcpy(damaged.data(), &length, 4);
      }
      const Table table(damaged);
      for (uint64_t address = 0; address < 64; address += 4) table.at(address);
      expect(table.at(kTextBytes).empty(), "no line behind the text");
    }
  }
  for (const uint32_t length : {0u, 0xfffffff0u, 0xfffffffeu, 0xffffffffu}) {
    Bytes reserved;
    reserved.put(length).add(unit_of(5).bytes());
    expect(Table(reserved).none() == (length != 0), "a unit of length " + std::to_string(length));
  }
  Bytes wide = Bytes().put<uint32_t>(0xffffffff).put(~uint64_t{0}).add(unit_of(5).bytes());
  expect(Table(wide).none(), "a 64-bit unit of all bytes");
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  test_versions();
  test_opcodes();
  test_sequences();
  test_names();
  test_malformed();
  test_damage();
  return summary();
}
