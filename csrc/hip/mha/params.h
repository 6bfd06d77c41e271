// Kernel parameters of dense attention backward: plain structs that host and gfx950 code share.
// The whole struct is the kernel's argument; no hidden arguments are used. Strides are in elements.
#pragma once

#include <cstdint>

namespace mha_sink::mha {

// A [batch, seqlen, nhead, hdim] tensor whose hdim is contiguous. Packed batches are one batch
// entry of all rows, with batch_stride 0.
struct Tensor {
  void* data;
  int64_t batch_stride, seqlen_stride, nhead_stride;
};

struct ConstTensor {
  const void* data;
  int64_t batch_stride, seqlen_stride, nhead_stride;
};

// A fp32 [batch, nhead, seqlen] tensor whose seqlen is contiguous; packed as above.
struct RowVector {
  float* data;
  int64_t batch_stride, nhead_stride;
};

struct ConstRowVector {
  const float* data;
  int64_t batch_stride, nhead_stride;
};

// Query i sees key j when  i + diagonal - left <= j <= i + diagonal + right.
struct Window {
  int32_t left, right;  // kUnboundedWindow: no bound
  int32_t top_left;     // diagonal: 0, else seqlen_k - seqlen_q (bottom-right alignment)
};
inline constexpr int32_t kUnboundedWindow = 0x3fffffff;

// Rows of one workgroup of dot_do_o, and the padding of the row constants.
inline constexpr int32_t kRowPadding = 64;

// Keys that one workgroup of dq_dk_dv owns, 64 or 32 a wave: as many as the accumulators of dK and
// dV leave room for in 512 registers. hdim is the larger of the two head dims.
constexpr int32_t keys_per_workgroup(int32_t hdim) { return hdim <= 128 ? 256 : 128; }

// Queries that one workgroup of dq owns, likewise.
constexpr int32_t queries_per_workgroup(int32_t hdim) { return hdim <= 128 ? 256 : 128; }

// Largest distance between rows of a [batch, seqlen, nhead, hdim] tensor, in elements: the byte
// offset of a tile's last row, 255 * 2 * stride, is a 32-bit number.
inline constexpr int64_t kMaxRowStride = int64_t{1} << 22;

// Sums of a position and a window stay in int32.
inline constexpr int64_t kMaxSeqlenQ = int64_t{1} << 29;

// One sequence of a packed batch: its rows in the tensors.
struct Sequence {
  int32_t first_query, first_key, seqlen_q, seqlen_k;
};

// Tiles of a packed batch are numbered without a prefix sum: sequence b, whose first row is
// first_row, has tiles first_tile.. of tile_rows rows, and the number of the next sequence's first
// tile leaves room for a partial one. Some numbers belong to no tile.
constexpr int32_t first_tile(int32_t first_row, int32_t tile_rows, int32_t sequence) {
  return first_row / tile_rows + sequence;
}
constexpr int64_t packed_tiles(int64_t total_rows, int64_t tile_rows, int64_t sequences) {
  return total_rows / tile_rows + sequences;
}

// How the sequences of a batch lie, for a kernel whose workgroups take tiles of one.
struct Batch {
  const Sequence* sequences;     // [batch]; nullptr: all have the lengths below, none is packed
  const int32_t* tile_sequence;  // packed: sequence of each tile number, -1: none
  int32_t seqlen_q, seqlen_k;    // not packed
};

// What dq_dk_dv and dq need to know of each query row, kRowPadding rows to a tile of dot_do_o. Rows
// past a sequence's last, and rows whose lse is -inf (they see no key), have lse = -inf and delta =
// 0, so that P and dS are 0 there.
struct RowConstants {
  float* lse;                          // -lse * log2(e)
  float* delta;                        // delta - dlse
  int64_t batch_stride, nhead_stride;  // multiples of kRowPadding; packed: batch_stride 0
};

// fp32 [batch, nhead_q, seqlen_q, hdim_q], packed [nhead_q, total_q, hdim_q]; strides in rows.
struct DqAccumulator {
  float* data;
  int64_t batch_stride, nhead_stride;
};

// prepare_sequences: Sequences and tile maps of a packed batch from lengths on the device, and zero
// in the rows of dq, dk, dv and delta that belong to no sequence. Whatever the lengths hold, the
// rows written lie inside the tensors. Grid (kGapSlices, batch), 256 threads.
inline constexpr int32_t kGapSlices = 16;
struct PrepareSequencesParams {
  // Of queries and of keys.
  struct Lengths {
    const int32_t* start;   // [batch + 1]: first row of each sequence
    const int32_t* cu;      // [batch + 1]: lengths as differences; wins over
    const int32_t* length;  // [batch]; both nullptr: the rows up to the next start
    int32_t total;
  };
  // sequence[tile]; must be -1 before the launch. nullptr: not wanted.
  struct TileMap {
    int32_t* sequence;
    int32_t tile_rows;
  };
  Lengths q, k;
  Sequence* sequences;
  TileMap row_tiles, dq_tiles, key_tiles;
  Tensor dq, dk, dv;
  RowVector delta;  // data == nullptr: not wanted
  int32_t batch, nhead_q, nhead_k, hdim_q, hdim_v;
};

// dot_do_o: delta = rowsum(dout * out), the row constants, d_sink partial sums.
// Grid (ceil(seqlen_q / kRowPadding), nhead_q, batch), packed (tile numbers, nhead_q), 256 threads.
struct DotDoOParams {
  Batch batch;
  ConstTensor out, dout;
  ConstRowVector lse;   // natural log, sink-inclusive
  ConstRowVector dlse;  // its gradient, or data == nullptr
  RowVector delta;      // softmax_d of the interface: delta, or data == nullptr
  RowConstants rows;
  const float* sink;      // [batch, nhead_q], natural log, already scaled; nullptr: no sink
  float* d_sink_partial;  // a number a tile: -sum exp(sink - lse) * (delta - dlse)
  int32_t nhead_q, hdim;
};

// dq_dk_dv: one workgroup a tile of keys and KV head; loops over the group's query heads and query
// tiles. Grid (nhead_k, ceil(seqlen_k / keys_per_workgroup), batch), packed (nhead_k, tile
// numbers), 256 threads: heads vary fastest so that the workgroups an XCD receives in turn share
// the same KV head's Q and dO in its L2.
struct DqDkDvParams {
  Batch batch;
  ConstTensor q, k, v, dout;
  Tensor dk, dv;
  RowConstants rows;
  DqAccumulator dq_acc;  // zero before the launch; data == nullptr: dQ is not wanted
  int32_t nhead_q, nhead_k, hdim_q, hdim_v;
  float scale;
  Window window;
};

// dq: one workgroup a tile of queries and query head; loops over the keys that they see. Grid
// (nhead_q, ceil(seqlen_q / queries_per_workgroup), batch), packed (nhead_q, tile numbers), 256
// threads.
struct DqParams {
  Batch batch;
  ConstTensor q, k, v, dout;
  Tensor dq;
  RowConstants rows;
  int32_t nhead_q, nhead_k, hdim_q, hdim_v;
  float scale;
  Window window;
};

// convert_dq: dq = scale * dq_acc, rounded. Grid as dot_do_o.
struct ConvertDqParams {
  Batch batch;
  DqAccumulator dq_acc;
  Tensor dq;
  int32_t nhead_q, hdim;
  float scale;
};

// reduce_d_sink: adds the partial sums to d_sink in a fixed order. Grid (nhead_q, entries of
// d_sink), 256 threads.
struct ReduceDSinkParams {
  const float* partial;       // as dot_do_o writes it; tiles of no sequence are 0
  const Sequence* sequences;  // packed, d_sink of each sequence; else nullptr
  float* d_sink;              // [nhead_q], or [batch, nhead_q]
  // Partials of d_sink entry e: rows of tiles numbers, rows of them, beginning at
  // e * entry_stride + head * nhead_stride and row_stride apart.
  int64_t entry_stride, nhead_stride, row_stride;
  int32_t rows, tiles, nhead_q;
};

}  // namespace mha_sink::mha
