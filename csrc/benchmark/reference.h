// Attention forward and backward on the CPU: in double, and as 16-bit kernels round it.
#pragma once

#include <vector>

#include "benchmark/problem.h"

namespace mha_sink::benchmark {

// Of tensors in the order b, h, s, d; padding is left 0. delta [entries, nhead_q, seqlen_q]; d_sink
// [nhead_q] includes Inputs::d_sink_before.
struct Gradients {
  std::vector<double> dq, dk, dv, delta, d_sink;
};

// [entries, nhead_q, seqlen_q].
std::vector<float> sink_free_lse(const Problem& problem, const Inputs& inputs);

// Writes out and lse: scores and softmax in fp32, P and out rounded to the dtype, fp32 sums.
void rounded_forward(const Problem& problem, Inputs& inputs);

// From q, k, v, dout and sink alone, in double throughout.
Gradients exact_gradients(const Problem& problem, const Inputs& inputs);

// From out and lse as given: S, dP, P, dS and sums in fp32; P and dS rounded to the dtype before
// they enter a product; results rounded once.
Gradients rounded_gradients(const Problem& problem, const Inputs& inputs);

}  // namespace mha_sink::benchmark
