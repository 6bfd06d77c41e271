#include "host/run_mha_bwd.h"

#include "device/device.h"
#include "host/checks_contents.h"
#include "host/kernel_launcher.h"
#include "host/mha_bwd_launches.h"
#include "host/workspace.h"

namespace mha_sink {
namespace {

// Where the tensors are, of which some may be empty.
Device& default_device(const MhaBwdProblem& problem) {
  for (const View* view : problem.inputs()) {
    if (view->present && !view->empty()) return device_of(view->data);
  }
  return emulated_device();
}

}  // namespace

float run_mha_bwd(const MhaBwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                  const stream_config& stream) {
  Device& device = stream.device_ ? *stream.device_ : default_device(problem);
  checks::check_lengths(problem, device, stream.stream_id_);
  const KernelLauncher launcher(device, stream);
  const MhaBwdWorkspace plan = plan_mha_bwd_workspace(problem);
  MhaBwdLaunches launches(problem, plan, launcher);
  launches.set_workspace(allocate_workspace(workspace_alloc, static_cast<size_t>(plan.bytes)));
  return launcher.run([&](bool last) { launches.run(last); });
}

}  // namespace mha_sink
