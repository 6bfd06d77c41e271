#include "emulator/timing_trace.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "emulator/lds_banks.h"
#include "emulator/memory_access.h"

namespace mha_sink::emulator {
namespace {

class TraceObserver final : public Observer {
 public:
  TraceObserver(const Kernel& kernel, const std::function<void(const WorkgroupTrace&)>& ended)
      : ended_(ended) {
    for (const Instruction& instruction : kernel.program) {
      shapes_.push_back(access_shape(instruction));
    }
  }

  void start(const Workgroup& workgroup, std::span<Wave> waves) override {
    std::copy_n(workgroup.id, 3, current_.id.begin());
    current_.waves.resize(waves.size());
    for (auto& wave : current_.waves) wave.clear();
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    const AccessShape& shape = shapes_[pc];
    TraceEntry entry{pc};
    if (shape.space == MemorySpace::lds) {
      for (unsigned which = 0; which < shape.accesses; ++which) {
        const LaneAddresses at = lane_addresses(instruction, shape, wave, which);
        entry.lds_clocks += lds_clocks(shape.kind, shape.bytes, at.lanes, at.address).clocks;
      }
    } else if (shape.space == MemorySpace::global || shape.space == MemorySpace::scratch) {
      count_lines(instruction, shape, wave, entry);
    } else if (instruction.format == Format::ds) {
      entry.lds_clocks = 1;  // lanes exchange through the banks
    }
    current_.waves[wave.index].push_back(entry);
  }

  void end() override { ended_(current_); }

 private:
  static void count_lines(const Instruction& instruction, const AccessShape& shape,
                          const Wave& wave, TraceEntry& entry) {
    const LaneAddresses at = lane_addresses(instruction, shape, wave);
    std::array<uint64_t, kLanes> lines;
    size_t used = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (at.lanes >> lane & 1) lines[used++] = at.address[lane] / kLineBytes;
    }
    std::sort(lines.begin(), lines.begin() + used);
    entry.lines =
        static_cast<uint16_t>(std::unique(lines.begin(), lines.begin() + used) - lines.begin());
    if (shape.kind == AccessKind::atomic) {
      entry.atomic_bytes = static_cast<uint16_t>(shape.bytes * used);
    }
    if (shape.lds_dma) {
      entry.lds_clocks = static_cast<uint16_t>(shape.dma_bytes * std::popcount(wave.exec()) / 128);
    }
  }

  const std::function<void(const WorkgroupTrace&)>& ended_;
  std::vector<AccessShape> shapes_;
  WorkgroupTrace current_;
};

}  // namespace

ObserverFactory trace_observers(const Kernel& kernel,
                                std::function<void(const WorkgroupTrace&)> ended) {
  return [&kernel, ended = std::move(ended)] {
    return std::make_unique<TraceObserver>(kernel, ended);
  };
}

}  // namespace mha_sink::emulator
