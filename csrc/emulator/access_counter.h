// Counts what a launch's memory instructions do: bytes, cache lines, LDS clocks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/memory_map.h"
#include "emulator/observer.h"

namespace mha_sink::emulator {

// Of one static instruction, over all its executions.
struct SiteCounts {
  uint64_t bytes = 0;       // that lanes moved; LDS-DMA: from memory
  uint64_t lines = 0;       // distinct cache lines of one execution, summed
  uint64_t lds_bytes = 0;   // LDS-DMA too
  uint64_t lds_clocks = 0;  // as in lds_banks.h; LDS-DMA: what it writes / 128 bytes
  uint64_t lds_least_clocks = 0;
};

// Cache lines of one buffer, as if it began at a line: a GPU's allocators see to that. Buffers that
// overlap are one, named "q+k+v".
struct BufferCounts {
  uint64_t lines = 0, lines_read = 0, lines_written = 0;  // distinct in a launch; atomics are both
  uint64_t workgroup_lines = 0;                           // distinct in a workgroup, summed
};

// Of the launches of one kernel.
struct AccessCounts {
  std::vector<SiteCounts> sites;  // index: Kernel::program
  std::map<std::string, BufferCounts> buffers;

  AccessCounts& operator+=(const AccessCounts& other);
};

// Give `observers()` to one launch on that memory; counts() holds when it returned.
class AccessCounter {
 public:
  AccessCounter(const Kernel& kernel, std::span<const MemoryRange> memory);
  ~AccessCounter();

  ObserverFactory observers();
  AccessCounts counts() const;

 private:
  class ThreadCounter;
  struct Region {
    std::string name;
    uint64_t begin, end;           // addresses
    std::vector<uint8_t> touched;  // by line from `begin` on: bits kRead, kWritten
    uint64_t workgroup_lines = 0;
  };

  const Kernel& kernel_;
  std::vector<Region> regions_;  // ascending, disjoint
  std::vector<SiteCounts> sites_;
  std::mutex mutex_;
};

}  // namespace mha_sink::emulator
