// The scratch memory of one dense attention backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/mha_bwd_problem.h"
#include "host/scratch.h"

namespace mha_sink {

// Sizes follow from MhaBwdSizes alone, so that a launcher knows them from its traits. dq_acc
// dominates where it is needed; the row constants are 2 fp32 a row, padded to kRowPadding rows.
struct MhaBwdWorkspace {
  // Tiles of kRowPadding queries, of dq and of dq_dk_dv: of a batch entry, or of a packed batch.
  int64_t row_tiles = 0, dq_tiles = 0, key_tiles = 0;
  int64_t padded_rows = 0;  // row_tiles * kRowPadding

  Region row_lse, row_delta;  // fp32 [b, hq, padded_rows], packed [hq, padded_rows]
  Region dq_acc;              // fp32 [b, hq, sq, d], packed [hq, total_q, d]; not deterministic
  Region d_sink_partial;      // fp32 [b, hq, row_tiles], packed [hq, row_tiles]
  Region d_sink_discard;      // fp32 [b, hq]: where repeats of a timed call accumulate

  // Packed.
  Region sequences;                                               // mha::Sequence [b]
  Region row_tile_sequence, dq_tile_sequence, key_tile_sequence;  // int32, one after another

  int64_t bytes = 0;  // exact
};

// Throws Unsupported when the total exceeds the address space.
MhaBwdWorkspace plan_mha_bwd_workspace(const MhaBwdSizes& sizes);

}  // namespace mha_sink
