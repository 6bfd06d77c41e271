#include "hip/sparse_mla/plan.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(1024, 1024))) sparse_mla_scan_rows(
    mha_sink::sparse_mla::ScanRowsParams params) {
  static MHA_SINK_LDS mha_sink::sparse_mla::ScanRows::Lds lds;
  mha_sink::sparse_mla::ScanRows::run(params, lds);
}
