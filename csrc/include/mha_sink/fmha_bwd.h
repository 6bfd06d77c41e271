// The two halves of mha_bwd for callers that manage the workspace themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "mha_sink/mha_bwd.h"

namespace mha_sink {

// What decides kernels and workspace; no addresses. Fields mean what they mean in mha_bwd_args.
struct fmha_bwd_traits {
  int seqlen_q;
  int seqlen_k;
  int batch;
  int max_seqlen_q;
  int max_seqlen_k;
  int hdim_q;
  int hdim_v;
  int nhead_q;
  int nhead_k;
  std::string data_type;
  bool is_group_mode;
  int mask_type;
  int bias_type;
  bool has_dbias;
  bool has_dropout;
  bool is_store_randval;
  bool is_deterministic;
};

// Fields mean what they mean in mha_bwd_args.
struct fmha_bwd_args {
  const void* q_ptr;
  const void* k_ptr;
  const void* v_ptr;
  const void* bias_ptr;
  const void* o_ptr;
  const void* lse_ptr;
  const void* do_ptr;
  void* d_ptr;
  void* rand_val_ptr;
  void* dq_ptr;
  void* dk_ptr;
  void* dv_ptr;
  void* dbias_ptr;
  void* workspace_ptr;  // fmha_bwd_launcher::workspace_size bytes, any content, 16-byte aligned
  const void* sink_ptr;
  void* d_sink_ptr;

  const void* seqstart_q_ptr;
  const void* seqstart_k_ptr;
  const void* seqlen_q_ptr;
  const void* seqlen_k_ptr;
  const void* cu_seqlen_q_ptr;
  const void* cu_seqlen_k_ptr;

  int seqlen_q;
  int seqlen_k;
  int batch;
  int max_seqlen_q;
  int max_seqlen_k;
  int hdim_q;
  int hdim_v;
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
  int64_t nhead_stride_lsed;
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
  int64_t batch_stride_lsed;
  int64_t batch_stride_dq;
  int64_t batch_stride_dk;
  int64_t batch_stride_dv;
  int64_t batch_stride_dbias;

  int window_size_left;
  int window_size_right;
  int mask_type;
  float p_drop;
  float p_undrop;
  std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>> drop_seed_offset;

  const void* dlse_ptr = nullptr;
};

class fmha_bwd_launcher {
 public:
  // Throws InvalidArgument for sizes that no version could serve. Traits that are valid but not
  // supported give a workspace_size of 0 and a run() that returns a negative number.
  explicit fmha_bwd_launcher(const fmha_bwd_traits& traits);
  fmha_bwd_launcher(const fmha_bwd_launcher&) = delete;
  fmha_bwd_launcher& operator=(const fmha_bwd_launcher&) = delete;

  size_t workspace_size = 0;  // exact bytes

  // To be called before run with the block that args.workspace_ptr names. Checks it; run itself
  // prepares what its kernels read, so that a repeated run, or a replayed graph whose lengths
  // changed, needs no new preparation.
  void prepare_workspace(void* workspace, const fmha_bwd_args& args, const stream_config& stream);

  // As mha_bwd. Throws InvalidArgument when args do not have the traits' sizes.
  float run(const fmha_bwd_args& args, const stream_config& stream);

 private:
  fmha_bwd_traits traits_;
  std::string unsupported_;
};

}  // namespace mha_sink
