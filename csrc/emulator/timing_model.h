// A MODEL of how long a workgroup holds a gfx950 compute unit. No clock of it was measured here.
//
// Waves issue in order; an instruction waits for its registers, its unit and what s_waitcnt and
// s_barrier say; of waves that could issue at the same clock s_setprio's priority decides. What
// memory latency hides, and what it does not, follows; caches, clocks that move with power, other
// compute units and instruction fetch are left out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/launch.h"
#include "emulator/observer.h"
#include "emulator/timing_trace.h"

namespace mha_sink::emulator {

// In clocks of the compute unit. Sources: [LLVM] SIDPGFX950FullSpeedModel by llvm-mca 22;
// [TLX] s_memtime measurements on MI350 in facebookexperimental/triton, AMDLatencyModel.cpp;
// [ISA] CDNA3 ISA; [fit] chosen so that the kernels named in docs/emulator.md come out right.
struct TimingParameters {
  uint32_t issue = 4;              // between two instructions of a wave [ISA]
  uint32_t valu_result = 8;        // dependent v_fma_f32 [TLX]
  uint32_t trans = 16;             // a quarter of the rate [LLVM, ISA]
  uint32_t mfma_result = 16;       // beyond the passes: 8 and 12 passes for 4 and 8 [LLVM]
  uint32_t mfma_accumulate = 2;    // beyond the passes, to the C of the next: 18 for 16 [TLX]
  uint32_t scalar_memory = 200;    // assumed
  uint32_t lds_result = 64;        // beyond the clocks in the banks: 69 for ds_read_b32 [TLX]
  uint32_t lds_queue = 256;        // clocks of LDS work that may wait before waves stall [fit]
  uint32_t vmem_result = 350;      // [fit]; 100 to 200 warm in L1 or L2, 790 from HBM [TLX]
  uint32_t vmem_line = 2;          // clocks a line of 128 bytes: 64 bytes a clock
  uint32_t vmem_instruction = 16;  // addresses of 64 lanes, 4 a clock [ISA]
  double atomic_bytes = 2.15;      // a clock: 1.32 TB/s of the device by 256 at 2.4 GHz
  uint32_t barrier = 20;           // from the last arrival; assumed
};

// Sets a parameter by its name. Throws EmulationError that lists the names.
void set_parameter(TimingParameters& parameters, const std::string& name, double value);

// How many workgroups a compute unit gets, and how many of them it has room for at a time.
struct Occupancy {
  uint32_t resident = 1, workgroups = 1;
};

// An instruction of a wave, or several of a class without a gap: from its issue until the matrix or
// transcendental unit is free again, of others until the wave may issue the next.
struct TimelineSpan {
  uint32_t wave;
  InstructionClass kind;
  uint64_t begin, end;  // clocks
};

struct TimingEstimate {
  uint64_t clocks = 0;  // until the last wave ends
  // Of these: the units busy, summed over SIMDs for the first three.
  uint64_t mfma = 0, valu = 0, trans = 0, lds = 0, vmem = 0;
  std::vector<TimelineSpan> timeline;  // of one workgroup's first clocks; by begin
};

// What the model says of a compute unit whose workgroups all do what the trace holds; a workgroup
// starts when there is room. The first one's timeline has what issues before `timeline_clocks`.
TimingEstimate model_timing(const Kernel& kernel, const WorkgroupTrace& trace, Occupancy occupancy,
                            const TimingParameters& parameters, uint64_t timeline_clocks = 0);

// Models every workgroup that a launch executes, each as one of many like it. `observers()` serve
// one launch.
class LaunchModel {
 public:
  LaunchModel(const Kernel& kernel, Occupancy occupancy, const TimingParameters& parameters,
              uint64_t timeline_clocks)
      : kernel_(kernel),
        occupancy_(occupancy),
        parameters_(parameters),
        timeline_clocks_(timeline_clocks) {}
  ObserverFactory observers();
  // By the workgroup's numbers along x, y and z.
  const std::map<std::array<uint32_t, 3>, TimingEstimate>& estimates() const { return estimates_; }

 private:
  void add(const WorkgroupTrace& trace);

  const Kernel& kernel_;
  const Occupancy occupancy_;
  const TimingParameters parameters_;
  const uint64_t timeline_clocks_;
  std::mutex mutex_;
  std::map<std::array<uint32_t, 3>, TimingEstimate> estimates_;
};

}  // namespace mha_sink::emulator
