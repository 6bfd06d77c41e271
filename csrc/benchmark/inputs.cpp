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
      : problem_(problem), init_(init), generator_(seed) {}

  // `rows` of every sequence, in the order sequence, h, s, d whatever the layout, so that layouts
  // and modes give equal results.
  void fill(Tensor& tensor, Rows Sequence::* rows, bool cosine) {
    int64_t index = 0;
    for (const Sequence& sequence : problem_.sequences) {
      for (int64_t h = 0; h < tensor.nhead; ++h) {
        for (int i = 0; i < (sequence.*rows).count; ++i) {
          uint16_t* row =
              tensor.bits.data() + tensor.at(sequence.entry, (sequence.*rows).first + i, h);
          for (int64_t d = 0; d < tensor.hdim; ++d) {
            row[d] = to_bits(next(index++, cosine), problem_.dtype);
          }
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

  const Problem& problem_;
  int init_;
  std::mt19937 generator_;
};

// The expected sink-free lse of each row: scores are sums of hdim_q products, so nearly normal with
// variance s^2, and E[exp(S)] = exp(s^2 / 2).
std::vector<float> estimated_lse(const Problem& problem, int init) {
  const double of_input = init == 0 ? 2.0 : init == 1 ? 1.0 / 3 : 0.5;  // variance
  const double score_variance =
      double{problem.scale} * problem.scale * problem.hdim_q * of_input * of_input;
  std::vector<float> lse(problem.rows(), std::numeric_limits<float>::quiet_NaN());
  for (const Sequence& sequence : problem.sequences) {
    for (int h = 0; h < problem.nhead_q; ++h) {
      for (int i = 0; i < sequence.queries.count; ++i) {
        const auto [first, end] = problem.keys_of(sequence, i);
        lse[problem.row(sequence, h, i)] =
            first == end ? -kInfinity
                         : static_cast<float>(std::log(end - first) + score_variance / 2);
      }
    }
  }
  return lse;
}

// The mean finite sink-free lse of each sequence's head plus one of -20 .. 20: sinks that vanish,
// compete and dominate.
std::vector<float> spread_sinks(const Problem& problem, const std::vector<float>& lse) {
  constexpr std::array<float, 5> kOffsets = {-20, -2, 0, 2, 20};
  std::vector<float> sinks;
  for (const Sequence& sequence : problem.sequences) {
    for (int h = 0; h < problem.nhead_q; ++h) {
      double sum = 0;
      int finite = 0;
      for (int i = 0; i < sequence.queries.count; ++i) {
        const float row = lse[problem.row(sequence, h, i)];
        if (row == -kInfinity) continue;
        sum += row;
        ++finite;
      }
      const auto mean = static_cast<float>(sum / std::max(finite, 1));
      sinks.push_back(mean + kOffsets[sinks.size() % kOffsets.size()]);
    }
  }
  return sinks;
}

float log_add_exp(float x, float y) {
  const float largest = std::max(x, y);
  if (std::isinf(largest)) return largest;
  return largest + std::log1p(std::exp(std::min(x, y) - largest));
}

int longest(const std::vector<int>& lengths) {
  return lengths.empty() ? 0 : *std::ranges::max_element(lengths);
}

}  // namespace

fmha_bwd_traits traits_of(const Options& o) {
  return {.seqlen_q = o.seqlen_q,
          .seqlen_k = o.seqlen_k,
          .batch = o.batch,
          .max_seqlen_q = o.group_mode ? longest(o.lens_q) : o.seqlen_q,
          .max_seqlen_k = o.group_mode ? longest(o.lens_k) : o.seqlen_k,
          .hdim_q = o.hdim_q,
          .hdim_v = o.hdim_v,
          .nhead_q = o.nhead_q,
          .nhead_k = o.nhead_k,
          .data_type = o.prec,
          .is_group_mode = o.group_mode,
          .mask_type = o.mask.type,
          .bias_type = 0,
          .has_dbias = false,
          .has_dropout = false,
          .is_store_randval = false,
          .is_deterministic = o.deterministic};
}

Problem problem_of(const Options& o) {
  Problem problem{.dtype = parse_dtype(o.prec),
                  .entries = o.group_mode ? 1 : o.batch,
                  .seqlen_q = o.seqlen_q,
                  .seqlen_k = o.seqlen_k,
                  .nhead_q = o.nhead_q,
                  .nhead_k = o.nhead_k,
                  .hdim_q = o.hdim_q,
                  .hdim_v = o.hdim_v,
                  .scale = o.scale,
                  .mask = o.mask,
                  .sequences = {}};
  if (!o.group_mode) {
    for (int b = 0; b < o.batch; ++b) {
      problem.sequences.push_back({b, {0, o.seqlen_q, 0}, {0, o.seqlen_k, 0}});
    }
    return problem;
  }
  Rows queries, keys;
  const auto next = [](Rows& rows, int length, int padded) {
    rows = {rows.first + rows.count + rows.padding, length, padded - length};
  };
  for (size_t i = 0; i < o.lens_q.size(); ++i) {
    next(queries, o.lens_q[i], o.pad_q[i]);
    next(keys, o.lens_k[i], o.pad_k[i]);
    problem.sequences.push_back({0, queries, keys});
  }
  return problem;
}

Inputs make_inputs(const Problem& problem, const Options& options) {
  constexpr uint16_t kNaN = 0xffff;  // of either dtype
  const auto tensor = [&](int seqlen, int nhead, int hdim, bool heads_first) {
    Tensor result(problem.entries, seqlen, nhead, hdim, heads_first);
    std::ranges::fill(result.bits, kNaN);
    return result;
  };
  const auto queries = [&](int hdim, bool heads_first) {
    return tensor(problem.seqlen_q, problem.nhead_q, hdim, heads_first);
  };
  const auto keys = [&](int hdim) {
    return tensor(problem.seqlen_k, problem.nhead_k, hdim, options.iperm);
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
  filler.fill(in.q, &Sequence::queries, false);
  filler.fill(in.k, &Sequence::keys, true);
  filler.fill(in.v, &Sequence::keys, false);
  filler.fill(in.dout, &Sequence::queries, true);
  if (options.d_sink) {
    in.d_sink_before.resize(static_cast<size_t>(problem.nhead_q));
    for (float& value : in.d_sink_before) value = filler.uniform();
  }

  if (options.validate) {
    if (options.sink) in.sink = spread_sinks(problem, sink_free_lse(problem, in));
    rounded_forward(problem, in);
    return in;
  }
  filler.fill(in.out, &Sequence::queries, false);
  in.lse = estimated_lse(problem, options.init);
  if (options.sink) {
    in.sink = spread_sinks(problem, in.lse);
    auto sink = in.sink.begin();
    for (const Sequence& sequence : problem.sequences) {
      for (int h = 0; h < problem.nhead_q; ++h, ++sink) {
        for (int i = 0; i < sequence.queries.count; ++i) {
          float& lse = in.lse[problem.row(sequence, h, i)];
          lse = log_add_exp(lse, *sink);
        }
      }
    }
  }
  return in;
}

}  // namespace mha_sink::benchmark
