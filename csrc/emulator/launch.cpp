#include "emulator/launch.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "emulator/environment.h"
#include "emulator/kernarg.h"
#include "emulator/sanitizer.h"
#include "emulator/thread_pool.h"
#include "emulator/workgroup.h"

namespace mha_sink::emulator {
namespace {

constexpr uint32_t kMaxWorkgroupItems = 1024;
constexpr uint32_t kMaxLdsBytes = 160 * 1024;
// An HSA grid counts work-items in 32 bits an axis; the total bounds what could ever be emulated.
constexpr uint64_t kMaxGridItems = UINT32_MAX, kMaxWorkgroups = uint64_t{1} << 40;
// Per lane. A workgroup of 1024 work-items then needs 64 MiB.
constexpr uint32_t kMaxScratchBytes = 64 * 1024;
// Far more than the few hundred bytes of any kernel; a damaged object may ask for 4 GiB.
constexpr uint32_t kMaxKernargBytes = 64 * 1024;
// At 10 M instructions a second: minutes, beyond any wave of a kernel that ends.
constexpr uint64_t kDefaultMaxInstructions = 4'000'000'000;

[[noreturn]] void fail(const Kernel& kernel, const std::string& message) {
  throw EmulationError("kernel " + kernel.name + ": " + message);
}

std::string list(const std::array<uint32_t, 3>& values) {
  return "(" + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ", " +
         std::to_string(values[2]) + ")";
}

// Returns the number of workgroups.
uint64_t check_grid(const Kernel& kernel, const LaunchSpec& spec) {
  uint64_t items = 1, workgroups = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const uint64_t count = spec.workgroups[axis], size = spec.workgroup_size[axis];
    if (size == 0 || size > kMaxWorkgroupItems || (items *= size) > kMaxWorkgroupItems) {
      fail(kernel, "workgroup size " + list(spec.workgroup_size) + ": 1 to " +
                       std::to_string(kMaxWorkgroupItems) + " work-items are needed");
    }
    if (count == 0 || count * size > kMaxGridItems || (workgroups *= count) > kMaxWorkgroups) {
      fail(kernel, "grid of " + list(spec.workgroups) + " workgroups of " +
                       list(spec.workgroup_size) + ": each axis needs 1 to " +
                       std::to_string(kMaxGridItems) + " work-items, all together at most " +
                       std::to_string(kMaxWorkgroups) + " workgroups");
    }
  }
  return workgroups;
}

void check_resources(const Kernel& kernel, const LaunchSpec& spec) {
  const uint64_t lds = uint64_t{kernel.lds_bytes} + spec.dynamic_lds_bytes;
  if (lds > kMaxLdsBytes) {
    fail(kernel, std::to_string(lds) + " bytes of LDS (" + std::to_string(kernel.lds_bytes) +
                     " static); a gfx950 compute unit has " + std::to_string(kMaxLdsBytes));
  }
  if (kernel.scratch_bytes > kMaxScratchBytes) {
    fail(kernel, std::to_string(kernel.scratch_bytes) + " bytes of scratch a lane; at most " +
                     std::to_string(kMaxScratchBytes) + " can be emulated");
  }
  if (kernel.kernarg_bytes > kMaxKernargBytes) {
    fail(kernel, std::to_string(kernel.kernarg_bytes) + " bytes of kernel arguments; at most " +
                     std::to_string(kMaxKernargBytes) + " can be emulated");
  }
  if (kernel.mode.round != 0) {
    fail(kernel, "rounding mode " + std::to_string(kernel.mode.round) +
                     "; only round to nearest even (0) can be emulated");
  }
}

std::array<uint32_t, 3> workgroup_id(uint64_t index, const std::array<uint32_t, 3>& counts) {
  return {static_cast<uint32_t>(index % counts[0]),
          static_cast<uint32_t>(index / counts[0] % counts[1]),
          static_cast<uint32_t>(index / counts[0] / counts[1])};
}

void accumulate(Profile& profile, const std::vector<uint64_t>& executions) {
  profile.executions.resize(executions.size());
  for (size_t i = 0; i < executions.size(); ++i) {
    profile.executions[i] += executions[i];
    profile.wave_instructions += executions[i];
  }
}

}  // namespace

void launch(const CodeObject& object, const Kernel& kernel, const LaunchSpec& spec) {
  const uint64_t all_workgroups = check_grid(kernel, spec);
  for (const uint64_t index : spec.sample) {
    if (index < all_workgroups) continue;
    fail(kernel,
         "sample of workgroup " + std::to_string(index) + " of " + std::to_string(all_workgroups));
  }
  const uint64_t workgroups = spec.sample.empty() ? all_workgroups : spec.sample.size();
  check_resources(kernel, spec);

  const KernargSegment kernarg(kernel, spec);
  const DispatchPacket packet(kernel, spec, kernarg);
  std::vector<MemoryRange> ranges(spec.memory.begin(), spec.memory.end());
  ranges.push_back(object.image());
  ranges.push_back(kernarg.range());
  ranges.push_back(packet.range());
  const MemoryMap memory(ranges);

  Dispatch dispatch{kernel,
                    memory,
                    spec.workgroup_size,
                    kernel.lds_bytes + spec.dynamic_lds_bytes,
                    user_sgprs(kernel, kernarg, packet),
                    spec.schedule,
                    environment_integer("MHA_SINK_MAX_INSTRUCTIONS", 1, UINT64_MAX)
                        .value_or(kDefaultMaxInstructions)};
  std::vector<ObserverFactory> observers = sanitizer_observers(spec.sanitize, kernel, spec);
  observers.insert(observers.end(), spec.observers.begin(), spec.observers.end());
  std::atomic<uint64_t> next{0};
  std::mutex profile_mutex;
  const int threads = static_cast<int>(std::min<uint64_t>(thread_count(), workgroups));
  run_on_threads(threads, [&] {
    if (next.load(std::memory_order_relaxed) >= workgroups) return;  // a helper that came late
    try {
      WorkgroupExecutor executor(dispatch, observers);
      while (!dispatch.stop.load(std::memory_order_relaxed)) {
        const uint64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= workgroups) break;
        const uint64_t chosen = spec.sample.empty() ? index : spec.sample[index];
        executor.run(workgroup_id(chosen, spec.workgroups));
      }
      if (!dispatch.stop.load(std::memory_order_relaxed)) executor.finish();
      if (spec.profile != nullptr) {
        const std::lock_guard lock(profile_mutex);
        accumulate(*spec.profile, executor.executions());
      }
    } catch (...) {
      dispatch.stop.store(true, std::memory_order_relaxed);
      throw;
    }
  });
}

}  // namespace mha_sink::emulator
