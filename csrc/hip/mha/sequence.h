// Which rows of a batch a workgroup works on.
#pragma once

#include "hip/arch/scalar.h"
#include "hip/arch/types.h"
#include "hip/mha/params.h"

namespace mha_sink::mha {

using namespace arch;

// One tile of one sequence. Rows count from the sequence's first.
struct SequenceTile {
  int batch;  // of the sinks; of tensors too where the batch is not packed
  int tile;   // below 0: there is nothing to do
  Sequence rows;
  int first_padded_row;  // of the sequence's row constants in each head

  // tile_number is the workgroup's position along the tiles, batch_id along the batch.
  MHA_SINK_DEVICE SequenceTile(const Batch& p, int tile_rows, int tile_number, int batch_id,
                               bool tiles_are_queries) {
    if (p.sequences == nullptr) {
      batch = batch_id;
      tile = tile_number;
      rows = {0, 0, p.seqlen_q, p.seqlen_k};
      first_padded_row = 0;
      return;
    }
    batch = scalar_load(p.tile_sequence + tile_number);
    tile = -1;
    if (batch < 0) return;
    rows = scalar_load(p.sequences + batch);
    const int first = tiles_are_queries ? rows.first_query : rows.first_key;
    tile = tile_number - first_tile(first, tile_rows, batch);
    first_padded_row = first_tile(rows.first_query, kRowPadding, batch) * kRowPadding;
  }

  // Of the row constants: the sequence's first row in a head.
  MHA_SINK_DEVICE int64_t padded_row(const RowConstants& constants, int head) const {
    return batch * constants.batch_stride + head * constants.nhead_stride + first_padded_row;
  }

  MHA_SINK_DEVICE float* accumulator(const DqAccumulator& dq_acc, int head, int hdim) const {
    const int64_t row = batch * dq_acc.batch_stride + head * dq_acc.nhead_stride + rows.first_query;
    return dq_acc.data + row * hdim;
  }
};

}  // namespace mha_sink::mha
