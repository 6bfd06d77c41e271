#include "host/compare_mha_bwd.h"

#include <deque>

#include "host/run_mha_bwd.h"

namespace mha_sink {
namespace {

class DeviceMemory {
 public:
  DeviceMemory(Device& device, size_t bytes) : device_(device), data_(device.allocate(bytes)) {}
  ~DeviceMemory() {
    try {
      device_.free(data_);
    } catch (const Error&) {
      // After a failed kernel the runtime refuses every call; the first failure is the one to tell.
    }
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }

 private:
  Device& device_;
  void* data_;
};

}  // namespace

void compare_mha_bwd(const MhaBwdCall& call, Device& device, LaunchObserver& observer) {
  MhaBwdProblem problem = check(call, Outputs::required);
  std::deque<DeviceMemory> memory;
  const auto upload = [&](View& view) {
    if (!view.present || view.empty()) return;
    const auto bytes = static_cast<size_t>(view.extent());
    void* data = memory.emplace_back(device, bytes).data();
    device.copy(data, view.data, bytes, nullptr);
    view.data = data;
  };
  for (const View* view : problem.inputs()) upload(const_cast<View&>(*view));
  for (const View* view : problem.outputs()) upload(const_cast<View&>(*view));

  ComparedDevice compared(device, observer);
  stream_config config;
  config.device_ = &compared;
  const WorkspaceAlloc workspace = [&](size_t bytes, bool) {
    void* data = memory.emplace_back(device, bytes).data();
    device.memset(data, 0xff, bytes, nullptr);
    return data;
  };
  run_mha_bwd(problem, workspace, config);
}

}  // namespace mha_sink
