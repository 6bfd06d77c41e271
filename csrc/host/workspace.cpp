#include "host/workspace.h"

#include "hip/mha/params.h"
#include "host/kernel_table.h"

namespace mha_sink {
namespace {

int64_t tiles(const MhaBwdSizes& sizes, int64_t rows, int64_t tile_rows) {
  return sizes.packed ? mha::packed_tiles(rows, tile_rows, sizes.batch)
                      : (rows + tile_rows - 1) / tile_rows;
}

}  // namespace

MhaBwdWorkspace plan_mha_bwd_workspace(const MhaBwdSizes& sizes) {
  MhaBwdWorkspace plan;
  const HeadDimKernels& kernel =
      *find_head_dim_kernels(sizes.data_type, sizes.hdim_q, sizes.hdim_v);
  plan.row_tiles = tiles(sizes, sizes.seqlen_q, mha::kRowPadding);
  plan.dq_tiles = tiles(sizes, sizes.seqlen_q, kernel.queries_per_workgroup());
  plan.key_tiles = tiles(sizes, sizes.seqlen_k, kernel.keys_per_workgroup());
  plan.padded_rows = plan.row_tiles * mha::kRowPadding;
  RegionPlanner planner("batch * nhead_q * seqlen_q * hdim");
  if (sizes.packed) {
    plan.sequences = planner.cut({sizes.batch}, sizeof(mha::Sequence));
    plan.row_tile_sequence = planner.int32({plan.row_tiles});
    if (sizes.deterministic) plan.dq_tile_sequence = planner.int32({plan.dq_tiles});
    plan.key_tile_sequence = planner.int32({plan.key_tiles});
  }
  if (sizes.seqlen_q > 0) {
    const int64_t entries = sizes.packed ? 1 : sizes.batch;
    plan.row_lse = planner.fp32({entries, sizes.nhead_q, plan.padded_rows});
    plan.row_delta = planner.fp32({entries, sizes.nhead_q, plan.padded_rows});
    if (!sizes.deterministic) {
      plan.dq_acc = planner.fp32({entries, sizes.nhead_q, sizes.seqlen_q, sizes.hdim_q});
    }
    plan.d_sink_partial = planner.fp32({entries, sizes.nhead_q, plan.row_tiles});
    plan.d_sink_discard = planner.fp32({sizes.batch, sizes.nhead_q});
  }
  plan.bytes = planner.end();
  return plan;
}

}  // namespace mha_sink
