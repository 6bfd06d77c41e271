// Sparse MLA on the CPU: in double, and as 16-bit kernels round it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "benchmark/sparse_mla_problem.h"
#include "mha_sink/sparse_mla.h"

namespace mha_sink::benchmark {
namespace {

constexpr int64_t kDim = kSparseMlaHeadDim;

// Real is double, or float with P, dS and results rounded to the dtype.
template <class Real>
class Reference {
 public:
  using Row = std::vector<Real>;

  explicit Reference(const SparseMlaInputs& inputs) : in_(inputs) {}

  // o [nhead, 512] and lse [nhead] of a token.
  void forward(int64_t token, std::vector<double>& o, std::vector<double>& lse) const {
    for (int64_t h = 0; h < in_.nhead; ++h) {
      const Row q = row(in_.q, token * in_.nhead + h);
      std::vector<Real> scores;
      std::vector<Row> kv;
      for (int64_t slot = 0; slot < in_.topk; ++slot) {
        const int32_t c = in_.indices[index(token, slot)];
        if (c < 0) continue;
        kv.push_back(row(in_.kv, c));
        scores.push_back(static_cast<Real>(in_.scale) * dot(q, kv.back()));
      }
      Real top = -std::numeric_limits<Real>::infinity();
      for (Real score : scores) top = std::max(top, score);
      if (!in_.sink.empty()) top = std::max(top, static_cast<Real>(in_.sink[size(h)]));
      Real sum = in_.sink.empty() ? 0 : std::exp(static_cast<Real>(in_.sink[size(h)]) - top);
      Row acc(kDim, 0);
      for (size_t i = 0; i < scores.size(); ++i) {
        const Real p = std::exp(scores[i] - top);
        sum += p;
        add(acc, rounded(p), kv[i]);
      }
      for (Real value : acc) o.push_back(rounded(sum == 0 ? 0 : value / sum));
      lse.push_back(top + std::log(sum));
    }
  }

  void dq(int64_t token, std::vector<double>& result) const {
    for (int64_t h = 0; h < in_.nhead; ++h) {
      Row acc(kDim, 0);
      const Head head = head_of(token, h);
      for (int64_t slot = 0; slot < in_.topk; ++slot) {
        const int32_t c = in_.indices[index(token, slot)];
        if (c < 0) continue;
        const Row kv = row(in_.kv, c);
        add(acc, gradient(head, kv).ds, kv);
      }
      for (Real value : acc) result.push_back(rounded(value));
    }
  }

  void dkv(int64_t c, std::vector<double>& result) const {
    Row acc(kDim, 0);
    const Row kv = row(in_.kv, c);
    for (int64_t token = 0; token < in_.tokens; ++token) {
      const auto* slots = in_.indices.data() + index(token, 0);
      const int64_t times = std::count(slots, slots + in_.topk, static_cast<int32_t>(c));
      if (times == 0) continue;
      for (int64_t h = 0; h < in_.nhead; ++h) {
        const Head head = head_of(token, h);
        const Gradient g = gradient(head, kv);
        add(acc, static_cast<Real>(times) * g.ds, head.q);
        add(acc, static_cast<Real>(times) * g.p, head.dout);
      }
    }
    for (Real value : acc) result.push_back(rounded(value));
  }

  std::vector<double> d_sink() const {
    std::vector<double> result;
    for (int64_t h = 0; h < in_.nhead && !in_.sink.empty(); ++h) {
      Real sum = 0;
      for (int64_t token = 0; token < in_.tokens; ++token) {
        const Real lse = in_.lse[size(token * in_.nhead + h)];
        if (std::isinf(lse)) continue;
        sum -= std::exp(static_cast<Real>(in_.sink[size(h)]) - lse) * delta(token, h);
      }
      result.push_back(sum);
    }
    return result;
  }

 private:
  struct Head {
    Row q, dout;
    Real lse, delta;
  };
  struct Gradient {
    Real p, ds;
  };

  static size_t size(int64_t value) { return static_cast<size_t>(value); }
  size_t index(int64_t token, int64_t slot) const { return size(token * in_.topk + slot); }

  Real rounded(Real value) const {
    if constexpr (std::is_same_v<Real, double>) return value;
    return round_to(value, in_.dtype);
  }

  Row row(const std::vector<uint16_t>& bits, int64_t number) const {
    Row values(kDim);
    for (int64_t d = 0; d < kDim; ++d) {
      values[size(d)] = from_bits(bits[size(number * kDim + d)], in_.dtype);
    }
    return values;
  }

  static Real dot(const Row& a, const Row& b) {
    Real sum = 0;
    for (size_t d = 0; d < size(kDim); ++d) sum += a[d] * b[d];
    return sum;
  }
  static void add(Row& sum, Real factor, const Row& a) {
    for (size_t d = 0; d < size(kDim); ++d) sum[d] += factor * a[d];
  }

  Real delta(int64_t token, int64_t h) const {
    const int64_t number = token * in_.nhead + h;
    return dot(row(in_.o, number), row(in_.dout, number));
  }

  Head head_of(int64_t token, int64_t h) const {
    const int64_t number = token * in_.nhead + h;
    Head head{row(in_.q, number), row(in_.dout, number), static_cast<Real>(in_.lse[size(number)]),
              0};
    head.delta = dot(row(in_.o, number), head.dout);
    return head;
  }

  Gradient gradient(const Head& head, const Row& kv) const {
    const Real scale = in_.scale;
    const Real p = std::exp(scale * dot(head.q, kv) - head.lse);
    const Real ds = scale * p * (dot(head.dout, kv) - head.delta);
    return {rounded(p), rounded(ds)};
  }

  const SparseMlaInputs& in_;
};

// `count` of 0..all-1, spread evenly, both ends included.
std::vector<int64_t> sample(int64_t all, int64_t count) {
  count = std::min(count, all);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    chosen.push_back(count == 1 ? all - 1 : i * (all - 1) / (count - 1));
  }
  return chosen;
}

void append(std::vector<double>& values, const std::vector<uint16_t>& bits, int64_t first,
            int64_t count, Dtype dtype) {
  for (int64_t i = first; i < first + count; ++i) {
    values.push_back(from_bits(bits[static_cast<size_t>(i)], dtype));
  }
}

struct Values {
  std::vector<double> o, lse, dq, dkv, d_sink;
};

template <class Real>
Values reference_values(const SparseMlaInputs& in, const std::vector<int64_t>& tokens,
                        const std::vector<int64_t>& rows) {
  const Reference<Real> reference(in);
  Values values;
  for (int64_t token : tokens) {
    reference.forward(token, values.o, values.lse);
    reference.dq(token, values.dq);
  }
  for (int64_t row : rows) reference.dkv(row, values.dkv);
  values.d_sink = reference.d_sink();
  return values;
}

}  // namespace

int64_t tokens_to_validate(const SparseMlaInputs& in) {
  constexpr int64_t kProducts = int64_t{1} << 22;  // of a head with a row
  // A row of kv is selected as often as a token selects, on average.
  return std::clamp<int64_t>(kProducts / std::max<int64_t>(3 * in.nhead * in.topk, 1), 2, 64);
}

std::vector<TensorResult> validate_sparse_mla(const SparseMlaInputs& in,
                                              const SparseMlaOutputs& out, int64_t tokens) {
  const std::vector<int64_t> chosen = sample(in.tokens, tokens), rows = sample(in.num_kv, tokens);
  const Values exact = reference_values<double>(in, chosen, rows);
  const Values rounded = reference_values<float>(in, chosen, rows);
  Values given;
  const int64_t token_elements = in.nhead * kDim;
  for (int64_t token : chosen) {
    append(given.o, in.o, token * token_elements, token_elements, in.dtype);
    append(given.dq, out.dq, token * token_elements, token_elements, in.dtype);
    const auto lse = in.lse.begin() + token * in.nhead;
    given.lse.insert(given.lse.end(), lse, lse + in.nhead);
  }
  for (int64_t row : rows) append(given.dkv, out.dkv, row * kDim, kDim, in.dtype);
  given.d_sink.assign(out.d_sink.begin(), out.d_sink.end());
  std::vector<TensorResult> results = {check_tensor("o", given.o, exact.o, rounded.o),
                                       check_tensor("lse", given.lse, exact.lse, rounded.lse),
                                       check_tensor("dq", given.dq, exact.dq, rounded.dq),
                                       check_tensor("dkv", given.dkv, exact.dkv, rounded.dkv)};
  if (!in.sink.empty()) {
    results.push_back(check_tensor("d_sink", given.d_sink, exact.d_sink, rounded.d_sink));
  }
  return results;
}

}  // namespace mha_sink::benchmark
