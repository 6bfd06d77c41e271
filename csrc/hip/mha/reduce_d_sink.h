// d_sink += the partial sums of row tiles, of one batch entry or of all, in a fixed order: the same
// bits on every run, without atomics.
#pragma once

#include "hip/arch/scalar.h"
#include "hip/mha/params.h"
#include "hip/tile/reduce.h"

namespace mha_sink::mha {

using namespace tile;

struct ReduceDSink {
  static constexpr int kThreads = 256, kWaves = kThreads / kWaveSize;

  static MHA_SINK_DEVICE void run(const ReduceDSinkParams& p, float* scratch) {
    const int head = workgroup_id_x(), entry = workgroup_id_y();
    const float* partial = p.partial + entry * p.entry_stride + head * p.nhead_stride;
    int tiles = p.tiles;
    if (p.sequences) {
      const Sequence sequence = scalar_load(p.sequences + entry);
      partial += first_tile(sequence.first_query, kRowPadding, entry);
      tiles = (sequence.seqlen_q + kRowPadding - 1) / kRowPadding;
    }
    float sum = 0.0f;
    for (int row = 0; row < p.rows; ++row, partial += p.row_stride) {
      for (int tile = thread_id(); tile < tiles; tile += kThreads) sum += partial[tile];
    }
    sum = sum_over_workgroup<kWaves>(sum, scratch);
    if (thread_id() == 0) p.d_sink[entry * p.nhead_q + head] += sum;
  }
};

}  // namespace mha_sink::mha
