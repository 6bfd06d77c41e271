// The scratch memory of one dense attention backward: one block, cut into aligned regions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mha_sink {

struct Region {
  int64_t offset = 0, bytes = 0;
};

// Sizes follow from b, hq, sq and d alone, so that a launcher knows them from its traits. dq_acc
// dominates: the rest adds 3 fp32 a row of d, and padding to kRowPadding rows a head.
struct MhaBwdWorkspace {
  int64_t seqlen_q_padded = 0;  // multiple of kRowPadding
  int64_t tiles = 0;            // seqlen_q_padded / kRowPadding

  Region row_lse, row_delta;  // fp32 [b, hq, seqlen_q_padded]
  Region dq_acc;              // fp32 [b, hq, seqlen_q_padded, d]
  Region d_sink_partial;      // fp32 [b, hq, tiles]
  Region d_sink_discard;      // fp32 [hq]: where repeats of a timed call accumulate
  int64_t bytes = 0;          // exact; 0 when there are no queries
};

// Throws Unsupported when the total exceeds the address space.
MhaBwdWorkspace plan_mha_bwd_workspace(int64_t batch, int64_t nhead_q, int64_t seqlen_q,
                                       int64_t hdim);

}  // namespace mha_sink
