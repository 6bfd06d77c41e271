#include "hip/sparse_mla/dq.h"

MHA_SINK_KERNEL void
    __attribute__((amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1)))
    sparse_mla_dq_bf16_h16(mha_sink::sparse_mla::DqParams params) {
  using Config = mha_sink::sparse_mla::DqConfig<mha_sink::arch::Dtype::bf16, 16>;
  static MHA_SINK_LDS Config::LdsPlan lds;
  mha_sink::sparse_mla::Dq<Config>(params, lds).run();
}
