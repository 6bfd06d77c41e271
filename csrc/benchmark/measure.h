// What a call costs: time on a GPU, counts on the emulated device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/emulated.h"

namespace mha_sink::benchmark {

// Enqueues a whole call on the device that it is given, the real one or a wrapper of it.
using Call = std::function<void(Device&)>;

struct KernelTime {
  std::string name;
  double milliseconds;
};

// Medians of so many whole calls, by events on the GPU's stream.
struct Timing {
  int repeats = 0;
  double warm_ms = 0;              // one call after the other
  double flushed_ms = 0;           // other data has gone through the caches before each
  std::vector<KernelTime> phases;  // warm, in launch order; events between them add a little
};

Timing measure_time(Device& device, const Call& call, int warmup, int repeats);

struct Emulation {
  double cpu_seconds = 0;  // of emulating; says nothing about a GPU
  std::map<std::string, KernelProfile> kernels;
};

// Runs the call once.
Emulation count_instructions(Device& device, const Call& call);

// Counts on the emulated device, else times. `validate` comes after the first run: what accumulates
// holds one call's result then.
template <class Options, class Report>
void measure(Device& device, const Options& options, const Call& call,
             const std::function<void()>& validate, Report& report) {
  const bool emulated = &device == &emulated_device();
  if (emulated) {
    report.emulation = count_instructions(device, call);
  } else {
    call(device);
  }
  if (options.validate) validate();
  if (!emulated) report.timing = measure_time(device, call, options.warmup, options.repeat);
}

}  // namespace mha_sink::benchmark
