// DeepSeek-V4 sparse MLA with a learnable sink: forward, backward, and the plan that both can
// share.
//
// Each of T tokens attends with H heads of D = 512 to TOPK rows of kv (K == V), c = topk[t, slot]:
//
//   S = scale * q[t,h].kv[c]            P = exp(S - lse[t,h])
//   o[t,h] = sum P kv[c]                lse[t,h] = log(exp(sink[h]) + sum exp(S))
//   delta = rowsum(do * o) - dlse       dS = scale * P * (do[t,h].kv[c] - delta)
//   dq[t,h] = sum dS kv[c]              dkv[c] = sum over (t, h) with that row: dS q + P do
//   d_sink[h] = -sum_t exp(sink[h] - lse[t,h]) * delta[t,h]
//
// A row may appear more than once in a token's slots and then counts as often. A token without a
// slot has o = 0 and lse = sink, or -inf without one. Results have the same bits on every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "mha_sink/error.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

inline constexpr int kSparseMlaHeadDim = 512, kSparseMlaMaxHeads = 128;

// All tensors are contiguous, addresses multiples of 16. Sizes: tokens T, nhead H, topk TOPK.
struct sparse_mla_fwd_args {
  std::string data_type;  // "bf16" or "fp16"
  int tokens;
  int nhead;   // at most 128
  int num_kv;  // at least tokens
  int topk;
  float scale;

  const void* q_ptr;   // [tokens, nhead, 512]
  const void* kv_ptr;  // [num_kv, 512]
  // int32 [tokens, topk], rows of kv; -1 is an empty slot. Values outside [-1, num_kv) are refused
  // on the emulated device, and on a GPU when MHA_SINK_CHECK=1 in the environment (which waits for
  // the stream); else they count as empty.
  const void* topk_indices_ptr;
  void* o_ptr;                     // like q
  void* lse_ptr;                   // fp32 [tokens, nhead], natural log
  const void* sink_ptr = nullptr;  // fp32 [nhead], natural log, already scaled; null: no sink
  const void* plan_ptr = nullptr;  // of sparse_mla_plan; null: made in the workspace

  // As in mha_bwd_args.
  std::function<void*(size_t bytes, bool zero_init)> workspace_alloc{};
};

// Fields mean what they mean in sparse_mla_fwd_args.
struct sparse_mla_bwd_args {
  std::string data_type;
  int tokens;
  int nhead;
  int num_kv;
  int topk;
  // Slots that go through the temporary buffers at a time, a multiple of 32 that divides topk; 0:
  // all.
  int r_chunk;
  float scale;

  const void* q_ptr;
  const void* kv_ptr;
  const void* do_ptr;  // like q
  const void* o_ptr;   // like q
  const void* lse_ptr;
  const void* topk_indices_ptr;
  void* dq_ptr;                    // like q
  void* dkv_ptr;                   // like kv, summed in fp32
  const void* sink_ptr = nullptr;  // only d_sink depends on it
  void* d_sink_ptr = nullptr;      // fp32 [nhead], overwritten; needs sink_ptr; null: not wanted
  const void* dlse_ptr = nullptr;  // fp32 [tokens, nhead], gradient of lse; null: zero
  const void* plan_ptr = nullptr;

  std::function<void*(size_t bytes, bool zero_init)> workspace_alloc{};
};

// What depends on topk_indices alone: each token's slots without the empty ones, and for each row
// of kv the slots that selected it. Serves every call with equal indices and sizes.
struct sparse_mla_plan_args {
  int tokens;
  int num_kv;
  int topk;
  const void* topk_indices_ptr;
  void* plan_ptr;  // sparse_mla_plan_size bytes, aligned to 16
};

// Bytes of a plan, at least 1. Throws InvalidArgument for sizes that no call could have.
size_t sparse_mla_plan_size(int tokens, int num_kv, int topk);

// What mha_bwd returns and throws.
float sparse_mla_plan(const sparse_mla_plan_args& args, const stream_config& stream);
float sparse_mla_fwd(const sparse_mla_fwd_args& args, const stream_config& stream);
float sparse_mla_bwd(const sparse_mla_bwd_args& args, const stream_config& stream);

// What decides kernels and workspace; no addresses.
struct sparse_mla_bwd_traits {
  std::string data_type;
  int tokens;
  int nhead;
  int num_kv;
  int topk;
  int r_chunk;
  bool has_plan;
};

// The two halves of sparse_mla_bwd for callers that manage the workspace themselves.
class sparse_mla_bwd_launcher {
 public:
  // Throws InvalidArgument for sizes that no version could serve. Traits that are valid but not
  // supported give a workspace_size of 0 and a run() that returns a negative number.
  explicit sparse_mla_bwd_launcher(const sparse_mla_bwd_traits& traits);
  sparse_mla_bwd_launcher(const sparse_mla_bwd_launcher&) = delete;
  sparse_mla_bwd_launcher& operator=(const sparse_mla_bwd_launcher&) = delete;

  size_t workspace_size = 0;  // exact bytes

  // `workspace`: workspace_size bytes, any content, 16-byte aligned. args.workspace_alloc is not
  // called. Throws InvalidArgument when args do not have the traits' sizes.
  float run(const sparse_mla_bwd_args& args, void* workspace, const stream_config& stream);

 private:
  sparse_mla_bwd_traits traits_;
  std::string unsupported_;
};

}  // namespace mha_sink
