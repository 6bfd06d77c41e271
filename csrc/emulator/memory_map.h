// The global memory that one launch may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mha_sink::emulator {

struct MemoryRange {
  uintptr_t begin = 0;
  size_t bytes = 0;
  bool writable = true;
  std::string name;  // for fault messages
};

// Ranges may overlap (interleaved views of one allocation); an access is legal when it lies inside
// the union of readable ranges (loads) or writable ranges (stores, atomics).
class MemoryMap {
 public:
  explicit MemoryMap(std::span<const MemoryRange> ranges);

  bool readable(uintptr_t address, size_t bytes) const {
    return contains(readable_, address, bytes);
  }
  bool writable(uintptr_t address, size_t bytes) const {
    return contains(writable_, address, bytes);
  }

  // "0x7f.. (12 bytes past the end of lse)": for fault messages.
  std::string describe(uintptr_t address) const;

 private:
  struct Interval {
    uintptr_t begin, end;
  };
  static bool contains(const std::vector<Interval>& intervals, uintptr_t address, size_t bytes);

  std::vector<MemoryRange> ranges_;
  std::vector<Interval> readable_, writable_;  // merged, ascending
};

}  // namespace mha_sink::emulator
