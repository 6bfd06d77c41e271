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

  MHA_SINK_DEVICE Mask(const Window& window, const Sequence& sequence)
      : diagonal(window.top_left ? 0 : sequence.seqlen_k - sequence.seqlen_q),
        left(window.left),
        right(window.right),
        keys(sequence.seqlen_k) {}

  // First query and one past the last query that can see any key of [key0, key_end).
  MHA_SINK_DEVICE int first_query(int key0) const { return max(0, key0 - diagonal - right); }
  MHA_SINK_DEVICE int end_query(int key_end, int seqlen_q) const {
    return min(seqlen_q, key_end - diagonal + left);
  }

  // Likewise the keys that queries of [query0, query_end) can see.
  MHA_SINK_DEVICE int first_key(int query0) const { return max(0, query0 + diagonal - left); }
  MHA_SINK_DEVICE int end_key(int query_end) const {
    return min(keys, query_end + diagonal + right);
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

  // Positions first..first + span, compared without sign so that one comparison checks both ends.
  struct Range {
    int first;
    uint32_t span;
    MHA_SINK_DEVICE bool contains(int position) const {
      return static_cast<uint32_t>(position - first) <= span;
    }
  };
  // Queries that see one key.
  MHA_SINK_DEVICE Range queries_of(int key) const {
    // A key past the end: no query - first of a real query is as small as span.
    const int first = key < keys ? key - diagonal - right : 0x7fffffff;
    return {first, static_cast<uint32_t>(left + right)};
  }
  // Keys that one query sees, the last of which is at or before the sequence's end.
  MHA_SINK_DEVICE Range keys_of(int query) const {
    const int first = query + diagonal - left;
    const int last = min(query + diagonal + right, keys - 1);
    return {last < first ? 0x7fffffff : first, static_cast<uint32_t>(last - first)};
  }
};

}  // namespace mha_sink::mha
