#include "emulator/memory_map.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <tuple>

namespace mha_sink::emulator {
namespace {

std::string hex(uintptr_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

}  // namespace

MemoryMap::MemoryMap(std::span<const MemoryRange> ranges) {
  for (const MemoryRange& range : ranges) {
    if (range.bytes == 0) continue;
    ranges_.push_back(range);
    // A range that would wrap around the address space ends at its last byte.
    ranges_.back().bytes =
        std::min<size_t>(range.bytes, std::numeric_limits<uintptr_t>::max() - range.begin);
  }
  std::sort(ranges_.begin(), ranges_.end(), [](const MemoryRange& left, const MemoryRange& right) {
    return std::tie(left.begin, left.bytes, left.name) <
           std::tie(right.begin, right.bytes, right.name);
  });
  // Touching ranges merge too: an access may straddle two views of one allocation.
  const auto append = [](std::vector<Interval>& intervals, const MemoryRange& range) {
    const uintptr_t end = range.begin + range.bytes;
    if (!intervals.empty() && range.begin <= intervals.back().end) {
      intervals.back().end = std::max(intervals.back().end, end);
    } else {
      intervals.push_back({range.begin, end});
    }
  };
  for (const MemoryRange& range : ranges_) {
    append(readable_, range);
    if (range.writable) append(writable_, range);
  }
}

bool MemoryMap::contains(const std::vector<Interval>& intervals, uintptr_t address, size_t bytes) {
  const auto after = std::upper_bound(
      intervals.begin(), intervals.end(), address,
      [](uintptr_t value, const Interval& interval) { return value < interval.begin; });
  if (after == intervals.begin()) return false;
  const uintptr_t end = std::prev(after)->end;
  return address <= end && bytes <= end - address;
}

std::string MemoryMap::describe(uintptr_t address) const {
  const std::string text = hex(address);
  const MemoryRange* nearest = nullptr;
  uintptr_t nearest_distance = std::numeric_limits<uintptr_t>::max();
  for (const MemoryRange& range : ranges_) {
    const uintptr_t end = range.begin + range.bytes;
    if (address >= range.begin && address < end) {
      return text + " (byte " + std::to_string(address - range.begin) + " of the " +
             std::to_string(range.bytes) + " of " + range.name +
             (range.writable ? ")" : ", read-only)");
    }
    const uintptr_t distance = address < range.begin ? range.begin - address : address - end;
    if (distance < nearest_distance) {
      nearest = &range;
      nearest_distance = distance;
    }
  }
  // Beyond this an address is a wrong pointer rather than an overrun, and the nearest buffer says
  // nothing about it.
  constexpr uintptr_t kNear = uintptr_t{1} << 30;
  if (nearest == nullptr || nearest_distance > kNear) {
    return text + " (far from every buffer of the launch)";
  }
  return text + " (" + std::to_string(nearest_distance) +
         (address < nearest->begin ? " bytes before the start of " : " bytes past the end of ") +
         nearest->name + ")";
}

}  // namespace mha_sink::emulator
