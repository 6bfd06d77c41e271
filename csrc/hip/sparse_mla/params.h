// Kernel parameters of DeepSeek-V4 sparse MLA: plain structs that host and gfx950 code share. The
// whole struct is the kernel's argument; no hidden arguments are used.
//
// T tokens, H heads, TOPK slots a token, D = 512. q, o, do and dq are [T, H, D], kv and dkv
// [num_kv, D], contiguous, 16 bits an element. A token's valid slots are compacted to 0..count-1.
#pragma once

#include <cstdint>

namespace mha_sink::sparse_mla {

inline constexpr int32_t kHeadDim = 512;
inline constexpr int32_t kRowBytes = kHeadDim * 2;  // a row of kv, or of one token's q

// Slots of a block of matrix instructions; temporaries are padded to them.
inline constexpr int32_t kBlockSlots = 32;
inline constexpr int32_t kMaxHeads = 128;

// Compact lists are padded to this many slots by repeating their last valid index: a tile of any
// kernel reads whole.
inline constexpr int32_t kSlotPadding = 128;

// What inverting indices leaves for the other kernels.
struct Slots {
  // [T, topk_padded], rows of kv in [0, num_kv); topk_padded a multiple of kSlotPadding.
  const int32_t* index;
  const int32_t* count;  // [T], valid slots
  int32_t topk_padded;
};

// The plan's kernels make a stable counting sort of (kv row, token, slot). Tokens are cut into
// segments, each of which counts and fills alone; their counts give every segment its own range of
// each row's list.
//
// count_slots: compacts the slots of a token and counts its rows. Grid (ceil(T / 4)), 256 threads,
// a wave a token.
struct CountSlotsParams {
  const int32_t* topk_indices;  // [T, topk]; values outside [0, num_kv) are empty slots
  int32_t* slot_index;          // Slots::index
  int32_t* slot_count;          // Slots::count
  uint32_t* cursor;             // [segments, num_kv], zero before; nullptr: no inversion
  int32_t tokens, topk, topk_padded, num_kv, segment_tokens;
};

// scan_segments: turns each row's counts into offsets within the row's list, and sums them. Grid
// (ceil(num_kv / 64)), 1024 threads.
struct ScanSegmentsParams {
  uint32_t* cursor;     // [segments, num_kv]: counts in, exclusive sums over segments out
  uint32_t* row_begin;  // [num_kv + 1]: entries of each row
  int32_t segments, num_kv;
};

// scan_rows: exclusive sums of row_begin, in place; the total behind the last row. Grid (1), 1024
// threads.
struct ScanRowsParams {
  uint32_t* row_begin;
  int32_t num_kv;
};

// fill_entries: entry = token * topk_padded + slot, in each row by ascending entry. Grid
// (segments), 64 threads.
struct FillEntriesParams {
  Slots slots;
  uint32_t* cursor;           // as scan_segments left it; advanced
  const uint32_t* row_begin;  // as scan_rows left it
  uint32_t* entry;            // [row_begin[num_kv]]
  int32_t tokens, num_kv, segment_tokens;
};

// fwd: o and lse. Grid (T, heads_padded / heads of the instance), 256 threads.
struct FwdParams {
  const void *q, *kv;
  const float* sink;  // [H], natural log, already scaled; nullptr: no sink
  void* o;
  float* lse;  // [T, H], natural log, sink-inclusive
  Slots slots;
  int32_t heads;
  float scale;
};

// A token's slots slot0..slot0+slots-1 are one chunk: what goes through the buffers at a time.
struct Chunk {
  int32_t slot0, slots;
  bool first, last;
};

// dq: delta, S, P, dP, dS and dq = dS kv. Grid (T, heads_padded / heads of the instance), 256
// threads.
struct DqParams {
  const void *q, *kv, *dout;
  const void* o;            // read in the first chunk
  const float *lse, *dlse;  // [T, H]; dlse: gradient of lse, nullptr: zero
  float* delta;  // [T, H], rowsum(o * do) - dlse: written in the first chunk, read in others
  void* dq;
  float* dq_acc;  // [T, H, D], dq so far; nullptr where one chunk holds all slots
  // PackedBlocks [T, ceil(chunk.slots / 32), heads_padded / n, n / 16, 64 lanes, 4 words]: 32 slots
  // (rows) times n heads (columns), 16 bits an element; n is 16 where heads_padded is, else 32.
  void *p, *ds;
  Slots slots;
  Chunk chunk;
  int32_t heads, heads_padded;
  float scale;
};

// dkv_slots: interm[t, slot] = sum over heads of dS q + P do, for the valid slots of a chunk. Grid
// (T), 256 threads.
struct DkvSlotsParams {
  const void *q, *dout;
  const void *p, *ds;  // as DqParams
  // [T, chunk.slots, D] and [T, chunk.slots]: integers and their scale, see slot_gradient.h.
  int16_t* interm;
  float* interm_scale;
  const int32_t* slot_count;  // Slots::count
  Chunk chunk;
  int32_t heads;
};

// gather_dkv: dkv[row] = sum of interm over the row's entries, in their order. Grid (num_kv), 512
// threads.
struct GatherDkvParams {
  const int16_t* interm;  // as dkv_slots
  const float* interm_scale;
  const uint32_t *row_begin, *entry;  // as fill_entries
  void* dkv;
  float* dkv_acc;  // [num_kv, D], dkv so far; nullptr where one chunk holds all slots
  Chunk chunk;
  int32_t topk_padded, num_kv;
};

// Tokens of one workgroup of d_sink_partial.
inline constexpr int32_t kDSinkTokens = 64;

// d_sink_partial: -sum exp(sink - lse) * delta over some tokens. Grid (ceil(T / kDSinkTokens)), 256
// threads.
struct DSinkPartialParams {
  const float *sink, *lse, *delta;  // [H], [T, H], as dq wrote it
  float* partial;                   // [H, gridDim.x]
  int32_t tokens, heads, tiles;
};

// reduce_d_sink: d_sink[h] = the sum of head h's partials, in a fixed order. Grid (H), 256 threads.
struct ReduceDSinkParams {
  const float* partial;  // [H, tiles]
  float* d_sink;         // [H]
  int32_t tiles;
};

}  // namespace mha_sink::sparse_mla
