// One dense attention backward after its arguments were checked: what the launches work from,
// whichever interface the call came through.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "hip/mha/params.h"
#include "host/tensor.h"

namespace mha_sink {

// What decides kernels and workspace.
struct MhaBwdSizes {
  std::string data_type;  // "bf16" or "fp16"
  // Sequences lie one after another: seqlen_q and seqlen_k are the tensors' rows, batch the number
  // of sequences.
  bool packed = false;
  bool deterministic = false;
  int64_t batch = 0, seqlen_q = 0, seqlen_k = 0, nhead_q = 0, nhead_k = 0;
  int64_t hdim_q = 0, hdim_v = 0;
};

struct MhaBwdProblem : MhaBwdSizes {
  float scale = 1;
  mha::Window window{};

  // [batch, seqlen, nhead, hdim_q or hdim_v], names as the caller knows them. Packed: batch 1.
  View q, k, v, out, dout, dq, dk, dv;
  View lse;        // [1, batch, nhead_q, seqlen_q]
  View dlse;       // likewise; may be absent
  View softmax_d;  // likewise; may be absent
  View sink;       // [1, 1, batch, nhead_q]; may be absent
  View d_sink;     // [1, 1, 1, nhead_q], or [1, 1, batch, nhead_q]; may be absent
  bool d_sink_per_batch = false;

  // Packed, int32: the first row of each sequence and the end, [batch + 1]; lengths as differences,
  // [batch + 1], or by themselves, [batch]. The lengths may be absent.
  View start_q, start_k, cu_q, cu_k, length_q, length_k;
  // No sequence may be longer. The C++ calls set no limit.
  int64_t max_seqlen_q = INT64_MAX, max_seqlen_k = INT64_MAX;

  std::array<const View*, 14> inputs() const {
    return {&q,    &k,       &v,       &out,  &dout, &lse,      &dlse,
            &sink, &start_q, &start_k, &cu_q, &cu_k, &length_q, &length_k};
  }
  std::array<const View*, 5> outputs() const { return {&dq, &dk, &dv, &softmax_d, &d_sink}; }
};

}  // namespace mha_sink
