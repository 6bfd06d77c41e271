#include "host/sparse_mla_workspace.h"

#include <algorithm>
#include <initializer_list>

#include "hip/sparse_mla/params.h"
#include "host/checks.h"

namespace mha_sink {
namespace {

using std::to_string;

// Two cache lines of gfx950: no region shares one with its neighbour.
constexpr int64_t kAlignment = 256;
// Waves that fill the lists, and the most that their cursors may take: 4 Mi, 16 MiB.
constexpr int64_t kMaxSegments = 1024, kMaxCursors = int64_t{1} << 22;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sizes are below 2^31 each and every shape here has at most two of them beside factors up to 2^16:
// products fit in 64 bits where the checks passed.
class Cutter {
 public:
  Region cut(std::initializer_list<int64_t> shape, int64_t element_bytes) {
    Region region{.offset = ceil_div(end_, kAlignment) * kAlignment, .bytes = element_bytes};
    for (int64_t size : shape) {
      if (__builtin_mul_overflow(region.bytes, size, &region.bytes)) too_large();
    }
    if (__builtin_add_overflow(region.offset, region.bytes, &end_) ||
        end_ > INT64_MAX - kAlignment) {
      too_large();
    }
    return region;
  }
  Region fp32(std::initializer_list<int64_t> shape) { return cut(shape, 4); }
  int64_t end() const { return end_; }

 private:
  [[noreturn]] static void too_large() {
    checks::unsupported("tokens * nhead * topk", "a workspace past the address space",
                        "products that fit in memory");
  }

  int64_t end_ = 0;
};

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
  Cutter cutter;
  plan.slot_count = cutter.cut({tokens}, 4);
  plan.slot_index = cutter.cut({tokens, plan.topk_padded}, 4);
  plan.compact_bytes = cutter.end();
  plan.row_begin = cutter.cut({num_kv + 1}, 4);
  plan.entry = cutter.cut({tokens, topk}, 4);
  plan.cursor = cutter.cut({plan.segments, num_kv}, 4);
  plan.bytes = cutter.end();
  return plan;
}

SparseMlaBwdWorkspace layout_sparse_mla_bwd(const SparseMlaSizes& sizes, bool has_plan) {
  SparseMlaBwdWorkspace w;
  if (sizes.tokens == 0) return w;
  const int64_t tokens = sizes.tokens, head_blocks = sizes.head_blocks();
  w.tiles = ceil_div(tokens, sparse_mla::kDSinkTokens);
  w.slot_blocks = ceil_div(sizes.r_chunk, sparse_mla::kBlockSlots);
  Cutter cutter;
  if (!has_plan) {
    w.plan = cutter.cut({layout_sparse_mla_plan(tokens, sizes.num_kv, sizes.topk).bytes}, 1);
  }
  constexpr int64_t kBlockBytes = sparse_mla::kBlockHeads * sparse_mla::kBlockSlots * 2;
  w.delta = cutter.fp32({tokens, sizes.nhead});
  w.d_sink_partial = cutter.fp32({sizes.nhead, w.tiles});
  w.p = cutter.cut({tokens, w.slot_blocks, head_blocks}, kBlockBytes);
  w.ds = cutter.cut({tokens, w.slot_blocks, head_blocks}, kBlockBytes);
  w.interm = cutter.cut({tokens, sizes.r_chunk, sparse_mla::kHeadDim}, 2);
  if (sizes.chunks() > 1) {
    w.dq_acc = cutter.fp32({tokens, sizes.nhead, sparse_mla::kHeadDim});
    w.dkv_acc = cutter.fp32({sizes.num_kv, sparse_mla::kHeadDim});
  }
  w.bytes = cutter.end();
  return w;
}

}  // namespace mha_sink
