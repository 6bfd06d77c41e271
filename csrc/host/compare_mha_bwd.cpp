#include "host/compare_mha_bwd.h"

#include "host/uploads.h"

namespace mha_sink {

void compare_mha_bwd(const MhaBwdCall& call, Device& device, LaunchObserver& observer) {
  MhaBwdProblem problem = check(call, Outputs::required);
  Uploads uploads(device);
  const auto upload = [&](View& view) {
    if (!view.present || view.empty()) return;
    view.data = uploads.copy(view.data, static_cast<size_t>(view.extent()));
  };
  for (const View* view : problem.inputs()) upload(const_cast<View&>(*view));
  for (const View* view : problem.outputs()) upload(const_cast<View&>(*view));

  ComparedDevice compared(device, observer);
  stream_config config;
  config.device_ = &compared;
  run_mha_bwd(problem, uploads.workspace(), config);
}

}  // namespace mha_sink
