#include "hip/mha/dq_dk_dv.h"

MHA_SINK_KERNEL void
    __attribute__((amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1)))
    mha_dq_dk_dv_bf16_hd96(mha_sink::mha::DqDkDvParams params) {
  using Config = mha_sink::mha::DqDkDvConfig<mha_sink::arch::Dtype::bf16, 96>;
  static MHA_SINK_LDS Config::LdsPlan lds;
  mha_sink::mha::DqDkDv<Config>(params, lds).run();
}
