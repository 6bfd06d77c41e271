// Runs a kernel of a code object over a grid of workgroups on this machine's processors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/memory_map.h"
#include "emulator/observer.h"

namespace mha_sink::emulator {

struct Schedule {
  uint32_t quantum = 64;  // instructions a wave runs before the next wave; 0: until it blocks
  bool reverse = false;   // waves of a workgroup in descending order
};

// Executions per static instruction, and derived totals by class.
struct Profile {
  std::vector<uint64_t> executions;  // index: Kernel::program
  uint64_t wave_instructions = 0;
};

struct LaunchSpec {
  std::array<uint32_t, 3> workgroups{1, 1, 1};
  // Which of them to run, x fastest; empty: all. A sample leaves the others' outputs unwritten.
  std::span<const uint64_t> sample;
  std::array<uint32_t, 3> workgroup_size{64, 1, 1};
  std::span<const std::byte> arguments;  // the kernarg segment's explicit part
  uint32_t dynamic_lds_bytes = 0;
  std::span<const MemoryRange> memory;  // what the kernel may touch
  Schedule schedule;
  Profile* profile = nullptr;                  // accumulated into when given
  std::span<const ObserverFactory> observers;  // each thread that executes gets one of each
  uint32_t sanitize = 0;                       // the checks of sanitizer.h, by their bits
};

// Blocks until every workgroup has ended. Throws EmulationError with kernel, workgroup, wave,
// instruction and address of the first fault; memory may then be partly written.
void launch(const CodeObject& object, const Kernel& kernel, const LaunchSpec& spec);

// Worker threads used by launch(): MHA_SINK_THREADS, else what was set here, else all processors.
void set_thread_count(int threads);
int thread_count();

// Defaults that launch() uses when a caller such as the emulated device sets none; a test varies
// it.
Schedule default_schedule();
void set_default_schedule(Schedule schedule);

enum class InstructionClass : uint8_t {
  mfma,
  accvgpr,
  valu,
  trans,
  lds,
  vmem,
  atomic,
  smem,
  salu,
  branch,
  wait,
  barrier,
  nop,
  count
};
InstructionClass classify(Op op);
std::string_view to_string(InstructionClass c);

}  // namespace mha_sink::emulator
