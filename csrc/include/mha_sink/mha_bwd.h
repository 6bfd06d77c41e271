// Backward of attention with a learnable sink: one call from tensors to gradients.
//
//   S = scale * q.k (masked)            P = exp(S - lse)
//   delta = rowsum(do * o)              dS = P * (do.v - delta + dlse)
//   dq = scale * dS.k                   dk = scale * dS^T.q       dv = P^T.do
//   d_sink[h] += sum_{b,i} exp(sink[b,h] - lse[b,h,i]) * (dlse[b,h,i] - delta[b,h,i])
//
// Supported: batch and group mode, bf16 and fp16, hdim_q and hdim_v multiples of 8 up to 256, mask
// types 0 to 2, nhead_q a multiple of nhead_k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "mha_sink/error.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

// Mask types. A window is inclusive and -1 unbounded: query i sees key j when
// i + diagonal - window_size_left <= j <= i + diagonal + window_size_right. Bottom-right masks have
// diagonal = seqlen_k - seqlen_q, of the query's own sequence; top-left ones 0. Causal is
// bottom-right with window_size_right = 0.
inline constexpr int kNoMask = 0, kMaskTopLeft = 1, kMaskBottomRight = 2, kMaskGeneric = 3;

// aiter's fields in aiter's order. Strides are in elements; hdim, and the seqlen of lse and d, are
// contiguous. b batch, sq seqlen_q, sk seqlen_k, hq nhead_q, hk nhead_k, d hdim_q, dv hdim_v.
struct mha_bwd_args {
  // aiter's routing: accepted and ignored, there is one route.
  bool use_asm_v3;
  bool v3_atomic_fp32;
  int v3_bf16_cvt;
  bool v3_api_check;

  int hdim_q;
  int hdim_v;
  std::string data_type;  // "bf16" or "fp16"
  bool is_group_mode;
  int mask_type;
  int bias_type;  // 0 none, 1 elementwise, 2 alibi
  bool has_dbias;
  bool has_dropout;
  bool is_store_randval;
  bool is_deterministic;  // the same bits on every run, by a kernel for dq that uses no atomics

  // Read.
  const void* q_ptr;     // [b, sq, hq, d]
  const void* k_ptr;     // [b, sk, hk, d]
  const void* v_ptr;     // [b, sk, hk, dv]
  const void* bias_ptr;  // null
  const void* o_ptr;     // [b, sq, hq, dv]
  // fp32 [b, hq, sq], natural log. Must include the sink when gradients of sink attention are
  // wanted: log(exp(sink) + sum_j exp(S_ij)).
  const void* lse_ptr;
  const void* do_ptr;  // [b, sq, hq, dv]

  // Written. No two elements of the outputs may share an address, nor an output an input's;
  // interleaved views of one buffer are fine.
  void* d_ptr;         // fp32 [b, hq, sq], strides of lse: delta; null: not wanted
  void* rand_val_ptr;  // null
  void* dq_ptr;        // like q
  void* dk_ptr;        // like k; heads of a group are summed in fp32
  void* dv_ptr;        // like v
  void* dbias_ptr;     // null

  const void* sink_ptr = nullptr;  // fp32 [b, hq], natural log, already scaled; null: no sink
  void* d_sink_ptr = nullptr;      // fp32 [hq], accumulated into; needs sink_ptr

  // Group mode, all int32 on the device: batch sequences lie one after another, and the tensors
  // above are [total, nhead, hdim], lse and d [hq, total_q]. Sequence b begins at row seqstart[b]
  // and has, by what is given first: cu_seqlen[b + 1] - cu_seqlen[b] rows, seqlen[b] rows, or those
  // up to seqstart[b + 1]. Rows of no sequence get zero gradients. What they hold is checked on the
  // emulated device, and on a GPU when MHA_SINK_CHECK=1 in the environment (which waits for it);
  // unchecked wrong contents give wrong numbers, but no access outside the tensors.
  const void* seqstart_q_ptr = nullptr;  // [b + 1]; needed
  const void* seqstart_k_ptr = nullptr;
  const void* seqlen_q_ptr = nullptr;  // [b]; null: not given
  const void* seqlen_k_ptr = nullptr;
  const void* cu_seqlen_q_ptr = nullptr;  // [b + 1]; likewise
  const void* cu_seqlen_k_ptr = nullptr;

  int seqlen_q;  // group mode: total_q, the tensors' rows
  int seqlen_k;
  int batch;
  int max_seqlen_q;  // accepted and ignored: no grid depends on it
  int max_seqlen_k;
  int nhead_q;
  int nhead_k;
  float scale;

  int64_t stride_q;
  int64_t stride_k;
  int64_t stride_v;
  int64_t stride_bias;
  int64_t stride_o;
  int64_t stride_randval;
  int64_t stride_do;
  int64_t stride_dq;
  int64_t stride_dk;
  int64_t stride_dv;
  int64_t stride_dbias;

  int64_t nhead_stride_q;
  int64_t nhead_stride_k;
  int64_t nhead_stride_v;
  int64_t nhead_stride_bias;
  int64_t nhead_stride_o;
  int64_t nhead_stride_randval;
  int64_t nhead_stride_do;
  int64_t nhead_stride_lsed;  // lse and d
  int64_t nhead_stride_dq;
  int64_t nhead_stride_dk;
  int64_t nhead_stride_dv;
  int64_t nhead_stride_dbias;

  int64_t batch_stride_q;
  int64_t batch_stride_k;
  int64_t batch_stride_v;
  int64_t batch_stride_bias;
  int64_t batch_stride_o;
  int64_t batch_stride_randval;
  int64_t batch_stride_do;
  int64_t batch_stride_lsed;  // lse and d
  int64_t batch_stride_dq;
  int64_t batch_stride_dk;
  int64_t batch_stride_dv;
  int64_t batch_stride_dbias;

  int window_size_left;   // -1: unbounded; read when mask_type is not 0
  int window_size_right;  // likewise

  float p_drop;
  float p_undrop;
  std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>>
      drop_seed_offset;  // (seed, offset): values, or addresses on the device

  // Returns device memory that lives until mha_bwd returns, aligned to 16 bytes or more. Called at
  // most once a call, never for 0 bytes, with the exact count and zero_init = false: what must be
  // zero is zeroed here.
  std::function<void*(size_t bytes, bool zero_init)> workspace_alloc{};
  // Kept for source compatibility, never called: nothing here needs host memory.
  std::function<std::shared_ptr<void>(size_t bytes)> pinned_host_alloc{};

  // Not aiter's: gradient of lse, its shape and strides; null: 0.
  const void* dlse_ptr = nullptr;
};

// Milliseconds of one run when stream.time_kernel_ is set, else 0; negative when the request is
// valid but not supported, with nothing launched and unsupported_reason() set. d_sink is
// accumulated once, however often a timed call repeats. Throws InvalidArgument before anything is
// launched, Error when the callback returns null or a launch fails; what the callback throws passes
// through with nothing launched.
float mha_bwd(const mha_bwd_args& args, const stream_config& stream);

// Why the last mha_bwd or fmha_bwd_launcher::run of this thread returned a negative number; empty
// when it did not.
const std::string& unsupported_reason();

}  // namespace mha_sink
