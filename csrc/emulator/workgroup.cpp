#include "emulator/workgroup.h"

#include <algorithm>
#include <sstream>

#include "emulator/sanitizer.h"

namespace mha_sink::emulator {
namespace {

// A handler may touch the registers of the widest operand (a 32x32 MFMA accumulator has 32) at the
// last register of the file without leaving the allocation.
constexpr size_t kSlackRegisters = 32;

// How often a wave that runs until it blocks looks at Dispatch::stop.
constexpr uint64_t kStopInterval = 1 << 16;

uint32_t wave_count(const Dispatch& dispatch) {
  const auto& size = dispatch.workgroup_size;
  return (size[0] * size[1] * size[2] + kLanes - 1) / kLanes;
}

}  // namespace

WorkgroupExecutor::WorkgroupExecutor(const Dispatch& dispatch,
                                     std::span<const ObserverFactory> observers)
    : dispatch_(dispatch),
      registers_(wave_count(dispatch) *
                     size_t{dispatch.kernel.vgpr_count + dispatch.kernel.agpr_count} +
                 kSlackRegisters),
      scratch_(wave_count(dispatch) * size_t{kLanes} * dispatch.kernel.scratch_bytes),
      waves_(wave_count(dispatch)),
      executed_(waves_.size()),
      executions_(dispatch.kernel.program.size()) {
  for (const ObserverFactory& make : observers) observers_.push_back(make());
  const Kernel& kernel = dispatch.kernel;
  workgroup_.lds.resize(dispatch.lds_bytes);
  workgroup_.memory = &dispatch.memory;
  for (size_t i = 0; i < waves_.size(); ++i) {
    Wave& wave = waves_[i];
    wave.vgpr = registers_.data() + i * (kernel.vgpr_count + kernel.agpr_count);
    wave.agpr = wave.vgpr + kernel.vgpr_count;
    wave.vgpr_count = kernel.vgpr_count;
    wave.agpr_count = kernel.agpr_count;
    wave.mode = kernel.mode;
    wave.workgroup = &workgroup_;
    wave.index = static_cast<int>(i);
    wave.scratch_bytes = kernel.scratch_bytes;
    wave.scratch = scratch_.data() + i * size_t{kLanes} * kernel.scratch_bytes;
  }
}

void WorkgroupExecutor::start(std::array<uint32_t, 3> id) {
  std::copy(id.begin(), id.end(), workgroup_.id);
  fill_poison(registers_.data(), registers_.size() * sizeof(VectorRegister));
  fill_poison(scratch_.data(), scratch_.size());
  fill_poison(workgroup_.lds.data(), workgroup_.lds.size());
  std::fill(executed_.begin(), executed_.end(), 0);
  for (Wave& wave : waves_) start_wave(wave);
}

void WorkgroupExecutor::start_wave(Wave& wave) {
  const Kernel& kernel = dispatch_.kernel;
  wave.pc = kernel.entry;
  wave.scc = wave.ended = wave.at_barrier = false;
  wave.vmem.clear();

  std::fill(std::begin(wave.sgpr), std::end(wave.sgpr), kPoison);
  size_t next = dispatch_.user_sgprs.size();
  std::copy(dispatch_.user_sgprs.begin(), dispatch_.user_sgprs.end(), wave.sgpr);
  for (int axis = 0; axis < 3; ++axis) {
    if (kernel.rsrc2 >> (7 + axis) & 1) wave.sgpr[next++] = workgroup_.id[axis];
  }

  // gfx90a and later pack the work-item id into v0; rsrc2 says how many of its parts are asked for.
  const auto& size = dispatch_.workgroup_size;
  const uint32_t items = size[0] * size[1] * size[2];
  const uint32_t parts = kernel.rsrc2 >> 11 & 3;
  uint64_t exec = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t item = wave.index * kLanes + lane;
    if (item >= items) break;
    exec |= uint64_t{1} << lane;
    uint32_t packed = item % size[0];
    if (parts >= 1) packed |= item / size[0] % size[1] << 10;
    if (parts >= 2) packed |= item / size[0] / size[1] << 20;
    if (wave.vgpr_count > 0) wave.vgpr[0].lane[lane] = packed;
  }
  wave.write64(kExec, exec);
}

void WorkgroupExecutor::run(std::array<uint32_t, 3> id) {
  start(id);
  for (const auto& observer : observers_) observer->start(workgroup_, waves_);
  const size_t count = waves_.size();
  const uint64_t quantum = dispatch_.schedule.quantum;
  for (;;) {
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t i = dispatch_.schedule.reverse ? count - 1 - turn : turn;
      Wave& wave = waves_[i];
      while (!wave.ended && !wave.at_barrier) {
        if (dispatch_.stop.load(std::memory_order_relaxed)) return;
        const uint64_t budget = dispatch_.max_instructions - executed_[i];
        if (budget == 0) throw_exceeded(wave);
        const uint64_t limit = std::min(quantum == 0 ? kStopInterval : quantum, budget);
        executed_[i] +=
            observers_.empty() ? run_slice<false>(wave, limit) : run_slice<true>(wave, limit);
        if (quantum != 0) break;
      }
    }
    const auto ended = [](const Wave& wave) { return wave.ended; };
    if (std::all_of(waves_.begin(), waves_.end(), ended)) break;
    // As on hardware, waves that have ended do not count at a barrier.
    const auto arrived = [](const Wave& wave) { return wave.ended || wave.at_barrier; };
    if (std::all_of(waves_.begin(), waves_.end(), arrived)) {
      for (Wave& wave : waves_) wave.at_barrier = false;
      for (const auto& observer : observers_) observer->barrier();
    }
  }
  for (const auto& observer : observers_) observer->end();
}

void WorkgroupExecutor::finish() {
  for (const auto& observer : observers_) observer->finish();
}

template <bool kObserved>
uint64_t WorkgroupExecutor::run_slice(Wave& wave, uint64_t limit) {
  const Instruction* const program = dispatch_.kernel.program.data();
  const size_t size = dispatch_.kernel.program.size();
  uint64_t* const executions = executions_.data();
  uint64_t executed = 0;
  uint32_t pc = wave.pc;
  try {
    do {
      pc = wave.pc;
      if (pc >= size) throw EmulationError("execution ran past the end of the program");
      const Instruction& instruction = program[pc];
      wave.pc = pc + 1;
      if (instruction.handler == nullptr) {
        throw EmulationError("the emulator does not implement " +
                             std::string(mnemonic(instruction.op)));
      }
      ++executions[pc];
      if constexpr (kObserved) {
        for (const auto& observer : observers_) observer->before(pc, instruction, wave);
      }
      instruction.handler(instruction, wave);
      if constexpr (kObserved) {
        for (const auto& observer : observers_) observer->after(pc, instruction, wave);
      }
    } while (++executed < limit && !wave.ended && !wave.at_barrier);
  } catch (const SanitizerError& finding) {
    throw SanitizerError(where(wave, pc) + ": " + finding.what());
  } catch (const EmulationError& error) {
    throw EmulationError(where(wave, pc) + ": " + error.what());
  }
  return executed;
}

std::string WorkgroupExecutor::where(const Wave& wave, uint32_t pc) const {
  const Kernel& kernel = dispatch_.kernel;
  std::ostringstream out;
  out << "kernel " << kernel.name << ", ";
  if (pc < kernel.program.size()) {
    out << describe(kernel, kernel.program[pc]) << ", ";
  }
  out << "workgroup (" << workgroup_.id[0] << ", " << workgroup_.id[1] << ", " << workgroup_.id[2]
      << "), wave " << wave.index;
  return out.str();
}

void WorkgroupExecutor::throw_exceeded(const Wave& wave) const {
  std::string waiting;
  for (const Wave& other : waves_) {
    if (other.at_barrier) waiting += (waiting.empty() ? "" : ", ") + std::to_string(other.index);
  }
  std::string message = where(wave, wave.pc) + ": not ended after " +
                        std::to_string(dispatch_.max_instructions) +
                        " instructions (MHA_SINK_MAX_INSTRUCTIONS): an endless loop";
  if (!waiting.empty()) {
    message += "; a deadlock, because waves waiting at s_barrier for this one: " + waiting;
  }
  throw EmulationError(message);
}

}  // namespace mha_sink::emulator
