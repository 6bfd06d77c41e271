#include "emulator/line_table.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>

namespace mha_sink::emulator {
namespace {

// Longer than any path that Linux opens (PATH_MAX).
constexpr size_t kMaxPathBytes = 4096;

std::vector<uint8_t> copy(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

std::string to_text(DebugLines::Text text) {
  const size_t most = std::min(text.size(), kMaxPathBytes);
  const auto end = std::find(text.begin(), text.begin() + static_cast<ptrdiff_t>(most), 0);
  if (end == text.end() || *end != 0) return {};
  std::string path(text.begin(), end);
  for (char& c : path) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return path;
}

}  // namespace

LineTable::LineTable(const DebugSections& sections, uint64_t text_address, uint64_t text_bytes)
    : line_(copy(sections.line)),
      line_strings_(copy(sections.line_str)),
      strings_(copy(sections.str)),
      text_address_(text_address),
      text_bytes_(text_bytes) {}

std::optional<SourceLine> LineTable::find(uint64_t address) const {
  std::call_once(read_, [this] {
    const DebugSections sections{line_, line_strings_, strings_};
    lines_ = read_debug_lines(sections, text_address_, text_bytes_);
  });
  const auto after = std::upper_bound(
      lines_.rows.begin(), lines_.rows.end(), address,
      [](uint64_t wanted, const DebugLines::Row& row) { return wanted < row.address; });
  if (after == lines_.rows.begin()) return {};
  const DebugLines::Row& row = *std::prev(after);
  // Line 0: of no line in particular.
  if (row.file == DebugLines::kNoFile || row.line == 0) return {};
  const DebugLines::File& file = lines_.files[row.file];
  const std::string name = to_text(file.name);
  if (name.empty()) return {};
  std::filesystem::path path(to_text(lines_.directories[file.compiled_in]));
  if (file.directory != file.compiled_in) path /= to_text(lines_.directories[file.directory]);
  return SourceLine{(path / name).lexically_normal().string(), row.line};
}

std::string source_suffix(const LineTable* lines, uint64_t address) {
  const std::optional<SourceLine> source = lines ? lines->find(address) : std::nullopt;
  if (!source) return {};
  std::string name = std::filesystem::path(source->path).filename().string();
  if (name.empty()) return {};
  // Messages are read as UTF-8, which a path need not be.
  std::replace_if(name.begin(), name.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  return " (" + name + ":" + std::to_string(source->line) + ")";
}

}  // namespace mha_sink::emulator
