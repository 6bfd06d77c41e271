#include "emulator/timing_model.h"

#include <algorithm>
#include <array>
#include <deque>
#include <queue>
#include <span>
#include <string_view>
#include <utility>

#include "emulator/error.h"
#include "emulator/footprint.h"

namespace mha_sink::emulator {
namespace {

constexpr uint32_t kSimds = 4;
constexpr size_t kMaxVmem = 63, kMaxLgkm = 15;  // what the counters hold

// Clocks that an MFMA holds the matrix unit [LLVM].
uint32_t matrix_clocks(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (has("_32x32x2_f32") || has("_2b_")) return 64;
  if (has("_16x16x4_f32") || has("_4b_")) return 32;
  return has("_16x16x") ? 16 : 32;
}

struct Static {
  InstructionClass kind;
  Footprint footprint;
  uint32_t clocks;  // of the vector or matrix unit
};

std::vector<Static> statics_of(const Kernel& kernel, const TimingParameters& parameters) {
  std::vector<Static> result;
  for (const Instruction& instruction : kernel.program) {
    Static fixed{classify(instruction.op), Footprint(instruction), 4};
    const std::string_view name = mnemonic(instruction.op);
    if (fixed.kind == InstructionClass::mfma) fixed.clocks = matrix_clocks(name);
    if (fixed.kind == InstructionClass::trans) fixed.clocks = parameters.trans;
    if (name.starts_with("v_permlane") && name.find("_swap_") != name.npos) fixed.clocks = 8;
    result.push_back(fixed);
  }
  return result;
}

uint32_t vmcnt_of(const Instruction& wait) {
  return (wait.simm & 0xf) | (wait.simm >> 14 & 3) << 4;
}
uint32_t lgkmcnt_of(const Instruction& wait) { return wait.simm >> 8 & 0xf; }

constexpr uint32_t kPriorities = 4;  // of s_setprio, from 0

struct ModelWave {
  const std::vector<TraceEntry>* trace = nullptr;
  size_t at = 0;
  uint32_t simd = 0, place = 0;  // the workgroup's
  uint32_t priority = 0;
  uint64_t next = 0;
  bool waits_at_barrier = false;
  std::array<uint64_t, kRegisterIds> ready{}, accumulate{};  // the latter to the C of an MFMA
  std::deque<uint64_t> vmem, lgkm;                           // when each outstanding completes

  bool ended() const { return at == trace->size(); }
};

// When at most `left` of the queue are outstanding; forgets those that completed by then.
uint64_t drain(std::deque<uint64_t>& queue, size_t left, uint64_t now) {
  while (queue.size() > left) {
    now = std::max(now, queue.front());
    queue.pop_front();
  }
  return now;
}

class ComputeUnit {
 public:
  ComputeUnit(const Kernel& kernel, const WorkgroupTrace& trace, Occupancy occupancy,
              const TimingParameters& parameters, uint64_t timeline_clocks)
      : program_(kernel.program),
        p_(parameters),
        statics_(statics_of(kernel, parameters)),
        trace_(trace),
        timeline_clocks_(timeline_clocks),
        waiting_(occupancy.workgroups) {
    waves_.resize(std::min(occupancy.resident, occupancy.workgroups) * trace.waves.size());
    running_.resize(waves_.size() / trace.waves.size());
  }

  TimingEstimate run() {
    for (uint32_t place = 0; place < running_.size(); ++place) start(place, 0);
    while (!queue_.empty()) {
      const Next next = queue_.top();
      queue_.pop();
      ModelWave& wave = waves_[next.wave];
      const uint64_t time = earliest(wave);
      if (time > next.time) {  // something else may come before
        wave.next = time;
        push(next.wave);
        continue;
      }
      const InstructionClass kind = execute(wave, time);
      if (time < timeline_clocks_ && next.wave < trace_.waves.size()) {
        add_to_timeline(next.wave, kind, time);
      }
      estimate_.clocks = std::max(estimate_.clocks, wave.next);
      if (!wave.ended() && !wave.waits_at_barrier) push(next.wave);
      if (wave.ended() && --running_[wave.place] == 0) {
        start(wave.place, wave.next);
      } else if (wave.ended() || wave.waits_at_barrier) {
        release_barrier(wave.place);
      }
    }
    return estimate_;
  }

 private:
  // The next workgroup, where one is left, in the place of one that ended.
  void start(uint32_t place, uint64_t time) {
    if (waiting_ == 0) return;
    --waiting_;
    const uint32_t count = static_cast<uint32_t>(trace_.waves.size());
    for (uint32_t i = 0; i < count; ++i) {
      ModelWave& wave = waves_[place * count + i];
      wave = {};
      wave.trace = &trace_.waves[i];
      wave.place = place;
      wave.simd = (place * count + i) % kSimds;
      wave.next = time;
      if (wave.ended()) continue;
      ++running_[place];
      push(place * count + i);
    }
  }

  std::span<ModelWave> waves_of(uint32_t place) {
    const size_t count = trace_.waves.size();
    return std::span(waves_).subspan(place * count, count);
  }

  void push(uint32_t index) {
    const ModelWave& wave = waves_[index];
    queue_.push({wave.next, kPriorities - 1 - wave.priority, index});
  }

  // When the wave's next instruction can issue, as things are.
  uint64_t earliest(ModelWave& wave) {
    const TraceEntry& entry = (*wave.trace)[wave.at];
    const Static& fixed = statics_[entry.pc];
    uint64_t time = wave.next;
    const bool matrix = fixed.kind == InstructionClass::mfma;
    for (const RegisterRange& range : fixed.footprint.reads()) {
      const auto& ready = matrix && range.source == 2 ? wave.accumulate : wave.ready;
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        time = std::max(time, ready[id]);
      }
    }
    switch (fixed.kind) {
      case InstructionClass::mfma:
        return std::max({time, matrix_free_[wave.simd], vector_free_[wave.simd]});
      case InstructionClass::valu:
      case InstructionClass::trans:
      case InstructionClass::accvgpr:
        return std::max(time, vector_free_[wave.simd]);
      case InstructionClass::lds:
        time = drain(wave.lgkm, kMaxLgkm - 1, time);
        return lds_free_ > time + p_.lds_queue ? lds_free_ - p_.lds_queue : time;
      case InstructionClass::vmem:
      case InstructionClass::atomic:
        return drain(wave.vmem, kMaxVmem - 1, time);
      case InstructionClass::wait: {
        const Instruction& wait = program_[entry.pc];
        time = drain(wave.vmem, vmcnt_of(wait), time);
        return drain(wave.lgkm, lgkmcnt_of(wait), time);
      }
      default:
        return time;
    }
  }

  InstructionClass execute(ModelWave& wave, uint64_t time) {
    const TraceEntry& entry = (*wave.trace)[wave.at++];
    const Static& fixed = statics_[entry.pc];
    wave.next = time + p_.issue;
    uint64_t ready = time + p_.issue, accumulate = 0;
    switch (fixed.kind) {
      case InstructionClass::mfma:
        matrix_free_[wave.simd] = time + fixed.clocks;
        vector_free_[wave.simd] = time + p_.issue;
        estimate_.mfma += fixed.clocks;
        ready = time + fixed.clocks + p_.mfma_result;
        accumulate = time + fixed.clocks + p_.mfma_accumulate;
        break;
      case InstructionClass::valu:
      case InstructionClass::trans:
      case InstructionClass::accvgpr:
        vector_free_[wave.simd] = time + fixed.clocks;
        (fixed.kind == InstructionClass::trans ? estimate_.trans : estimate_.valu) += fixed.clocks;
        ready = time + std::max(fixed.clocks + p_.issue, p_.valu_result);
        break;
      case InstructionClass::lds:
        ready = use_lds(time, entry.lds_clocks);
        wave.lgkm.push_back(ready);
        break;
      case InstructionClass::smem:
        ready = time + p_.scalar_memory;
        wave.lgkm.push_back(ready);
        break;
      case InstructionClass::vmem:
      case InstructionClass::atomic: {
        const uint64_t start = std::max(time, vmem_free_);
        const uint64_t busy = std::max(p_.vmem_instruction, p_.vmem_line * entry.lines);
        vmem_free_ = start + busy;
        estimate_.vmem += busy;
        ready = start + busy + p_.vmem_result;
        if (entry.atomic_bytes != 0) {
          atomic_free_ =
              std::max(atomic_free_, double(start)) + entry.atomic_bytes / p_.atomic_bytes;
          ready = std::max(ready, uint64_t(atomic_free_));
        }
        if (entry.lds_clocks != 0) ready = std::max(ready, use_lds(ready, entry.lds_clocks));
        wave.vmem.push_back(wave.vmem.empty() ? ready : std::max(ready, wave.vmem.back()));
        break;
      }
      case InstructionClass::nop:
        if (program_[entry.pc].op == Op::s_nop) {
          wave.next += p_.issue * (program_[entry.pc].simm & 15);
        } else if (program_[entry.pc].op == Op::s_setprio) {
          wave.priority = program_[entry.pc].simm & (kPriorities - 1);
        }
        break;
      case InstructionClass::barrier:
        wave.waits_at_barrier = true;
        break;
      default:
        break;
    }
    if (accumulate == 0) accumulate = ready;
    for (const RegisterRange& range : fixed.footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        wave.ready[id] = ready;
        wave.accumulate[id] = accumulate;
      }
    }
    return fixed.kind;
  }

  void add_to_timeline(uint32_t index, InstructionClass kind, uint64_t time) {
    const ModelWave& wave = waves_[index];
    uint64_t end = wave.next;
    if (kind == InstructionClass::mfma) end = matrix_free_[wave.simd];
    if (kind == InstructionClass::trans) end = vector_free_[wave.simd];
    // A wave has two tracks: while the matrix unit works, it issues other instructions.
    const bool matrix = kind == InstructionClass::mfma;
    for (size_t i = estimate_.timeline.size(); i-- > 0;) {
      TimelineSpan& last = estimate_.timeline[i];
      if (last.wave != index || (last.kind == InstructionClass::mfma) != matrix) continue;
      last.end = std::min(last.end, time);
      if (last.kind != kind || last.end < time) break;
      last.end = end;
      return;
    }
    estimate_.timeline.push_back({index, kind, time, end});
  }

  // When work of so many clocks in the banks, given at `time`, has its result.
  uint64_t use_lds(uint64_t time, uint32_t clocks) {
    lds_free_ = std::max(time, lds_free_) + clocks;
    estimate_.lds += clocks;
    return lds_free_ + p_.lds_result;
  }

  void release_barrier(uint32_t place) {
    uint64_t last = 0;
    for (const ModelWave& wave : waves_of(place)) {
      if (wave.ended()) continue;
      if (!wave.waits_at_barrier) return;
      last = std::max(last, wave.next);
    }
    for (ModelWave& wave : waves_of(place)) {
      if (wave.ended()) continue;
      wave.waits_at_barrier = false;
      wave.next = last + p_.barrier;
      push(static_cast<uint32_t>(&wave - waves_.data()));
    }
  }

  // The queue's order: who could issue first, of equals the higher priority, then the older wave.
  struct Next {
    uint64_t time;
    uint32_t rank, wave;
    auto operator<=>(const Next&) const = default;
  };
  const std::vector<Instruction>& program_;
  const TimingParameters& p_;
  std::vector<Static> statics_;
  const WorkgroupTrace& trace_;
  const uint64_t timeline_clocks_;
  uint32_t waiting_;               // workgroups that have no place yet
  std::vector<ModelWave> waves_;   // place by place
  std::vector<uint32_t> running_;  // waves of each place
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue_;
  std::array<uint64_t, kSimds> matrix_free_{}, vector_free_{};
  uint64_t lds_free_ = 0, vmem_free_ = 0;
  double atomic_free_ = 0;
  TimingEstimate estimate_;
};

}  // namespace

void set_parameter(TimingParameters& parameters, const std::string& name, double value) {
  using P = TimingParameters;
  static constexpr std::pair<std::string_view, uint32_t P::*> kWhole[] = {
      {"issue", &P::issue},
      {"valu_result", &P::valu_result},
      {"trans", &P::trans},
      {"mfma_result", &P::mfma_result},
      {"mfma_accumulate", &P::mfma_accumulate},
      {"scalar_memory", &P::scalar_memory},
      {"lds_result", &P::lds_result},
      {"lds_queue", &P::lds_queue},
      {"vmem_result", &P::vmem_result},
      {"vmem_line", &P::vmem_line},
      {"vmem_instruction", &P::vmem_instruction},
      {"barrier", &P::barrier},
  };
  if (name == "atomic_bytes" && value > 0) {
    parameters.atomic_bytes = value;
    return;
  }
  std::string known = "atomic_bytes (above 0)";
  for (const auto& [known_name, member] : kWhole) {
    if (name == known_name && value >= 0 && value <= 1e6) {
      parameters.*member = static_cast<uint32_t>(value);
      return;
    }
    known += ", " + std::string(known_name);
  }
  throw EmulationError("timing model: " + name + " = " + std::to_string(value) +
                       " is no parameter with a value of 0 to 1000000; there are " + known);
}

void LaunchModel::add(const WorkgroupTrace& trace) {
  TimingEstimate estimate = model_timing(kernel_, trace, occupancy_, parameters_, timeline_clocks_);
  const std::lock_guard lock(mutex_);
  estimates_[trace.id] = std::move(estimate);
}

ObserverFactory LaunchModel::observers() {
  return trace_observers(kernel_, [this](const WorkgroupTrace& trace) { add(trace); });
}

TimingEstimate model_timing(const Kernel& kernel, const WorkgroupTrace& trace, Occupancy occupancy,
                            const TimingParameters& parameters, uint64_t timeline_clocks) {
  if (trace.waves.empty() || occupancy.resident == 0 || occupancy.workgroups == 0) {
    throw EmulationError("kernel " + kernel.name + ": no workgroup to model");
  }
  return ComputeUnit(kernel, trace, occupancy, parameters, timeline_clocks).run();
}

}  // namespace mha_sink::emulator
