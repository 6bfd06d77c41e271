#include "host/run_mha_bwd.h"

#include <chrono>
#include <string>

#include "device/device.h"
#include "host/checks.h"
#include "host/mha_bwd_launches.h"
#include "host/workspace.h"

namespace mha_sink {
namespace {

// The widest vector that the kernels load.
constexpr uintptr_t kWorkspaceAlignment = 16;

// Where the tensors are, of which some may be empty.
Device& default_device(const MhaBwdProblem& problem) {
  for (const View* view : problem.inputs()) {
    if (view->present && !view->empty()) return device_of(view->data);
  }
  return emulated_device();
}

class Timer {
 public:
  Timer(MhaBwdLaunches& launches, Device& device, const stream_config& stream)
      : launches_(launches), device_(device), stream_(stream) {}

  float milliseconds() {
    for (int i = 0; i < stream_.cold_niters_; ++i) launches_.run(false);
    const float elapsed = stream_.is_gpu_timer_ ? device_milliseconds() : host_milliseconds();
    return elapsed / static_cast<float>(stream_.nrepeat_);
  }

 private:
  void repeat() {
    for (int i = 0; i < stream_.nrepeat_; ++i) launches_.run(i + 1 == stream_.nrepeat_);
  }

  float device_milliseconds() {
    const Event begin = device_.record(stream_.stream_id_);
    repeat();
    return device_.milliseconds(begin, device_.record(stream_.stream_id_));
  }

  float host_milliseconds() {
    using Clock = std::chrono::steady_clock;
    device_.synchronize(stream_.stream_id_);
    const Clock::time_point begin = Clock::now();
    repeat();
    device_.synchronize(stream_.stream_id_);
    return std::chrono::duration<float, std::milli>(Clock::now() - begin).count();
  }

  MhaBwdLaunches& launches_;
  Device& device_;
  const stream_config& stream_;
};

void* allocate(const WorkspaceAlloc& workspace_alloc, size_t bytes) {
  const std::string count = std::to_string(bytes) + " bytes";
  if (!workspace_alloc) {
    checks::invalid("workspace_alloc", "an empty function", "one that returns " + count);
  }
  void* workspace = workspace_alloc(bytes, false);
  if (workspace == nullptr) throw Error("workspace_alloc returned null for " + count);
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    throw Error("the workspace's address is not a multiple of " +
                std::to_string(kWorkspaceAlignment));
  }
  return workspace;
}

}  // namespace

float run_mha_bwd(const MhaBwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                  const stream_config& stream) {
  if (stream.time_kernel_ && stream.nrepeat_ < 1) {
    checks::invalid("stream_config::nrepeat_", std::to_string(stream.nrepeat_), "at least 1");
  }
  const MhaBwdWorkspace plan = plan_mha_bwd_workspace(problem);
  Device& device = stream.device_ ? *stream.device_ : default_device(problem);
  MhaBwdLaunches launches(problem, plan, device, stream);
  if (plan.bytes > 0) {
    launches.set_workspace(allocate(workspace_alloc, static_cast<size_t>(plan.bytes)));
  }
  if (stream.time_kernel_) return Timer(launches, device, stream).milliseconds();
  launches.run(true);
  return 0;
}

}  // namespace mha_sink
