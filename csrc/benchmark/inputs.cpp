#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "benchmark/problem.h"
#include "benchmark/reference.h"

namespace mha_sink::benchmark {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Filler {
 public:
  Filler(const Problem& problem, int init, unsigned seed)
      : dtype_(problem.dtype), init_(init), generator_(seed) {}

  // In the order b, h, s, d whatever the layout, so that layouts give equal results.
  void fill(Tensor& tensor, bool cosine) {
    int64_t index = 0;
    for (int64_t b = 0; b < tensor.batch; ++b) {
      for (int64_t h = 0; h < tensor.nhead; ++h) {
        for (int64_t s = 0; s < tensor.seqlen; ++s) {
          uint16_t* row = tensor.bits.data() + tensor.at(b, s, h);
          for (int64_t d = 0; d < tensor.hdim; ++d) row[d] = to_bits(next(index++, cosine), dtype_);
        }
      }
    }
  }

  float uniform() { return std::uniform_real_distribution<float>(-1, 1)(generator_); }

 private:
  float next(int64_t index, bool cosine) {
    if (init_ == 0) {
      return static_cast<float>(std::uniform_int_distribution<int>(-2, 2)(generator_));
    }
    if (init_ == 1) return uniform();
    const auto angle = static_cast<double>(index);
    return static_cast<float>(cosine ? std::cos(angle) : std::sin(angle));
  }

  Dtype dtype_;
  int init_;
  std::mt19937 generator_;
};

// The expected sink-free lse of each row: scores are sums of hdim_q products, so nearly normal with
// variance s^2, and E[exp(S)] = exp(s^2 / 2).
std::vector<float> estimated_lse(const Problem& problem, int init) {
  const double of_input = init == 0 ? 2.0 : init == 1 ? 1.0 / 3 : 0.5;  // variance
  const double score_variance =
      double{problem.scale} * problem.scale * problem.hdim_q * of_input * of_input;
  std::vector<float> lse(problem.rows());
  for (int64_t head = 0; head < int64_t{problem.batch} * problem.nhead_q; ++head) {
    for (int i = 0; i < problem.seqlen_q; ++i) {
      const auto [first, end] = problem.mask.keys_of(i);
      lse[problem.row(0, head, i)] =
          first == end ? -kInfinity
                       : static_cast<float>(std::log(end - first) + score_variance / 2);
    }
  }
  return lse;
}

// Each head's mean finite sink-free lse plus one of -20 .. 20: sinks that vanish, compete and
// dominate.
std::vector<float> spread_sinks(const Problem& problem, const std::vector<float>& lse) {
  constexpr std::array<float, 5> kOffsets = {-20, -2, 0, 2, 20};
  std::vector<float> sinks(static_cast<size_t>(problem.batch) * problem.nhead_q);
  for (size_t head = 0; head < sinks.size(); ++head) {
    double sum = 0;
    int finite = 0;
    for (int i = 0; i < problem.seqlen_q; ++i) {
      const float row = lse[problem.row(0, static_cast<int64_t>(head), i)];
      if (row == -kInfinity) continue;
      sum += row;
      ++finite;
    }
    sinks[head] = static_cast<float>(sum / std::max(finite, 1)) + kOffsets[head % kOffsets.size()];
  }
  return sinks;
}

float log_add_exp(float x, float y) {
  const float largest = std::max(x, y);
  if (std::isinf(largest)) return largest;
  return largest + std::log1p(std::exp(std::min(x, y) - largest));
}

}  // namespace

fmha_bwd_traits traits_of(const Options& o) {
  return {.seqlen_q = o.seqlen_q,
          .seqlen_k = o.seqlen_k,
          .batch = o.batch,
          .max_seqlen_q = o.seqlen_q,
          .max_seqlen_k = o.seqlen_k,
          .hdim_q = o.hdim_q,
          .hdim_v = o.hdim_v,
          .nhead_q = o.nhead_q,
          .nhead_k = o.nhead_k,
          .data_type = o.prec,
          .is_group_mode = false,
          .mask_type = o.mask.type,
          .bias_type = 0,
          .has_dbias = false,
          .has_dropout = false,
          .is_store_randval = false,
          .is_deterministic = o.deterministic};
}

Problem problem_of(const Options& o) {
  return {.dtype = parse_dtype(o.prec),
          .batch = o.batch,
          .nhead_q = o.nhead_q,
          .nhead_k = o.nhead_k,
          .seqlen_q = o.seqlen_q,
          .seqlen_k = o.seqlen_k,
          .hdim_q = o.hdim_q,
          .hdim_v = o.hdim_v,
          .scale = o.scale,
          .mask = o.mask};
}

Inputs make_inputs(const Problem& problem, const Options& options) {
  const auto queries = [&](int hdim, bool heads_first) {
    return Tensor(problem.batch, problem.seqlen_q, problem.nhead_q, hdim, heads_first);
  };
  const auto keys = [&](int hdim) {
    return Tensor(problem.batch, problem.seqlen_k, problem.nhead_k, hdim, options.iperm);
  };
  Inputs in{.q = queries(problem.hdim_q, options.iperm),
            .k = keys(problem.hdim_q),
            .v = keys(problem.hdim_v),
            .out = queries(problem.hdim_v, options.operm),
            .dout = queries(problem.hdim_v, options.operm),
            .lse = {},
            .sink = {},
            .d_sink_before = {}};
  Filler filler(problem, options.init, options.seed);
  filler.fill(in.q, false);
  filler.fill(in.k, true);
  filler.fill(in.v, false);
  filler.fill(in.dout, true);
  if (options.d_sink) {
    in.d_sink_before.resize(static_cast<size_t>(problem.nhead_q));
    for (float& value : in.d_sink_before) value = filler.uniform();
  }

  if (options.validate) {
    if (options.sink) in.sink = spread_sinks(problem, sink_free_lse(problem, in));
    rounded_forward(problem, in);
    return in;
  }
  filler.fill(in.out, false);
  in.lse = estimated_lse(problem, options.init);
  if (options.sink) {
    in.sink = spread_sinks(problem, in.lse);
    for (size_t row = 0; row < in.lse.size(); ++row) {
      const size_t head = row / static_cast<size_t>(problem.seqlen_q);
      in.lse[row] = log_add_exp(in.lse[row], in.sink[head]);
    }
  }
  return in;
}

}  // namespace mha_sink::benchmark
