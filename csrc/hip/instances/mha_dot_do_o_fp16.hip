#include "hip/mha/dot_do_o.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256))) mha_dot_do_o_fp16(
    mha_sink::mha::DotDoOParams params) {
  using Kernel = mha_sink::mha::DotDoO<mha_sink::arch::Dtype::fp16>;
  static MHA_SINK_LDS float scratch[Kernel::kWaves];
  mha_sink::mha::with_row_lanes<Kernel>(params.hdim, params, scratch);
}
