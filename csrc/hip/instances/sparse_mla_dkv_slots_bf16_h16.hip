#include "hip/sparse_mla/dkv_slots.h"

MHA_SINK_KERNEL void
    __attribute__((amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1)))
    sparse_mla_dkv_slots_bf16_h16(mha_sink::sparse_mla::DkvSlotsParams params) {
  using Config = mha_sink::sparse_mla::DkvSlotsConfig<mha_sink::arch::Dtype::bf16, 16>;
  static MHA_SINK_LDS Config::LdsPlan lds;
  mha_sink::sparse_mla::DkvSlots<Config>(params, lds).run();
}
