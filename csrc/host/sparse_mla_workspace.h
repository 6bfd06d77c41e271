// The memory of sparse MLA beside its tensors: the plan, and one workspace block a call. Sizes
// follow from the call's sizes alone.
#pragma once

#include <cstdint>

#include "host/scratch.h"
#include "host/sparse_mla_problem.h"

namespace mha_sink {

struct SparseMlaPlanLayout {
  int64_t topk_padded = 0;
  int64_t segments = 0, segment_tokens = 0;  // of the counting sort
  Region slot_count;                         // int32 [tokens]
  Region slot_index;                         // int32 [tokens, topk_padded]
  Region row_begin;                          // uint32 [num_kv + 1]
  Region entry;                              // uint32 [tokens * topk]
  Region cursor;                             // uint32 [segments, num_kv], used while it is made
  int64_t compact_bytes = 0;                 // of the slots alone, which come first
  int64_t bytes = 0;
};

// Throws Unsupported when entries do not fit in 32 bits.
SparseMlaPlanLayout layout_sparse_mla_plan(int64_t tokens, int64_t num_kv, int64_t topk);

struct SparseMlaBwdWorkspace {
  int64_t tiles = 0;        // of d_sink_partial
  int64_t slot_blocks = 0;  // of a chunk, 32 slots each
  Region plan;              // empty when the call has one
  Region delta;             // fp32 [tokens, nhead]
  Region d_sink_partial;    // fp32 [nhead, tiles]
  Region p, ds;             // [tokens, slot_blocks, padded_heads, 32], 16 bits, packed
  Region interm;            // int16 [tokens, r_chunk, 512]
  Region interm_scale;      // fp32 [tokens, r_chunk]
  Region dq_acc, dkv_acc;   // fp32, when there are several chunks
  int64_t bytes = 0;
};

SparseMlaBwdWorkspace layout_sparse_mla_bwd(const SparseMlaSizes& sizes, bool has_plan);

}  // namespace mha_sink
