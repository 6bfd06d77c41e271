// Results of memory instructions that are used before an s_waitcnt covers them.
//
// vmcnt falls in the order of issue. lgkmcnt counts LDS, which completes in order, and scalar
// memory, which does not: a wait for n outstanding proves an LDS operation complete when n or more
// LDS operations followed it, and a scalar load when n is 0.
#include <algorithm>
#include <array>

#include "emulator/sanitize.h"

namespace mha_sink::emulator {
namespace {

enum Counter : uint8_t { kVector, kLds, kScalar, kCounters };
constexpr std::string_view kWaits[] = {"vmcnt", "lgkmcnt", "lgkmcnt"};
constexpr std::string_view kUnits[] = {"vector memory", "LDS", "scalar memory"};

struct PendingResult {
  uint64_t sequence = 0;  // 0: none
  uint32_t pc = 0;
  Counter counter = kVector;
};

struct WaveWaits {
  std::array<PendingResult, kRegisterIds> pending;
  std::array<uint64_t, kCounters> issued{}, done{};
  VectorMemoryQueue memory;

  bool outstanding(const PendingResult& result) const {
    return result.sequence > done[result.counter];
  }
  bool any_outstanding() const { return issued != done; }
};

class WaitsCheck final : public Observer {
 public:
  explicit WaitsCheck(Program program) : program_(std::move(program)) {}

  void start(const Workgroup&, std::span<Wave> waves) override {
    waves_.assign(waves.size(), WaveWaits{});
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    WaveWaits& state = waves_[wave.index];
    if (instruction.op == Op::s_waitcnt) return wait(instruction, state);
    const Sanitized& sanitized = program_->instructions[pc];
    if (state.any_outstanding()) check_registers(sanitized, state);
    if (sanitized.shape.space == MemorySpace::lds) check_dma(instruction, sanitized, wave);
    issue(pc, instruction, sanitized, wave, state);
  }

 private:
  static void wait(const Instruction& instruction, WaveWaits& state) {
    state.memory.wait(vmcnt_field(instruction), [](const VectorMemoryQueue::Dma&) {});
    state.done[kVector] = state.memory.done();
    const uint64_t left = lgkmcnt_field(instruction);
    if (state.issued[kLds] > left) {
      state.done[kLds] = std::max(state.done[kLds], state.issued[kLds] - left);
    }
    if (left == 0) state.done[kScalar] = state.issued[kScalar];
  }

  static Counter counter(const Sanitized& sanitized) {
    if (sanitized.vector_memory) return kVector;
    if (sanitized.kind == InstructionClass::lds) return kLds;
    if (sanitized.kind == InstructionClass::smem) return kScalar;
    return kCounters;
  }

  void check_registers(const Sanitized& sanitized, const WaveWaits& state) const {
    for (const RegisterRange& range : sanitized.footprint.reads()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        if (state.outstanding(state.pending[id])) fail("reads", id, state.pending[id]);
      }
    }
    // Results of one in-order counter overwrite each other in order.
    const Counter own = counter(sanitized);
    for (const RegisterRange& range : sanitized.footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        const PendingResult& pending = state.pending[id];
        if (!state.outstanding(pending)) continue;
        if (pending.counter != own || own == kScalar) fail("overwrites", id, pending);
      }
    }
  }

  [[noreturn]] void fail(const char* verb, RegisterId id, const PendingResult& pending) const {
    throw SanitizerError(std::string(verb) + " " + register_name(id) + " before an s_waitcnt " +
                         std::string(kWaits[pending.counter]) + " covers the " +
                         std::string(kUnits[pending.counter]) + " result of " +
                         program_->describe(pending.pc));
  }

  void check_dma(const Instruction& instruction, const Sanitized& sanitized,
                 const Wave& wave) const {
    const bool none = std::all_of(waves_.begin(), waves_.end(), [](const WaveWaits& state) {
      return state.memory.in_flight().empty();
    });
    if (none) return;
    uint64_t lowest = ~uint64_t{0}, highest = 0;
    const auto widen = [&](int, uint64_t begin, uint64_t end) {
      lowest = std::min(lowest, begin);
      highest = std::max(highest, end);
    };
    for_each_access(instruction, sanitized.shape, wave, widen);
    for (size_t other = 0; other < waves_.size(); ++other) {
      for (const VectorMemoryQueue::Dma& dma : waves_[other].memory.in_flight()) {
        if (dma.end <= lowest || dma.begin >= highest) continue;
        for_each_access(instruction, sanitized.shape, wave,
                        [&](int lane, uint64_t begin, uint64_t end) {
                          if (begin >= dma.end || dma.begin >= end) return;
                          fail_dma(lane, std::max<uint64_t>(begin, dma.begin), dma, other);
                        });
      }
    }
  }

  [[noreturn]] void fail_dma(int lane, uint64_t byte, const VectorMemoryQueue::Dma& dma,
                             size_t other) const {
    throw SanitizerError("accesses LDS byte " + std::to_string(byte) + " by lane " +
                         std::to_string(lane) +
                         " before an s_waitcnt vmcnt covers the LDS-DMA of wave " +
                         std::to_string(other) + ", " + program_->describe(dma.pc));
  }

  static void issue(uint32_t pc, const Instruction& instruction, const Sanitized& sanitized,
                    const Wave& wave, WaveWaits& state) {
    const Counter own = counter(sanitized);
    if (own == kCounters) return;
    if (own == kVector) {
      state.issued[kVector] = state.memory.issue(pc, instruction, sanitized.shape, wave);
      state.done[kVector] = state.memory.done();
    } else {
      ++state.issued[own];
      if (own == kLds && state.issued[kLds] - state.done[kLds] > kMaxOutstandingLds) {
        state.done[kLds] = state.issued[kLds] - kMaxOutstandingLds;
      }
    }
    for (const RegisterRange& range : sanitized.footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        state.pending[id] = {state.issued[own], pc, own};
      }
    }
  }

  const Program program_;
  std::vector<WaveWaits> waves_;
};

}  // namespace

ObserverFactory waits_check(Program program) {
  return [program = std::move(program)] { return std::make_unique<WaitsCheck>(program); };
}

}  // namespace mha_sink::emulator
