#include "hip/sparse_mla/reduce_d_sink.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256)))
sparse_mla_reduce_d_sink(mha_sink::sparse_mla::ReduceDSinkParams params) {
  using Kernel = mha_sink::sparse_mla::ReduceDSink;
  static MHA_SINK_LDS float scratch[Kernel::kWaves];
  Kernel::run(params, scratch);
}
