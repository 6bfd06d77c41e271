#include "emulator/timing_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <queue>
#include <string_view>
#include <utility>

#include "emulator/error.h"
#include "emulator/footprint.h"
#include "emulator/launch.h"
#include "emulator/lds_banks.h"
#include "emulator/memory_access.h"

namespace mha_sink::emulator {
namespace {

constexpr uint32_t kSimds = 4;
constexpr uint64_t kLineBytes = 128;
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

struct ModelWave {
  const std::vector<TraceEntry>* trace = nullptr;
  size_t at = 0;
  uint32_t simd = 0, workgroup = 0;
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
  ComputeUnit(const Kernel& kernel, const std::vector<WorkgroupTrace>& traces, uint32_t resident,
              const TimingParameters& parameters)
      : program_(kernel.program), p_(parameters), statics_(statics_of(kernel, parameters)) {
    uint32_t slot = 0;
    for (uint32_t group = 0; group < resident; ++group) {
      for (const auto& trace : traces[group % traces.size()].waves) {
        ModelWave wave;
        wave.trace = &trace;
        wave.simd = slot++ % kSimds;
        wave.workgroup = group;
        waves_.push_back(std::move(wave));
      }
    }
  }

  TimingEstimate run() {
    for (uint32_t i = 0; i < waves_.size(); ++i) push(i);
    while (!queue_.empty()) {
      const auto [key, index] = queue_.top();
      queue_.pop();
      ModelWave& wave = waves_[index];
      const uint64_t time = earliest(wave);
      if (time > key) {  // something else may come before
        wave.next = time;
        push(index);
        continue;
      }
      execute(wave, time);
      estimate_.clocks = std::max(estimate_.clocks, wave.next);
      if (!wave.ended() && !wave.waits_at_barrier) push(index);
      release_barrier(wave.workgroup);
    }
    return estimate_;
  }

 private:
  void push(uint32_t index) { queue_.emplace(waves_[index].next, index); }

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

  void execute(ModelWave& wave, uint64_t time) {
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
        if (program_[entry.pc].op == Op::s_nop)
          wave.next += p_.issue * (program_[entry.pc].simm & 15);
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
  }

  // When work of so many clocks in the banks, given at `time`, has its result.
  uint64_t use_lds(uint64_t time, uint32_t clocks) {
    lds_free_ = std::max(time, lds_free_) + clocks;
    estimate_.lds += clocks;
    return lds_free_ + p_.lds_result;
  }

  void release_barrier(uint32_t workgroup) {
    uint64_t last = 0;
    bool any = false;
    for (const ModelWave& wave : waves_) {
      if (wave.workgroup != workgroup || wave.ended()) continue;
      if (!wave.waits_at_barrier) return;
      last = std::max(last, wave.next);
      any = true;
    }
    if (!any) return;
    for (uint32_t i = 0; i < waves_.size(); ++i) {
      ModelWave& wave = waves_[i];
      if (wave.workgroup != workgroup || wave.ended()) continue;
      wave.waits_at_barrier = false;
      wave.next = last + p_.barrier;
      push(i);
    }
  }

  using Next = std::pair<uint64_t, uint32_t>;  // time, wave
  const std::vector<Instruction>& program_;
  const TimingParameters& p_;
  std::vector<Static> statics_;
  std::vector<ModelWave> waves_;
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

class TraceRecorder::ThreadRecorder final : public Observer {
 public:
  explicit ThreadRecorder(TraceRecorder& all) : all_(all) {
    for (const Instruction& instruction : all.kernel_.program) {
      shapes_.push_back(access_shape(instruction));
    }
  }

  void start(const Workgroup&, std::span<Wave> waves) override {
    current_.waves.assign(waves.size(), {});
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

  void end() override {
    const std::lock_guard lock(all_.mutex_);
    all_.workgroups_.push_back(std::move(current_));
  }

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

  TraceRecorder& all_;
  std::vector<AccessShape> shapes_;
  WorkgroupTrace current_;
};

ObserverFactory TraceRecorder::observers() {
  return [this] { return std::make_unique<ThreadRecorder>(*this); };
}

TimingEstimate model_timing(const Kernel& kernel, const std::vector<WorkgroupTrace>& traces,
                            uint32_t resident, const TimingParameters& parameters) {
  if (traces.empty() || resident == 0) {
    throw EmulationError("kernel " + kernel.name + ": no workgroup to model");
  }
  return ComputeUnit(kernel, traces, resident, parameters).run();
}

}  // namespace mha_sink::emulator
