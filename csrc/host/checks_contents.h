// Refusals that follow from what a tensor holds. The emulated device's tensors are read in place;
// those of a GPU only under MHA_SINK_CHECK=1, by a copy, which waits for the stream.
#pragma once

#include "device/device.h"
#include "host/mha_bwd_problem.h"
#include "host/sparse_mla_problem.h"

namespace mha_sink::checks {

// The lengths of a packed call: they begin at 0, do not decrease, stay inside the tensors, and no
// sequence is longer than max_seqlen or than its rows.
void check_lengths(const MhaBwdProblem& problem, Device& device, Stream stream);

// Indices are -1 or rows of kv.
void check_sparse_mla_indices(const Array& topk_indices, const SparseMlaSizes& sizes,
                              Device& device, Stream stream);

}  // namespace mha_sink::checks
