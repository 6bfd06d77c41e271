// What is computed and from what: the inputs of one backward call.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmark/mask.h"
#include "benchmark/options.h"
#include "benchmark/tensor.h"
#include "mha_sink/fmha_bwd.h"

namespace mha_sink::benchmark {

struct Problem {
  Dtype dtype = Dtype::bf16;
  int batch = 0, nhead_q = 0, nhead_k = 0, seqlen_q = 0, seqlen_k = 0, hdim_q = 0, hdim_v = 0;
  float scale = 0;
  Mask mask;

  int group() const { return nhead_q / nhead_k; }
  size_t row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>((b * nhead_q + h) * seqlen_q + i);
  }
  size_t rows() const { return row(batch, 0, 0); }
};

struct Inputs {
  Tensor q, k, v, out, dout;
  std::vector<float> lse;            // [batch, nhead_q, seqlen_q], sink included
  std::vector<float> sink;           // [batch, nhead_q]; empty: no sink
  std::vector<float> d_sink_before;  // [nhead_q], what d_sink is accumulated into; empty likewise
};

// The options as the library's launcher sees them. Nothing is allocated yet.
fmha_bwd_traits traits_of(const Options& options);

Problem problem_of(const Options& options);

// q, k, v and dout as -init and -seed say. With -v, out and lse are those of the attention, as a
// forward kernel rounds them. Without, the forward's quadratic work on the CPU is spared: out is
// random and lse a row's expected value, so that P has the right size, and the speed is the same.
Inputs make_inputs(const Problem& problem, const Options& options);

}  // namespace mha_sink::benchmark
