#include "benchmark/mask.h"

#include <algorithm>
#include <tuple>

#include "benchmark/option_value.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::benchmark {
namespace {

[[noreturn]] void bad_mask(const std::string& text) {
  throw BadOption("mask: '" + text +
                  "' given, one of 0, 1, 2, t, b, t:l,r, b:l,r, xt:w, xb:w, g:y,x needed");
}

// The two numbers of "l,r".
std::pair<int, int> parse_pair(const std::string& text, const std::string& whole) {
  const size_t comma = text.find(',');
  if (comma == text.npos) bad_mask(whole);
  const auto left = parse_number<int>(text.substr(0, comma));
  const auto right = parse_number<int>(text.substr(comma + 1));
  if (!left || !right || *left < -1 || *right < -1) bad_mask(whole);
  return {*left, *right};
}

// xformers' window: w keys around the diagonal, one more on the left when w is even.
std::pair<int, int> parse_xformers_window(const std::string& text, const std::string& whole) {
  const auto width = parse_number<int>(text);
  if (!width) bad_mask(whole);
  if (*width <= 0) return {-1, 0};
  return {*width / 2, *width - 1 - *width / 2};
}

}  // namespace

std::pair<int, int> Mask::keys_of(int query, int seqlen_q, int seqlen_k) const {
  if (type == kNoMask) return {0, seqlen_k};
  const int64_t diagonal =
      query + (type == kMaskBottomRight ? int64_t{seqlen_k} - seqlen_q : int64_t{0});
  const int64_t first = left < 0 ? 0 : diagonal - left;
  const int64_t end = right < 0 ? seqlen_k : diagonal + right + 1;
  const auto inside = [&](int64_t key) {
    return static_cast<int>(std::clamp<int64_t>(key, 0, seqlen_k));
  };
  return {inside(first), std::max(inside(first), inside(end))};
}

int64_t Mask::visible_pairs(int seqlen_q, int seqlen_k) const {
  int64_t pairs = 0;
  for (int query = 0; query < seqlen_q; ++query) {
    const auto [first, end] = keys_of(query, seqlen_q, seqlen_k);
    pairs += end - first;
  }
  return pairs;
}

std::string Mask::to_string() const {
  if (type == kNoMask) return "none";
  const std::string corner = type == kMaskBottomRight ? "b:" : type == kMaskTopLeft ? "t:" : "g:";
  return corner + std::to_string(left) + "," + std::to_string(right);
}

Mask parse_mask(const std::string& text) {
  Mask mask;
  if (text == "0") return mask;
  const size_t colon = text.find(':');
  const std::string corner = text.substr(0, colon);
  const bool top_left = corner == "1" || corner == "t" || corner == "xt";
  const bool bottom_right = corner == "2" || corner == "b" || corner == "xb";
  const bool generic = corner == "g";
  if (!top_left && !bottom_right && !generic) bad_mask(text);

  const bool has_window = colon != text.npos;
  const std::string window = has_window ? text.substr(colon + 1) : "";
  if (corner.front() == 'x') {
    std::tie(mask.left, mask.right) = parse_xformers_window(window, text);
  } else if (generic || has_window) {
    if (corner == "1" || corner == "2") bad_mask(text);
    std::tie(mask.left, mask.right) = parse_pair(window, text);
  } else {
    mask.right = 0;  // causal
  }
  mask.type = generic ? kMaskGeneric : top_left ? kMaskTopLeft : kMaskBottomRight;
  return mask;
}

}  // namespace mha_sink::benchmark
