// d_sink[h] += the partial sums of all batches and row tiles, in a fixed order: the same bits on
// every run, without atomics.
#pragma once

#include "hip/mha/params.h"
#include "hip/tile/reduce.h"

namespace mha_sink::mha {

using namespace tile;

struct ReduceDSink {
  static constexpr int kThreads = 256, kWaves = kThreads / kWaveSize;

  static MHA_SINK_DEVICE void run(const ReduceDSinkParams& p, float* scratch) {
    const int head = workgroup_id_x();
    float sum = 0.0f;
    for (int batch = 0; batch < p.batch; ++batch) {
      const float* partial = p.partial + (int64_t{batch} * p.nhead_q + head) * p.tiles;
      for (int tile = thread_id(); tile < p.tiles; tile += kThreads) sum += partial[tile];
    }
    sum = sum_over_workgroup<kWaves>(sum, scratch);
    if (thread_id() == 0) p.d_sink[head] += sum;
  }
};

}  // namespace mha_sink::mha
