#include "host/sparse_mla_workspace.h"

#include <algorithm>

#include "hip/sparse_mla/params.h"
#include "host/checks.h"

namespace mha_sink {
namespace {

using std::to_string;

// Waves that fill the lists, and the most that their cursors may take: 4 Mi, 16 MiB.
constexpr int64_t kMaxSegments = 1024, kMaxCursors = int64_t{1} << 22;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr const char* kProduct = "tokens * nhead * topk";

}  // namespace

SparseMlaPlanLayout layout_sparse_mla_plan(int64_t tokens, int64_t num_kv, int64_t topk) {
  SparseMlaPlanLayout plan;
  plan.topk_padded = ceil_div(topk, sparse_mla::kSlotPadding) * sparse_mla::kSlotPadding;
  int64_t entries = 0;
  if (__builtin_mul_overflow(tokens, plan.topk_padded, &entries) || entries > UINT32_MAX) {
    checks::unsupported("tokens * TOPK", to_string(tokens) + " * " + to_string(topk),
                        "less than 2^32");
  }
  const int64_t most =
      std::clamp<int64_t>(kMaxCursors / std::max<int64_t>(num_kv, 1), 1, kMaxSegments);
  plan.segment_tokens = std::max<int64_t>(ceil_div(tokens, most), 1);
  plan.segments = ceil_div(tokens, plan.segment_tokens);
  RegionPlanner planner(kProduct);
  plan.slot_count = planner.int32({tokens});
  plan.slot_index = planner.int32({tokens, plan.topk_padded});
  plan.compact_bytes = planner.end();
  plan.row_begin = planner.int32({num_kv + 1});
  plan.entry = planner.int32({tokens, topk});
  plan.cursor = planner.int32({plan.segments, num_kv});
  plan.bytes = planner.end();
  return plan;
}

SparseMlaBwdWorkspace layout_sparse_mla_bwd(const SparseMlaSizes& sizes, bool has_plan) {
  SparseMlaBwdWorkspace w;
  if (sizes.tokens == 0) return w;
  const int64_t tokens = sizes.tokens;
  w.tiles = ceil_div(tokens, sparse_mla::kDSinkTokens);
  w.slot_blocks = ceil_div(sizes.r_chunk, sparse_mla::kBlockSlots);
  RegionPlanner planner(kProduct);
  if (!has_plan) {
    w.plan = planner.cut({layout_sparse_mla_plan(tokens, sizes.num_kv, sizes.topk).bytes}, 1);
  }
  w.delta = planner.fp32({tokens, sizes.nhead});
  w.d_sink_partial = planner.fp32({sizes.nhead, w.tiles});
  w.p = planner.cut({tokens, w.slot_blocks, sizes.padded_heads(), sparse_mla::kBlockSlots}, 2);
  w.ds = planner.cut({tokens, w.slot_blocks, sizes.padded_heads(), sparse_mla::kBlockSlots}, 2);
  w.interm = planner.cut({tokens, sizes.r_chunk, sparse_mla::kHeadDim}, 2);
  w.interm_scale = planner.fp32({tokens, sizes.r_chunk});
  if (sizes.chunks() > 1) {
    w.dq_acc = planner.fp32({tokens, sizes.nhead, sparse_mla::kHeadDim});
    w.dkv_acc = planner.fp32({sizes.num_kv, sparse_mla::kHeadDim});
  }
  w.bytes = planner.end();
  return w;
}

}  // namespace mha_sink
