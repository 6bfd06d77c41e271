#include "hip/mha/prepare_sequences.h"

MHA_SINK_KERNEL void __attribute__((amdgpu_flat_work_group_size(256, 256))) mha_prepare_sequences(
    mha_sink::mha::PrepareSequencesParams params) {
  mha_sink::mha::PrepareSequences::run(params);
}
