#include "hip/mha/dq.h"

MHA_SINK_KERNEL void
    __attribute__((amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1)))
    mha_dq_fp16_hd64(mha_sink::mha::DqParams params) {
  using Config = mha_sink::mha::DqConfig<mha_sink::arch::Dtype::fp16, 64>;
  static MHA_SINK_LDS Config::LdsPlan lds;
  mha_sink::mha::Dq<Config>(params, lds).run();
}
