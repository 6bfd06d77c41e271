#include "benchmark/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "emulator/launch.h"
#include "emulator/thread_pool.h"

namespace mha_sink::benchmark {
namespace {

// Real is double for the exact value, float for the kernels' arithmetic.
template <class Real>
constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

// What a 16-bit kernel rounds stays as it is in double.
template <class Real>
Real rounded(Real value, Dtype dtype) {
  if constexpr (std::is_same_v<Real, float>) return round_to(value, dtype);
  return value;
}

void parallel_for(int count, const std::function<void(int)>& body) {
  std::atomic<int> next = 0;
  emulator::run_on_threads(std::min(emulator::thread_count(), count), [&] {
    for (int i = next++; i < count; i = next++) body(i);
  });
}

// Eight sums, so that the compiler may use vectors without reordering any of them.
template <class Real>
Real dot(const Real* a, const Real* b, int count) {
  Real sums[8] = {};
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The kernels sum delta in another order than dP, which shows in fp32 where dP - delta cancels.
template <class Real>
Real dot_in_order(const Real* a, const Real* b, int count) {
  Real sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <class Real>
void add_scaled(Real* to, Real factor, const Real* from, int count) {
  for (int i = 0; i < count; ++i) to[i] += factor * from[i];
}

// [rows.count, hdim] of one head.
template <class Real>
std::vector<Real> head_of(const Tensor& tensor, int entry, const Rows& rows, int head,
                          Dtype dtype) {
  std::vector<Real> values(static_cast<size_t>(rows.count * tensor.hdim));
  for (int64_t s = 0; s < rows.count; ++s) {
    const uint16_t* row = tensor.bits.data() + tensor.at(entry, rows.first + s, head);
    for (int64_t d = 0; d < tensor.hdim; ++d) {
      values[static_cast<size_t>(s * tensor.hdim + d)] = from_bits(row[d], dtype);
    }
  }
  return values;
}

template <class Real>
struct Forward {
  std::vector<Real> out;  // [entries, nhead_q, seqlen_q, hdim_v]
  std::vector<Real> lse;  // [entries, nhead_q, seqlen_q]
};

// log(exp(sink) + sum exp(scores)); -inf of nothing.
template <class Real>
Real log_sum_exp(const std::vector<Real>& scores, int first, int end, Real sink) {
  Real largest = sink;
  for (int j = first; j < end; ++j) largest = std::max(largest, scores[j]);
  if (largest == -kInfinity<Real>) return largest;
  Real sum = std::exp(sink - largest);
  for (int j = first; j < end; ++j) sum += std::exp(scores[j] - largest);
  return largest + std::log(sum);
}

// With `out` unwanted, its quarter of the work is left out.
template <class Real>
Forward<Real> forward(const Problem& p, const Inputs& in, bool with_sink, bool with_out) {
  const int d = p.hdim_q, d_v = p.hdim_v;
  Forward<Real> result;
  result.lse.resize(p.rows(), std::numeric_limits<Real>::quiet_NaN());
  if (with_out) result.out.resize(p.rows() * d_v);
  parallel_for(p.sequence_count() * p.nhead_q, [&](int task) {
    const Sequence& sequence = p.sequences[static_cast<size_t>(task / p.nhead_q)];
    const auto& [entry, queries, keys] = sequence;
    const int h = task % p.nhead_q;
    const std::vector<Real> q = head_of<Real>(in.q, entry, queries, h, p.dtype);
    const std::vector<Real> k = head_of<Real>(in.k, entry, keys, h / p.group(), p.dtype);
    const std::vector<Real> v = head_of<Real>(in.v, entry, keys, h / p.group(), p.dtype);
    const Real sink = with_sink ? Real{in.sink[static_cast<size_t>(task)]} : -kInfinity<Real>;
    std::vector<Real> scores(static_cast<size_t>(keys.count));
    for (int i = 0; i < queries.count; ++i) {
      const auto [first, end] = p.keys_of(sequence, i);
      for (int j = first; j < end; ++j) {
        scores[j] = Real{p.scale} * dot(&q[size_t(i) * d], &k[size_t(j) * d], d);
      }
      const Real lse = log_sum_exp(scores, first, end, sink);
      result.lse[p.row(sequence, h, i)] = lse;
      if (!with_out) continue;
      Real* out = &result.out[p.row(sequence, h, i) * d_v];
      for (int j = first; j < end; ++j) {
        add_scaled(out, rounded(std::exp(scores[j] - lse), p.dtype), &v[size_t(j) * d_v], d_v);
      }
      for (int c = 0; c < d_v; ++c) out[c] = rounded(out[c], p.dtype);
    }
  });
  return result;
}

// One KV head and the query heads that share it; dk and dv are its own.
template <class Real>
void backward_group(const Problem& p, const Inputs& in, const Forward<Real>& fwd, int index,
                    int head_k, std::vector<Real>& d_sink, Gradients& result) {
  const Sequence& sequence = p.sequences[static_cast<size_t>(index)];
  const auto& [entry, queries, keys] = sequence;
  const int d = p.hdim_q, d_v = p.hdim_v;
  const Real scale{p.scale};
  const std::vector<Real> k = head_of<Real>(in.k, entry, keys, head_k, p.dtype);
  const std::vector<Real> v = head_of<Real>(in.v, entry, keys, head_k, p.dtype);
  std::vector<Real> dk(k.size()), dv(v.size()), dq(static_cast<size_t>(d));
  const auto store = [&](std::vector<double>& to, size_t at, const std::vector<Real>& from,
                         Real factor) {
    for (size_t i = 0; i < from.size(); ++i) to[at + i] = rounded(factor * from[i], p.dtype);
  };
  for (int h = head_k * p.group(); h < (head_k + 1) * p.group(); ++h) {
    const std::vector<Real> q = head_of<Real>(in.q, entry, queries, h, p.dtype);
    const std::vector<Real> dout = head_of<Real>(in.dout, entry, queries, h, p.dtype);
    for (int i = 0; i < queries.count; ++i) {
      const size_t row = p.row(sequence, h, i);
      const Real *q_row = &q[size_t(i) * d], *dout_row = &dout[size_t(i) * d_v];
      const Real lse = fwd.lse[row], delta = dot_in_order(dout_row, &fwd.out[row * d_v], d_v);
      std::ranges::fill(dq, Real{0});
      // A row with neither keys nor a sink has no softmax: its gradients are 0.
      const auto [first, end] = lse == -kInfinity<Real> ? std::pair(0, 0) : p.keys_of(sequence, i);
      for (int j = first; j < end; ++j) {
        const Real *k_row = &k[size_t(j) * d], *v_row = &v[size_t(j) * d_v];
        const Real probability = std::exp(scale * dot(q_row, k_row, d) - lse);
        const Real ds = rounded(probability * (dot(dout_row, v_row, d_v) - delta), p.dtype);
        add_scaled(dq.data(), ds, k_row, d);
        add_scaled(&dk[size_t(j) * d], ds, q_row, d);
        add_scaled(&dv[size_t(j) * d_v], rounded(probability, p.dtype), dout_row, d_v);
      }
      store(result.dq, row * d, dq, scale);
      result.delta[row] = delta;
      if (!d_sink.empty() && lse != -kInfinity<Real>) {
        const size_t head = static_cast<size_t>(index) * p.nhead_q + h;
        d_sink[head] -= std::exp(Real{in.sink[head]} - lse) * delta;
      }
    }
  }
  const size_t row = (size_t(entry) * p.nhead_k + head_k) * p.seqlen_k + keys.first;
  store(result.dk, row * d, dk, scale);
  store(result.dv, row * d_v, dv, Real{1});
}

template <class Real>
Gradients backward(const Problem& p, const Inputs& in, const Forward<Real>& fwd) {
  Gradients result;
  const size_t keys = size_t(p.entries) * p.nhead_k * p.seqlen_k;
  result.dq.resize(p.rows() * p.hdim_q);
  result.dk.resize(keys * p.hdim_q);
  result.dv.resize(keys * p.hdim_v);
  result.delta.resize(p.rows());
  std::vector<Real> d_sink(in.d_sink_before.empty() ? 0 : p.sequences.size() * p.nhead_q);
  parallel_for(p.sequence_count() * p.nhead_k, [&](int task) {
    backward_group(p, in, fwd, task / p.nhead_k, task % p.nhead_k, d_sink, result);
  });
  for (size_t h = 0; h < in.d_sink_before.size(); ++h) {
    Real sum{in.d_sink_before[h]};
    for (size_t i = h; i < d_sink.size(); i += p.nhead_q) sum += d_sink[i];
    result.d_sink.push_back(sum);
  }
  return result;
}

}  // namespace

std::vector<float> sink_free_lse(const Problem& problem, const Inputs& inputs) {
  return forward<float>(problem, inputs, false, false).lse;
}

void rounded_forward(const Problem& problem, Inputs& inputs) {
  Forward<float> result = forward<float>(problem, inputs, !inputs.sink.empty(), true);
  inputs.lse = std::move(result.lse);
  for (const Sequence& sequence : problem.sequences) {
    for (int h = 0; h < problem.nhead_q; ++h) {
      for (int i = 0; i < sequence.queries.count; ++i) {
        const float* from = &result.out[problem.row(sequence, h, i) * problem.hdim_v];
        uint16_t* to =
            inputs.out.bits.data() + inputs.out.at(sequence.entry, sequence.queries.first + i, h);
        for (int c = 0; c < problem.hdim_v; ++c) to[c] = to_bits(from[c], problem.dtype);
      }
    }
  }
}

Gradients exact_gradients(const Problem& problem, const Inputs& inputs) {
  return backward(problem, inputs, forward<double>(problem, inputs, !inputs.sink.empty(), true));
}

Gradients rounded_gradients(const Problem& problem, const Inputs& inputs) {
  Forward<float> given;
  given.lse = inputs.lse;
  given.out.reserve(problem.rows() * problem.hdim_v);
  const Rows all{0, problem.seqlen_q, 0};
  for (int entry = 0; entry < problem.entries; ++entry) {
    for (int h = 0; h < problem.nhead_q; ++h) {
      const std::vector<float> head = head_of<float>(inputs.out, entry, all, h, problem.dtype);
      given.out.insert(given.out.end(), head.begin(), head.end());
    }
  }
  return backward(problem, inputs, given);
}

}  // namespace mha_sink::benchmark
