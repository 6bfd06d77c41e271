#include "host/compare_sparse_mla.h"

#include "host/run_sparse_mla.h"
#include "host/uploads.h"

namespace mha_sink {
namespace {

template <class Problem, class Run>
void compare(Problem problem, Device& device, LaunchObserver& observer, Run&& run) {
  Uploads uploads(device);
  const auto upload = [&](const Array* array) {
    if (array->bytes == 0) return;
    const_cast<Array*>(array)->data = uploads.copy(array->data, static_cast<size_t>(array->bytes));
  };
  for (const Array* array : problem.inputs()) upload(array);
  for (const Array* array : problem.outputs()) upload(array);

  ComparedDevice compared(device, observer);
  stream_config config;
  config.device_ = &compared;
  run(problem, uploads.workspace(), config);
}

}  // namespace

void compare_sparse_mla(const SparseMlaFwdCall& call, Device& device, LaunchObserver& observer) {
  compare(check(call, Outputs::required), device, observer, run_sparse_mla_fwd);
}

void compare_sparse_mla(const SparseMlaBwdCall& call, Device& device, LaunchObserver& observer) {
  compare(check(call, Outputs::required), device, observer, run_sparse_mla_bwd);
}

}  // namespace mha_sink
