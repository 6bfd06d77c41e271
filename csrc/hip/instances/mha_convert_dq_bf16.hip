#include "hip/mha/convert_dq.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256))) mha_convert_dq_bf16(
    mha_sink::mha::ConvertDqParams params) {
  using Kernel = mha_sink::mha::ConvertDq<mha_sink::arch::Dtype::bf16>;
  mha_sink::mha::with_row_lanes<Kernel>(params.hdim, params);
}
