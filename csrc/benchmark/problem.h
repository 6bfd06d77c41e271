// What is computed and from what: the inputs of one backward call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "benchmark/mask.h"
#include "benchmark/options.h"
#include "benchmark/tensor.h"
#include "mha_sink/fmha_bwd.h"

namespace mha_sink::benchmark {

// Of one entry of the tensors.
struct Rows {
  int first = 0, count = 0;
  int padding = 0;  // more of them behind, which belong to no sequence
};

// One attention by itself: in batch mode a whole entry of the tensors, in group mode rows of the
// only one.
struct Sequence {
  int entry = 0;
  Rows queries, keys;
};

struct Problem {
  Dtype dtype = Dtype::bf16;
  // Of the tensors, [entries, seqlen, nhead, hdim].
  int entries = 0, seqlen_q = 0, seqlen_k = 0, nhead_q = 0, nhead_k = 0, hdim_q = 0, hdim_v = 0;
  float scale = 0;
  Mask mask;
  std::vector<Sequence> sequences;

  int group() const { return nhead_q / nhead_k; }
  int sequence_count() const { return static_cast<int>(sequences.size()); }
  // Of a sequence's query i in [entries, nhead_q, seqlen_q].
  size_t row(const Sequence& sequence, int64_t h, int64_t i) const {
    return static_cast<size_t>((int64_t{sequence.entry} * nhead_q + h) * seqlen_q +
                               sequence.queries.first + i);
  }
  size_t rows() const { return size_t(entries) * nhead_q * seqlen_q; }
  std::pair<int, int> keys_of(const Sequence& sequence, int query) const {
    return mask.keys_of(query, sequence.queries.count, sequence.keys.count);
  }
};

struct Inputs {
  Tensor q, k, v, out, dout;
  std::vector<float> lse;            // [entries, nhead_q, seqlen_q], sink included
  std::vector<float> sink;           // [sequences, nhead_q]; empty: no sink
  std::vector<float> d_sink_before;  // [nhead_q], what d_sink is accumulated into; empty likewise
};

// The options as the library's launcher sees them. Nothing is allocated yet.
fmha_bwd_traits traits_of(const Options& options);

Problem problem_of(const Options& options);

// q, k, v and dout as -init and -seed say; padding is NaN. With -v, out and lse are those of the
// attention, as a forward kernel rounds them. Without, the forward's quadratic work on the CPU is
// spared: out is random and lse a row's expected value, so that P has the right size, and the speed
// is the same.
Inputs make_inputs(const Problem& problem, const Options& options);

}  // namespace mha_sink::benchmark
