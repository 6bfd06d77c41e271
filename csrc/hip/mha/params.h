// Kernel parameters of dense attention backward: plain structs that host and gfx950 code share.
// The whole struct is the kernel's argument; no hidden arguments are used. Strides are in elements.
#pragma once

#include <cstdint>

namespace mha_sink::mha {

// A [batch, seqlen, nhead, hdim] tensor whose hdim is contiguous.
struct Tensor {
  void* data;
  int64_t batch_stride, seqlen_stride, nhead_stride;
};

struct ConstTensor {
  const void* data;
  int64_t batch_stride, seqlen_stride, nhead_stride;
};

// A fp32 [batch, nhead, seqlen] tensor whose seqlen is contiguous.
struct RowVector {
  float* data;
  int64_t batch_stride, nhead_stride;
};

struct ConstRowVector {
  const float* data;
  int64_t batch_stride, nhead_stride;
};

// Query i sees key j when  i + diagonal - left <= j <= i + diagonal + right,
// diagonal = seqlen_k - seqlen_q (bottom-right alignment). Unbounded: kUnboundedWindow.
inline constexpr int32_t kUnboundedWindow = 0x3fffffff;

// Rows of one workgroup of dot_do_o, and the padding of row_lse and row_delta.
inline constexpr int32_t kRowPadding = 64;

// Keys that one workgroup of dq_dk_dv owns, 64 or 32 a wave: as many as the accumulators of dK and
// dV leave room for in 512 registers. hdim is the larger of the two head dims.
constexpr int32_t keys_per_workgroup(int32_t hdim) { return hdim <= 128 ? 256 : 128; }

// Largest distance between rows of a [batch, seqlen, nhead, hdim] tensor, in elements: the byte
// offset of a tile's last row, 255 * 2 * stride, is a 32-bit number.
inline constexpr int64_t kMaxRowStride = int64_t{1} << 22;

// Sums of a position and a window stay in int32.
inline constexpr int64_t kMaxSeqlenQ = int64_t{1} << 29;

// dot_do_o: delta = rowsum(dout * out), the rows' constants for dq_dk_dv, d_sink partial sums.
// Grid (ceil(seqlen_q / kRowPadding), nhead_q, batch), 256 threads.
struct DotDoOParams {
  ConstTensor out, dout;
  ConstRowVector lse;  // natural log, sink-inclusive
  RowVector delta;     // softmax_d of the interface: delta, or data == nullptr
  // [batch, nhead_q, seqlen_q_padded]: what dq_dk_dv reads. Rows past seqlen_q, and rows whose lse
  // is -inf (they see no key), get row_lse = -inf and row_delta = 0, so that P and dS are 0 there.
  float* row_lse;         // -lse * log2(e)
  float* row_delta;       // delta
  const float* sink;      // [batch, nhead_q], natural log, already scaled; nullptr: no sink
  float* d_sink_partial;  // [batch, nhead_q, gridDim.x]: -sum exp(sink - lse) * delta
  int32_t seqlen_q, seqlen_q_padded, nhead_q, hdim;
};

// dq_dk_dv: one workgroup a tile of keys and KV head; loops over the group's query heads and query
// tiles. Grid (nhead_k, ceil(seqlen_k / keys_per_workgroup), batch), 256 threads: heads vary
// fastest so that the workgroups an XCD receives in turn share the same KV head's Q and dO in its
// L2.
struct DqDkDvParams {
  ConstTensor q, k, v, dout;
  Tensor dk, dv;
  const float* row_lse;  // as DotDoOParams
  const float* row_delta;
  float* dq_acc;  // [batch, nhead_q, seqlen_q_padded, hdim_q], zero before the launch
  int32_t seqlen_q, seqlen_k, seqlen_q_padded;
  int32_t nhead_q, nhead_k, hdim_q, hdim_v;
  float scale;
  int32_t window_left, window_right;  // kUnboundedWindow: no bound
};

// convert_dq: dq = scale * dq_acc, rounded. Grid (ceil(seqlen_q / kRowPadding), nhead_q, batch),
// 256 threads.
struct ConvertDqParams {
  const float* dq_acc;  // [batch, nhead_q, seqlen_q_padded, hdim]
  Tensor dq;
  int32_t seqlen_q, seqlen_q_padded, nhead_q, hdim;
  float scale;
};

// reduce_d_sink: d_sink[h] += sum of the partials, in a fixed order. Grid (nhead_q), 256 threads.
struct ReduceDSinkParams {
  const float* partial;  // [batch, nhead_q, tiles]
  float* d_sink;         // [nhead_q]
  int32_t batch, nhead_q, tiles;
};

}  // namespace mha_sink::mha
