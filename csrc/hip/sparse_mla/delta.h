// delta = rowsum(o * do), the row constants of dq, and the sink gradient's partial sums. A
// workgroup takes kDeltaTokens tokens of one head.
#pragma once

#include "hip/arch/math.h"
#include "hip/mha/dot_do_o.h"
#include "hip/sparse_mla/gathered_tile.h"
#include "hip/tile/reduce.h"

namespace mha_sink::sparse_mla {

template <Dtype kDtype>
struct Delta {
  static constexpr int kThreads = 256, kWaves = kThreads / kWaveSize;
  // 4 rows of a wave at a time: an instruction reads 256 adjacent bytes of each.
  static constexpr int kRowLanes = 16, kPassRows = kThreads / kRowLanes;
  static constexpr int kLaneChunks = kHeadDim / 8 / kRowLanes;

  static MHA_SINK_DEVICE void run(const DeltaParams& p, float* scratch) {
    const int tile = workgroup_id_x(), head = workgroup_id_y();
    const bool head_exists = head < p.heads;
    const int lane_of_row = thread_id() % kRowLanes;
    const float sink = p.sink && head_exists ? p.sink[head] : 0.0f;
    float sink_gradient = 0.0f;
#pragma unroll
    for (int pass = 0; pass < kDeltaTokens / kPassRows; ++pass) {
      const int token = tile * kDeltaTokens + pass * kPassRows + thread_id() / kRowLanes;
      if (token >= p.tokens) continue;
      float sum = 0.0f;
      if (head_exists) {
        const int64_t row = (int64_t{token} * p.heads + head) * (kHeadDim / 8) + lane_of_row;
        const u32x4* o = static_cast<const u32x4*>(p.o) + row;
        const u32x4* dout = static_cast<const u32x4*>(p.dout) + row;
#pragma unroll
        for (int i = 0; i < kLaneChunks; ++i) {
          sum += mha::DotDoO<kDtype>::dot(o[i * kRowLanes], dout[i * kRowLanes]);
        }
      }
      sum = sum_over_lanes<kRowLanes>(sum);
      if (lane_of_row != 0) continue;
      const int64_t row = int64_t{token} * p.heads + head;
      const float lse = head_exists ? p.lse[row] : -__builtin_inff();
      const float delta = head_exists && p.dlse ? sum - p.dlse[row] : sum;
      const bool sees_slots = __builtin_fabsf(lse) != __builtin_inff();
      const int64_t padded_row = int64_t{token} * p.heads_padded + head;
      p.row_lse[padded_row] = sees_slots ? -lse * kLog2E : -__builtin_inff();
      p.row_delta[padded_row] = sees_slots ? delta * p.scale : 0.0f;
      if (head_exists && p.sink) sink_gradient += mha::sink_gradient_term(sink, lse, delta);
    }
    if (p.d_sink_partial == nullptr || !head_exists) return;
    const float sum = sum_over_workgroup<kWaves>(sink_gradient, scratch);
    if (thread_id() == 0) {
      const int tiles = (p.tokens + kDeltaTokens - 1) / kDeltaTokens;
      p.d_sink_partial[int64_t{head} * tiles + tile] = sum;
    }
  }
};

}  // namespace mha_sink::sparse_mla
