// The tables of a packed batch, made on the device so that no call waits for its lengths, and zeros
// where no sequence is. See docs/kernels/row_kernels.md.
#pragma once

#include "hip/mha/params.h"
#include "hip/mha/sequence.h"
#include "hip/mha/tensor.h"

namespace mha_sink::mha {

struct PrepareSequences {
  static constexpr int kThreads = 256;
  using Params = PrepareSequencesParams;

  struct Rows {
    int first, end;  // of the sequence
    int gap_end;     // first row of the next one, or the tensors' end
  };

  // Inside [0, total] whatever the lengths hold.
  static MHA_SINK_DEVICE Rows rows_of(const Params::Lengths& lengths, int sequence, bool last) {
    const int total = lengths.total;
    const int first = min(max(lengths.start[sequence], 0), total);
    const int next = min(max(lengths.start[sequence + 1], first), total);
    int length = next - first;
    if (lengths.cu) {
      length = min(length, lengths.cu[sequence + 1] - lengths.cu[sequence]);
    } else if (lengths.length) {
      length = min(length, lengths.length[sequence]);
    }
    return {first, first + max(length, 0), last ? total : next};
  }

  static MHA_SINK_DEVICE void fill(const Params::TileMap& map, const Rows& rows, int sequence) {
    if (map.sequence == nullptr) return;
    const int first = first_tile(rows.first, map.tile_rows, sequence);
    const int tiles = (rows.end - rows.first + map.tile_rows - 1) / map.tile_rows;
    for (int tile = thread_id(); tile < tiles; tile += kThreads) {
      map.sequence[first + tile] = sequence;
    }
  }

  static MHA_SINK_DEVICE void clear(const Tensor& tensor, int row0, int rows, int nhead, int hdim) {
    constexpr int kRowLanes = 32, kPassRows = kThreads / kRowLanes;
    const int column = thread_id() % kRowLanes * 8;
    if (column >= hdim) return;
    for (int head = 0; head < nhead; ++head) {
      const Buffer buffer = row_buffer(tensor, 0, row0, head, rows, hdim);
      for (int row = thread_id() / kRowLanes; row < rows; row += kPassRows) {
        buffer_store_16_bytes(buffer, row * row_bytes(tensor) + column * 2, u32x4(0));
      }
    }
  }

  static MHA_SINK_DEVICE void clear(const RowVector& vector, int row0, int rows, int nhead) {
    if (vector.data == nullptr) return;
    for (int i = thread_id(); i < rows * nhead; i += kThreads) {
      vector.data[i / rows * vector.nhead_stride + row0 + i % rows] = 0.0f;
    }
  }

  static MHA_SINK_DEVICE void run(const Params& p) {
    constexpr int kPart = 64;  // rows
    const int slice = workgroup_id_x(), sequence = workgroup_id_y();
    const bool last = sequence + 1 == p.batch;
    const Rows q = rows_of(p.q, sequence, last), k = rows_of(p.k, sequence, last);
    if (slice == 0) {
      if (thread_id() == 0) {
        p.sequences[sequence] = {q.first, k.first, q.end - q.first, k.end - k.first};
      }
      fill(p.row_tiles, q, sequence);
      fill(p.dq_tiles, q, sequence);
      fill(p.key_tiles, k, sequence);
    }
    for (int row = q.end + slice * kPart; row < q.gap_end; row += kGapSlices * kPart) {
      const int rows = min(q.gap_end - row, kPart);
      clear(p.dq, row, rows, p.nhead_q, p.hdim_q);
      clear(p.delta, row, rows, p.nhead_q);
    }
    for (int row = k.end + slice * kPart; row < k.gap_end; row += kGapSlices * kPart) {
      const int rows = min(k.gap_end - row, kPart);
      clear(p.dk, row, rows, p.nhead_k, p.hdim_q);
      clear(p.dv, row, rows, p.nhead_k, p.hdim_v);
    }
  }
};

}  // namespace mha_sink::mha
