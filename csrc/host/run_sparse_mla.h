// From checked sparse MLA problems to launches. All check the values of topk_indices, call
// workspace_alloc when bytes are needed, then run; they return what mha_bwd returns for a supported
// request.
#pragma once

#include <string>
#include <vector>

#include "host/scratch.h"
#include "host/sparse_mla_problem.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

float run_sparse_mla_plan(const SparseMlaPlanProblem& problem, const stream_config& stream);

float run_sparse_mla_fwd(const SparseMlaFwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                         const stream_config& stream);

float run_sparse_mla_bwd(const SparseMlaBwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                         const stream_config& stream);

// A part of the backward: "plan", "dq", "dkv_slots", "dkv_gather" or "d_sink".
struct SparseMlaPhase {
  std::string name;
  std::vector<std::string> kernels;
  double milliseconds = 0;  // of one run, all chunks together
};

// As run_sparse_mla_bwd, with an event around each phase: their means over the repeats.
std::vector<SparseMlaPhase> time_sparse_mla_bwd_phases(const SparseMlaBwdProblem& problem,
                                                       const WorkspaceAlloc& workspace_alloc,
                                                       const stream_config& stream, int repeats);

// Bytes that the calls ask for; sizes as the checks leave them.
size_t sparse_mla_fwd_workspace_bytes(const SparseMlaSizes& sizes, bool has_plan);
size_t sparse_mla_bwd_workspace_bytes(const SparseMlaSizes& sizes, bool has_plan);

}  // namespace mha_sink
