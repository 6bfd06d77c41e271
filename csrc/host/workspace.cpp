#include "host/workspace.h"

#include <initializer_list>
#include <string>

#include "hip/mha/params.h"
#include "host/checks.h"

namespace mha_sink {
namespace {

// Two cache lines of gfx950: no region shares one with its neighbour.
constexpr int64_t kAlignment = 256;

class Planner {
 public:
  Region fp32(std::initializer_list<int64_t> shape) {
    Region region{.offset = (end_ + kAlignment - 1) / kAlignment * kAlignment, .bytes = 4};
    for (int64_t size : shape) {
      if (__builtin_mul_overflow(region.bytes, size, &region.bytes)) too_large();
    }
    // Leaves room for the next region's alignment.
    if (__builtin_add_overflow(region.offset, region.bytes, &end_) ||
        end_ > INT64_MAX - kAlignment) {
      too_large();
    }
    return region;
  }

  int64_t end() const { return end_; }

 private:
  [[noreturn]] static void too_large() {
    checks::unsupported("batch * nhead_q * seqlen_q * hdim", "a workspace past the address space",
                        "products that fit in memory");
  }

  int64_t end_ = 0;
};

}  // namespace

MhaBwdWorkspace plan_mha_bwd_workspace(int64_t batch, int64_t nhead_q, int64_t seqlen_q,
                                       int64_t hdim) {
  MhaBwdWorkspace plan;
  if (seqlen_q == 0) return plan;
  plan.tiles = (seqlen_q + mha::kRowPadding - 1) / mha::kRowPadding;
  plan.seqlen_q_padded = plan.tiles * mha::kRowPadding;
  Planner planner;
  plan.row_lse = planner.fp32({batch, nhead_q, plan.seqlen_q_padded});
  plan.row_delta = planner.fp32({batch, nhead_q, plan.seqlen_q_padded});
  plan.dq_acc = planner.fp32({batch, nhead_q, plan.seqlen_q_padded, hdim});
  plan.d_sink_partial = planner.fp32({batch, nhead_q, plan.tiles});
  plan.d_sink_discard = planner.fp32({nhead_q});
  plan.bytes = planner.end();
  return plan;
}

}  // namespace mha_sink
