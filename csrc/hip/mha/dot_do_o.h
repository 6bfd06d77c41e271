// delta = rowsum(dout * out), the row constants of dq_dk_dv, and the sink gradient's partial sums.
// A workgroup takes kRowPadding rows of one query head; see docs/kernels/row_kernels.md.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/math.h"
#include "hip/mha/params.h"
#include "hip/mha/sequence.h"
#include "hip/mha/tensor.h"
#include "hip/tile/reduce.h"

namespace mha_sink::mha {

using namespace tile;

// One row's term of d_sink = -sum exp(sink - lse) * (delta - dlse), delta - dlse being `delta`
// here, with the limits that the formula leaves open: a row without any key or sink (lse = -inf)
// has no sink probability; sink = lse = +inf is the limit of a dominant sink, probability 1; and an
// overflowing probability times delta = 0 is 0.
MHA_SINK_DEVICE float sink_gradient_term(float sink, float lse, float delta) {
  if (lse == -__builtin_inff() || sink == -__builtin_inff()) return 0.0f;
  const float probability = sink == lse ? 1.0f : exp2((sink - lse) * kLog2E);
  if (probability == __builtin_inff() && delta == 0.0f) return 0.0f;
  return -probability * delta;
}

template <Dtype kDtype>
struct DotDoO {
  static constexpr int kThreads = 256, kWaves = kThreads / kWaveSize;

  static MHA_SINK_DEVICE float dot(u32x4 a, u32x4 b) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t x = a[i], y = b[i];
      sum = __builtin_fmaf(unpack_low<kDtype>(x), unpack_low<kDtype>(y), sum);
      sum = __builtin_fmaf(unpack_high<kDtype>(x), unpack_high<kDtype>(y), sum);
    }
    return sum;
  }

  template <int kRowLanes>
  static MHA_SINK_DEVICE void run(const DotDoOParams& p, float* scratch) {
    constexpr int kPassRows = kThreads / kRowLanes;
    const SequenceTile sequence(p.batch, kRowPadding, workgroup_id_x(), workgroup_id_z(), true);
    const int head = workgroup_id_y(), batch = sequence.batch;
    const int row0 = sequence.tile * kRowPadding;
    const int rows = min(sequence.rows.seqlen_q - row0, kRowPadding);
    if (sequence.tile < 0 || rows <= 0) return;
    const int first = sequence.rows.first_query + row0;
    const Buffer out = row_buffer(p.out, batch, first, head, rows, p.hdim);
    const Buffer dout = row_buffer(p.dout, batch, first, head, rows, p.hdim);
    const auto rows_of = [&](const auto& vector) {
      return vector.data + batch * vector.batch_stride + head * vector.nhead_stride + first;
    };
    const float* lse_rows = rows_of(p.lse);
    const float* dlse_rows = p.dlse.data ? rows_of(p.dlse) : nullptr;
    float* delta_rows = p.delta.data ? rows_of(p.delta) : nullptr;
    const int64_t padded_row0 = sequence.padded_row(p.rows, head) + row0;
    const float sink = p.sink ? p.sink[batch * p.nhead_q + head] : 0.0f;

    const int lane_of_row = thread_id() % kRowLanes;
    const int chunk = lane_of_row * 16;
    float sink_gradient = 0.0f;
#pragma unroll
    for (int pass = 0; pass < kRowPadding / kPassRows; ++pass) {
      const int row = pass * kPassRows + thread_id() / kRowLanes;
      float partial = 0.0f;
      if (chunk < p.hdim * 2) {
        partial = dot(buffer_load_16_bytes(out, row * row_bytes(p.out) + chunk),
                      buffer_load_16_bytes(dout, row * row_bytes(p.dout) + chunk));
      }
      const float delta = sum_over_lanes<kRowLanes>(partial);
      if (lane_of_row != 0) continue;
      const bool exists = row < rows;
      const float lse = exists ? lse_rows[row] : -__builtin_inff();
      const float dlse = exists && dlse_rows ? dlse_rows[row] : 0.0f;
      const bool sees_keys = lse != -__builtin_inff();
      p.rows.lse[padded_row0 + row] = sees_keys ? -lse * kLog2E : -__builtin_inff();
      p.rows.delta[padded_row0 + row] = sees_keys ? delta - dlse : 0.0f;
      if (exists && delta_rows) delta_rows[row] = delta;
      if (exists && p.sink) sink_gradient += sink_gradient_term(sink, lse, delta - dlse);
    }
    if (p.d_sink_partial == nullptr) return;
    const float sum = sum_over_workgroup<kWaves>(sink_gradient, scratch);
    if (thread_id() == 0) {
      p.d_sink_partial[padded_row0 / kRowPadding] = sum;
    }
  }
};

}  // namespace mha_sink::mha
