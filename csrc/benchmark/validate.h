// Compares what a call wrote with the references.
#pragma once

#include <vector>

#include "benchmark/device_call.h"
#include "benchmark/gate.h"
#include "benchmark/problem.h"

namespace mha_sink::benchmark {

// dq, dk, dv, delta and, where there is one, d_sink. All but d_sink are judged sequence by
// sequence, because a short one has the larger values and errors; the result is that of the one
// that is worst off. Padding must be 0.
std::vector<TensorResult> validate(const Problem& problem, const Inputs& inputs,
                                   const Outputs& outputs);

}  // namespace mha_sink::benchmark
