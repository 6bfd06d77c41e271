// Masks in the spelling of CK and aiter, and what they let a query see.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace mha_sink::benchmark {

// The lengths are those of the query's sequence.
struct Mask {
  int type = 0;               // as mha_bwd_args::mask_type
  int left = -1, right = -1;  // as window_size_left and window_size_right

  // First visible key and one past the last; equal when the query sees none. Not for
  // kMaskGeneric.
  std::pair<int, int> keys_of(int query, int seqlen_q, int seqlen_k) const;
  // Over all queries.
  int64_t visible_pairs(int seqlen_q, int seqlen_k) const;
  // "none", "b:-1,0"
  std::string to_string() const;
};

// 0; 1 or t; 2 or b; t:l,r; b:l,r; xt:w; xb:w; g:y,x. Throws BadOption for another spelling.
Mask parse_mask(const std::string& text);

}  // namespace mha_sink::benchmark
