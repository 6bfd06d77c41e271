// From a checked problem to launches.
#pragma once

#include "host/mha_bwd_problem.h"
#include "host/scratch.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

// Calls workspace_alloc when bytes are needed, then runs. Returns what mha_bwd returns for a
// supported request.
float run_mha_bwd(const MhaBwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                  const stream_config& stream);

}  // namespace mha_sink
