#include "hip/mha/reduce_d_sink.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256))) mha_reduce_d_sink(
    mha_sink::mha::ReduceDSinkParams params) {
  using Kernel = mha_sink::mha::ReduceDSink;
  static MHA_SINK_LDS float scratch[Kernel::kWaves];
  Kernel::run(params, scratch);
}
