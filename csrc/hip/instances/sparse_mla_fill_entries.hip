#include "hip/sparse_mla/plan.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(64, 64))) sparse_mla_fill_entries(
    mha_sink::sparse_mla::FillEntriesParams params) {
  static MHA_SINK_LDS mha_sink::sparse_mla::FillEntries::Lds lds;
  mha_sink::sparse_mla::FillEntries::run(params, lds);
}
