#include "hip/sparse_mla/gather_dkv.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(512, 512)))
sparse_mla_gather_dkv_fp16(mha_sink::sparse_mla::GatherDkvParams params) {
  using Kernel = mha_sink::sparse_mla::GatherDkv<mha_sink::arch::Dtype::fp16>;
  static MHA_SINK_LDS Kernel::Lds lds;
  Kernel::run(params, lds);
}
