#include "hip/mha/convert_dq.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256)))
mha_convert_dq_bf16_hd128(mha_sink::mha::ConvertDqParams params) {
  mha_sink::mha::ConvertDq<128>::run(params);
}
