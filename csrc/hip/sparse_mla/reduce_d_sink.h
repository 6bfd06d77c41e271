// The sink's gradient in two stages, each in a fixed order: the same bits on every run.
#pragma once

#include "hip/mha/dot_do_o.h"
#include "hip/sparse_mla/params.h"
#include "hip/tile/reduce.h"

namespace mha_sink::sparse_mla {

using namespace tile;

struct DSinkPartial {
  static constexpr int kThreads = 256, kParts = kThreads / kMaxHeads;

  struct Lds {
    float sum[kParts][kMaxHeads];
  };

  static MHA_SINK_DEVICE void run(const DSinkPartialParams& p, Lds& lds) {
    const int tile = workgroup_id_x();
    const int head = thread_id() % kMaxHeads, part = thread_id() / kMaxHeads;
    const int token_end = min((tile + 1) * kDSinkTokens, p.tokens);
    float sum = 0.0f;
    if (head < p.heads) {
      const float sink = p.sink[head];
      for (int token = tile * kDSinkTokens + part; token < token_end; token += kParts) {
        const int64_t row = int64_t{token} * p.heads + head;
        sum += mha::sink_gradient_term(sink, p.lse[row], p.delta[row]);
      }
    }
    lds.sum[part][head] = sum;
    workgroup_barrier();
    if (part != 0 || head >= p.heads) return;
    for (int other = 1; other < kParts; ++other) sum += lds.sum[other][head];
    p.partial[int64_t{head} * p.tiles + tile] = sum;
  }
};

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
