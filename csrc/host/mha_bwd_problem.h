// One dense attention backward after its arguments were checked: what the launches work from,
// whichever interface the call came through.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "host/tensor.h"

namespace mha_sink {

struct MhaBwdProblem {
  std::string data_type;  // "bf16" or "fp16"
  int64_t batch = 0, seqlen_q = 0, seqlen_k = 0, nhead_q = 0, nhead_k = 0;
  int64_t hdim_q = 0, hdim_v = 0;
  float scale = 1;
  int32_t window_left = 0, window_right = 0;  // as the kernels take them

  // [batch, seqlen, nhead, hdim_q or hdim_v], names as the caller knows them.
  View q, k, v, out, dout, dq, dk, dv;
  View lse;        // [1, batch, nhead_q, seqlen_q]
  View softmax_d;  // likewise; may be absent
  View sink;       // [1, 1, batch, nhead_q]; may be absent
  View d_sink;     // [1, 1, 1, nhead_q]; may be absent

  std::array<const View*, 7> inputs() const { return {&q, &k, &v, &out, &dout, &lse, &sink}; }
  std::array<const View*, 5> outputs() const { return {&dq, &dk, &dv, &softmax_d, &d_sink}; }
};

}  // namespace mha_sink
