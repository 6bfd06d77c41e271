// The one place that refuses a sparse MLA call; as host/checks.h for dense attention.
#pragma once

#include <cstdint>
#include <optional>

#include "host/checks.h"
#include "host/sparse_mla_problem.h"
#include "host/tensor.h"
#include "mha_sink/sparse_mla.h"

namespace mha_sink {

// The Python calls.
struct SparseMlaFwdCall {
  std::optional<TensorDesc> q, kv, topk_indices, attn_sink, plan;
  double scale = 0;
  std::optional<TensorDesc> o, lse;
};

struct SparseMlaBwdCall {
  std::optional<TensorDesc> q, kv, dout, o, lse, topk_indices, attn_sink, dlse, plan;
  double scale = 0;
  std::optional<int64_t> r_chunk;
  std::optional<TensorDesc> dq, dkv, d_sink;
};

SparseMlaFwdProblem check(const SparseMlaFwdCall& call, Outputs outputs);
SparseMlaBwdProblem check(const SparseMlaBwdCall& call, Outputs outputs);
SparseMlaPlanProblem check_sparse_mla_plan(const TensorDesc& topk_indices, int64_t num_kv,
                                           const TensorDesc& plan);

SparseMlaFwdProblem check(const sparse_mla_fwd_args& args);
SparseMlaBwdProblem check(const sparse_mla_bwd_args& args);
SparseMlaPlanProblem check(const sparse_mla_plan_args& args);

// What the traits alone decide.
SparseMlaSizes check(const sparse_mla_bwd_traits& traits);

namespace checks {

// Sizes that the kernels can index. Resolves r_chunk, 0 meaning all slots.
void check_sparse_mla_sizes(SparseMlaSizes& sizes);

// Null and misaligned pointers, outputs that share memory with anything.
void check_sparse_mla_memory(const std::vector<const Array*>& inputs,
                             const std::vector<const Array*>& outputs);

}  // namespace checks
}  // namespace mha_sink
