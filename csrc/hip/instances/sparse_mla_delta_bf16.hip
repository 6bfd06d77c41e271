#include "hip/sparse_mla/delta.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256))) sparse_mla_delta_bf16(
    mha_sink::sparse_mla::DeltaParams params) {
  using Kernel = mha_sink::sparse_mla::Delta<mha_sink::arch::Dtype::bf16>;
  static MHA_SINK_LDS float scratch[Kernel::kWaves];
  Kernel::run(params, scratch);
}
