// Which keys a query sees, for single elements and for 32 x 32 blocks.
#pragma once

#include "hip/arch/types.h"
#include "hip/mha/params.h"

namespace mha_sink::mha {

using namespace arch;

enum class BlockMask { none, partial, full };

// Key j is visible to query i when  i + diagonal - left <= j <= i + diagonal + right  and j < keys.
// Sums stay in int32: sequences are at most kMaxSeqlenQ, bounds at most kUnboundedWindow.
struct Mask {
  int diagonal, left, right, keys;

  MHA_SINK_DEVICE Mask(const DqDkDvParams& p)
      : diagonal(p.seqlen_k - p.seqlen_q),
        left(p.window_left),
        right(p.window_right),
        keys(p.seqlen_k) {}

  // First query and one past the last query that can see any key of [key0, key_end).
  MHA_SINK_DEVICE int first_query(int key0) const { return max(0, key0 - diagonal - right); }
  MHA_SINK_DEVICE int end_query(int key_end, int seqlen_q) const {
    return min(seqlen_q, key_end - diagonal + left);
  }

  // What kQueries queries from query0 see of kKeys keys from key0.
  template <int kQueries, int kKeys>
  MHA_SINK_DEVICE BlockMask classify(int query0, int key0) const {
    const int query1 = query0 + kQueries - 1, key1 = key0 + kKeys - 1;
    const int last_key = min(key1, keys - 1);
    if (key0 >= keys || key0 > query1 + diagonal + right || last_key < query0 + diagonal - left) {
      return BlockMask::none;
    }
    const bool all =
        key1 < keys && key1 <= query0 + diagonal + right && key0 >= query1 + diagonal - left;
    return all ? BlockMask::full : BlockMask::partial;
  }

  // For one key: the visible queries are first..first + span, compared without sign so that one
  // comparison checks both ends.
  struct KeyRange {
    int first;
    uint32_t span;
    MHA_SINK_DEVICE bool visible(int query) const {
      return static_cast<uint32_t>(query - first) <= span;
    }
  };
  MHA_SINK_DEVICE KeyRange queries_of(int key) const {
    // A key past the end: no query - first of a real query is as small as span.
    const int first = key < keys ? key - diagonal - right : 0x7fffffff;
    return {first, static_cast<uint32_t>(left + right)};
  }
};

}  // namespace mha_sink::mha
