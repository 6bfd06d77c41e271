// One sparse MLA forward and backward on a device: their memory there, and the arguments.
#pragma once

#include "benchmark/device_buffer.h"
#include "benchmark/sparse_mla_problem.h"
#include "mha_sink/sparse_mla.h"

namespace mha_sink::benchmark {

class SparseMlaCall {
 public:
  // Allocates, uploads, and runs the forward, whose o and lse it puts into `inputs`. Outputs and
  // the workspace are filled with NaN.
  SparseMlaCall(Device& device, const SparseMlaOptions& options, SparseMlaInputs& inputs);

  // Enqueues the backward on `device`, the constructor's or a wrapper of it.
  void run(Device& device);

  SparseMlaOutputs outputs() const;

  size_t workspace_bytes() const { return workspace_.bytes(); }
  // What the call reads and writes at least: each input and output once.
  size_t bytes_moved() const;

 private:
  bool print_kernels_;  // of the first run
  DeviceBuffer q_, kv_, dout_, indices_, sink_, o_, lse_, plan_;
  DeviceBuffer dq_, dkv_, d_sink_, workspace_;
  sparse_mla_bwd_args args_{};
};

}  // namespace mha_sink::benchmark
