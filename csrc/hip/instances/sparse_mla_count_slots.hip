#include "hip/sparse_mla/plan.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256))) sparse_mla_count_slots(
    mha_sink::sparse_mla::CountSlotsParams params) {
  mha_sink::sparse_mla::CountSlots::run(params);
}
