#include "hip/sparse_mla/plan.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(1024, 1024)))
sparse_mla_scan_segments(mha_sink::sparse_mla::ScanSegmentsParams params) {
  static MHA_SINK_LDS mha_sink::sparse_mla::ScanSegments::Lds lds;
  mha_sink::sparse_mla::ScanSegments::run(params, lds);
}
