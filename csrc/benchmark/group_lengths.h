// The sequences' lengths in group mode.
#pragma once

#include "benchmark/options.h"

namespace mha_sink::benchmark {

// Completes lens_*, pad_*, batch, seqlen_q and seqlen_k, of which seqlen_q and seqlen_k come in as
// -s and -s_k. Without lens_q, lengths are random: uniform from half to one and a half times -s and
// -s_k, from the seed. Throws BadOption for lists that do not fit together.
void resolve_group_lengths(Options& options, bool batch_given);

}  // namespace mha_sink::benchmark
