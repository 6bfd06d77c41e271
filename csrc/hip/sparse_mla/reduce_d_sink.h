// d_sink[h] = the sum of its partials, in a fixed order: the same bits on every run.
#pragma once

#include "hip/sparse_mla/params.h"
#include "hip/tile/reduce.h"

namespace mha_sink::sparse_mla {

using namespace tile;

struct ReduceDSink {
  static constexpr int kThreads = 256, kWaves = kThreads / kWaveSize;

  static MHA_SINK_DEVICE void run(const ReduceDSinkParams& p, float* scratch) {
    const int head = workgroup_id_x();
    const float* partial = p.partial + int64_t{head} * p.tiles;
    float sum = 0.0f;
    for (int tile = thread_id(); tile < p.tiles; tile += kThreads) sum += partial[tile];
    sum = sum_over_workgroup<kWaves>(sum, scratch);
    if (thread_id() == 0) p.d_sink[head] = sum;
  }
};

}  // namespace mha_sink::sparse_mla
