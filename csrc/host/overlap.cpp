#include "host/overlap.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace mha_sink {
namespace {

// Sharing is a bounded Diophantine question: are there integers x_k, low_k <= x_k <= high_k, with
// sum x_k * stride_k = target? Strides of real tensors nest (each exceeds the reach of the smaller
// ones), so that descending through them leaves one or two candidates a level.
struct Term {
  int64_t stride, low, high;
};

constexpr int64_t kMaxSteps = 1 << 22;  // tens of milliseconds; nested strides need tens of steps

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }
int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 && a > 0); }

class Search {
 public:
  explicit Search(std::vector<Term> terms) {
    std::sort(terms.begin(), terms.end(),
              [](const Term& a, const Term& b) { return a.stride > b.stride; });
    for (const Term& term : terms) {
      if (!terms_.empty() && terms_.back().stride == term.stride) {
        terms_.back().low += term.low;
        terms_.back().high += term.high;
      } else {
        terms_.push_back(term);
      }
    }
    rest_.resize(terms_.size() + 1);
    for (size_t k = terms_.size(); k-- > 0;) {
      rest_[k] = {.gcd = std::gcd(terms_[k].stride, rest_[k + 1].gcd),
                  .low = rest_[k + 1].low + terms_[k].low * terms_[k].stride,
                  .high = rest_[k + 1].high + terms_[k].high * terms_[k].stride};
    }
  }

  // With `nonzero`, the solution where every x_k is 0 does not count.
  Sharing solve(int64_t target, bool nonzero) {
    steps_ = 0;
    if (solvable(0, target, nonzero)) return Sharing::some;
    return steps_ > kMaxSteps ? Sharing::undecided : Sharing::none;
  }

 private:
  struct Rest {
    int64_t gcd = 0, low = 0, high = 0;  // of the terms from k on: what they can add up to
  };

  bool solvable(size_t k, int64_t target, bool nonzero) {
    const Rest& rest = rest_[k];
    if (target < rest.low || target > rest.high) return false;
    if (k == terms_.size()) return !nonzero;
    if (target % rest.gcd != 0 || ++steps_ > kMaxSteps) return false;
    const Term& term = terms_[k];
    const Rest& next = rest_[k + 1];
    const int64_t first = std::max(term.low, ceil_div(target - next.high, term.stride));
    const int64_t last = std::min(term.high, floor_div(target - next.low, term.stride));
    for (int64_t x = first; x <= last && steps_ <= kMaxSteps; ++x) {
      if (solvable(k + 1, target - x * term.stride, nonzero && x == 0)) return true;
    }
    return false;
  }

  std::vector<Term> terms_;  // descending, distinct, positive strides
  std::vector<Rest> rest_;
  int64_t steps_ = 0;
};

// Index offsets along each dimension, in bytes.
void add_terms(std::vector<Term>& terms, const View& view, int64_t low_sign, int64_t high_sign) {
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const int64_t last = view.shape[i] - 1;
    // The stride of a dimension of size 1 is arbitrary: no multiple of it may be formed.
    if (last <= 0 || view.strides[i] == 0) continue;
    terms.push_back({view.strides[i] * view.element_bytes, low_sign * last, high_sign * last});
  }
}

}  // namespace

Sharing self_overlap(const View& view) {
  if (view.empty()) return Sharing::none;
  std::vector<Term> terms;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] > 1 && view.strides[i] == 0) return Sharing::some;
  }
  // Two dimensions of one stride would merge into one term, hiding x_a = 1, x_b = -1.
  for (size_t i = 0; i < view.shape.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (view.shape[i] > 1 && view.shape[j] > 1 && view.strides[i] == view.strides[j]) {
        return Sharing::some;
      }
    }
  }
  add_terms(terms, view, -1, 1);
  return Search(std::move(terms)).solve(0, true);
}

Sharing overlap(const View& a, const View& b) {
  if (a.empty() || b.empty()) return Sharing::none;
  const auto begin_a = reinterpret_cast<uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<uintptr_t>(b.data);
  if (begin_a + a.extent() <= begin_b || begin_b + b.extent() <= begin_a) return Sharing::none;
  std::vector<Term> terms;
  add_terms(terms, a, 0, 1);
  add_terms(terms, b, -1, 0);
  terms.push_back({1, 1 - b.element_bytes, a.element_bytes - 1});  // bytes within the elements
  return Search(std::move(terms)).solve(static_cast<int64_t>(begin_b - begin_a), false);
}

}  // namespace mha_sink
