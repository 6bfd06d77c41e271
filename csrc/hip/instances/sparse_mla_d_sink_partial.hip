#include "hip/sparse_mla/reduce_d_sink.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256)))
sparse_mla_d_sink_partial(mha_sink::sparse_mla::DSinkPartialParams params) {
  using Kernel = mha_sink::sparse_mla::DSinkPartial;
  static MHA_SINK_LDS Kernel::Lds lds;
  Kernel::run(params, lds);
}
