// Process-wide defaults of launch(): worker threads and wave schedule.
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "emulator/environment.h"
#include "emulator/launch.h"

namespace mha_sink::emulator {
namespace {

constexpr int kMaxThreads = 4096;

std::mutex mutex;
int chosen_threads = 0;  // 0: not chosen
std::optional<Schedule> chosen_schedule;

Schedule environment_schedule() {
  Schedule schedule;
  schedule.quantum = static_cast<uint32_t>(
      environment_integer("MHA_SINK_QUANTUM", 0, UINT32_MAX).value_or(schedule.quantum));
  const char* order = std::getenv("MHA_SINK_WAVE_ORDER");
  const std::string text = order == nullptr ? "" : order;
  if (!text.empty() && text != "forward" && text != "reverse") {
    throw EmulationError("MHA_SINK_WAVE_ORDER=" + text + ": forward or reverse is needed");
  }
  schedule.reverse = text == "reverse";
  return schedule;
}

}  // namespace

void set_thread_count(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    throw EmulationError("thread count " + std::to_string(threads) + ": 1 to " +
                         std::to_string(kMaxThreads) + " is needed");
  }
  const std::lock_guard lock(mutex);
  chosen_threads = threads;
}

int thread_count() {
  if (const auto threads = environment_integer("MHA_SINK_THREADS", 1, kMaxThreads)) {
    return static_cast<int>(*threads);
  }
  const std::lock_guard lock(mutex);
  if (chosen_threads != 0) return chosen_threads;
  const unsigned processors = std::thread::hardware_concurrency();
  return processors == 0 ? 1 : static_cast<int>(processors);
}

Schedule default_schedule() {
  const std::lock_guard lock(mutex);
  return chosen_schedule ? *chosen_schedule : environment_schedule();
}

void set_default_schedule(Schedule schedule) {
  const std::lock_guard lock(mutex);
  chosen_schedule = schedule;
}

}  // namespace mha_sink::emulator
