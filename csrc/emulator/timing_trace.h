// What the waves of a workgroup executed, in order: the input of the timing model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/observer.h"

namespace mha_sink::emulator {

// One executed instruction: its index, and what it asked of LDS and memory.
struct TraceEntry {
  uint32_t pc = 0;
  uint16_t lds_clocks = 0;
  uint16_t lines = 0, atomic_bytes = 0;
};

struct WorkgroupTrace {
  std::array<uint32_t, 3> id{};
  std::vector<std::vector<TraceEntry>> waves;
};

// Hands over each workgroup's trace when the workgroup ends, on the thread that executed it.
ObserverFactory trace_observers(const Kernel& kernel,
                                std::function<void(const WorkgroupTrace&)> ended);

}  // namespace mha_sink::emulator
