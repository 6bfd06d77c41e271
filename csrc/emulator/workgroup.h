// Executes the workgroups of a launch, one at a time, on one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/launch.h"
#include "emulator/observer.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {

// What all workgroups of a launch share.
struct Dispatch {
  const Kernel& kernel;
  const MemoryMap& memory;
  std::array<uint32_t, 3> workgroup_size;
  uint32_t lds_bytes;
  std::vector<uint32_t> user_sgprs;  // s0..; workgroup ids follow
  Schedule schedule;
  uint64_t max_instructions;      // of one wave: more is an endless loop
  std::atomic<bool> stop{false};  // another thread met an error
};

class WorkgroupExecutor {
 public:
  WorkgroupExecutor(const Dispatch& dispatch, std::span<const ObserverFactory> observers);

  // Runs to the end of every wave, or until dispatch.stop.
  void run(std::array<uint32_t, 3> id);

  // No more workgroups will run.
  void finish();

  // Of all workgroups run so far, by index of Kernel::program.
  const std::vector<uint64_t>& executions() const { return executions_; }

 private:
  void start(std::array<uint32_t, 3> id);
  void start_wave(Wave& wave);
  // At most `limit` instructions; fewer when the wave ends or arrives at a barrier. Returns how
  // many.
  template <bool kObserved>
  uint64_t run_slice(Wave& wave, uint64_t limit);
  [[noreturn]] void throw_exceeded(const Wave& wave) const;
  std::string where(const Wave& wave, uint32_t pc) const;

  const Dispatch& dispatch_;
  std::vector<std::unique_ptr<Observer>> observers_;
  Workgroup workgroup_;
  std::vector<VectorRegister> registers_;  // vgprs then agprs of each wave
  std::vector<uint8_t> scratch_;
  std::vector<Wave> waves_;
  std::vector<uint64_t> executed_;  // instructions, by wave
  std::vector<uint64_t> executions_;
};

}  // namespace mha_sink::emulator
