#include "hip/sparse_mla/fwd.h"

MHA_SINK_KERNEL void
    __attribute__((amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1)))
    sparse_mla_fwd_fp16_h64(mha_sink::sparse_mla::FwdParams params) {
  using Config = mha_sink::sparse_mla::FwdConfig<mha_sink::arch::Dtype::fp16, 64>;
  static MHA_SINK_LDS Config::LdsPlan lds;
  mha_sink::sparse_mla::Fwd<Config>(params, lds).run();
}
