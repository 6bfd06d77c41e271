// One backward call on a device: its memory there, and the arguments that describe it.
#pragma once

#include <cstddef>
#include <vector>

#include "benchmark/device_buffer.h"
#include "benchmark/options.h"
#include "benchmark/problem.h"
#include "device/device.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::benchmark {

struct Outputs {
  Tensor dq, dk, dv;
  std::vector<float> delta, d_sink;
};

class DeviceCall {
 public:
  // Allocates, uploads the inputs and fills the outputs and the workspace with NaN.
  DeviceCall(Device& device, const Options& options, const Problem& problem, const Inputs& inputs,
             size_t workspace_bytes);

  // Enqueues the whole call on `device`, which is the constructor's or a wrapper of it. Throws
  // InvalidArgument or Unsupported.
  void run(Device& device);

  Outputs outputs() const;

  // What the call reads and writes at least: each input and output once, padding included.
  size_t bytes_moved() const;

 private:
  bool print_kernels_;   // of the first run
  Tensor dq_, dk_, dv_;  // their layout; the bits are on the device
  DeviceBuffer q_buffer_, k_buffer_, v_buffer_, out_buffer_, dout_buffer_, lse_buffer_,
      sink_buffer_;
  DeviceBuffer seqstart_q_buffer_, seqstart_k_buffer_, cu_seqlen_q_buffer_, cu_seqlen_k_buffer_;
  DeviceBuffer dq_buffer_, dk_buffer_, dv_buffer_, delta_buffer_, d_sink_buffer_;
  DeviceBuffer workspace_;
  mha_bwd_args args_{};
};

}  // namespace mha_sink::benchmark
