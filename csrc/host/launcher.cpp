#include <string>
#include <tuple>

#include "host/checks.h"
#include "host/run_mha_bwd.h"
#include "host/unsupported.h"
#include "host/workspace.h"
#include "mha_sink/fmha_bwd.h"

namespace mha_sink {
namespace {

void check_sizes_equal(const fmha_bwd_traits& traits, const fmha_bwd_args& args) {
  const std::tuple<const char*, int, int> sizes[] = {
      {"batch", args.batch, traits.batch},
      {"seqlen_q", args.seqlen_q, traits.seqlen_q},
      {"seqlen_k", args.seqlen_k, traits.seqlen_k},
      {"nhead_q", args.nhead_q, traits.nhead_q},
      {"nhead_k", args.nhead_k, traits.nhead_k},
      {"hdim_q", args.hdim_q, traits.hdim_q},
      {"hdim_v", args.hdim_v, traits.hdim_v},
      {"mask_type", args.mask_type, traits.mask_type}};
  for (const auto& [name, given, needed] : sizes) {
    checks::check_as_launcher(name, given, needed);
  }
}

mha_bwd_args to_mha_bwd_args(const fmha_bwd_traits& traits, const fmha_bwd_args& args) {
  return {.use_asm_v3 = false,
          .v3_atomic_fp32 = false,
          .v3_bf16_cvt = 0,
          .v3_api_check = false,
          .hdim_q = args.hdim_q,
          .hdim_v = args.hdim_v,
          .data_type = traits.data_type,
          .is_group_mode = traits.is_group_mode,
          .mask_type = args.mask_type,
          .bias_type = traits.bias_type,
          .has_dbias = traits.has_dbias,
          .has_dropout = traits.has_dropout,
          .is_store_randval = traits.is_store_randval,
          .is_deterministic = traits.is_deterministic,
          .q_ptr = args.q_ptr,
          .k_ptr = args.k_ptr,
          .v_ptr = args.v_ptr,
          .bias_ptr = args.bias_ptr,
          .o_ptr = args.o_ptr,
          .lse_ptr = args.lse_ptr,
          .do_ptr = args.do_ptr,
          .d_ptr = args.d_ptr,
          .rand_val_ptr = args.rand_val_ptr,
          .dq_ptr = args.dq_ptr,
          .dk_ptr = args.dk_ptr,
          .dv_ptr = args.dv_ptr,
          .dbias_ptr = args.dbias_ptr,
          .sink_ptr = args.sink_ptr,
          .d_sink_ptr = args.d_sink_ptr,
          .seqstart_q_ptr = args.seqstart_q_ptr,
          .seqstart_k_ptr = args.seqstart_k_ptr,
          .seqlen_q_ptr = args.seqlen_q_ptr,
          .seqlen_k_ptr = args.seqlen_k_ptr,
          .cu_seqlen_q_ptr = args.cu_seqlen_q_ptr,
          .cu_seqlen_k_ptr = args.cu_seqlen_k_ptr,
          .seqlen_q = args.seqlen_q,
          .seqlen_k = args.seqlen_k,
          .batch = args.batch,
          .max_seqlen_q = args.max_seqlen_q,
          .max_seqlen_k = args.max_seqlen_k,
          .nhead_q = args.nhead_q,
          .nhead_k = args.nhead_k,
          .scale = args.scale,
          .stride_q = args.stride_q,
          .stride_k = args.stride_k,
          .stride_v = args.stride_v,
          .stride_bias = args.stride_bias,
          .stride_o = args.stride_o,
          .stride_randval = args.stride_randval,
          .stride_do = args.stride_do,
          .stride_dq = args.stride_dq,
          .stride_dk = args.stride_dk,
          .stride_dv = args.stride_dv,
          .stride_dbias = args.stride_dbias,
          .nhead_stride_q = args.nhead_stride_q,
          .nhead_stride_k = args.nhead_stride_k,
          .nhead_stride_v = args.nhead_stride_v,
          .nhead_stride_bias = args.nhead_stride_bias,
          .nhead_stride_o = args.nhead_stride_o,
          .nhead_stride_randval = args.nhead_stride_randval,
          .nhead_stride_do = args.nhead_stride_do,
          .nhead_stride_lsed = args.nhead_stride_lsed,
          .nhead_stride_dq = args.nhead_stride_dq,
          .nhead_stride_dk = args.nhead_stride_dk,
          .nhead_stride_dv = args.nhead_stride_dv,
          .nhead_stride_dbias = args.nhead_stride_dbias,
          .batch_stride_q = args.batch_stride_q,
          .batch_stride_k = args.batch_stride_k,
          .batch_stride_v = args.batch_stride_v,
          .batch_stride_bias = args.batch_stride_bias,
          .batch_stride_o = args.batch_stride_o,
          .batch_stride_randval = args.batch_stride_randval,
          .batch_stride_do = args.batch_stride_do,
          .batch_stride_lsed = args.batch_stride_lsed,
          .batch_stride_dq = args.batch_stride_dq,
          .batch_stride_dk = args.batch_stride_dk,
          .batch_stride_dv = args.batch_stride_dv,
          .batch_stride_dbias = args.batch_stride_dbias,
          .window_size_left = args.window_size_left,
          .window_size_right = args.window_size_right,
          .p_drop = args.p_drop,
          .p_undrop = args.p_undrop,
          .drop_seed_offset = args.drop_seed_offset,
          .dlse_ptr = args.dlse_ptr};
}

}  // namespace

fmha_bwd_launcher::fmha_bwd_launcher(const fmha_bwd_traits& traits) : traits_(traits) {
  try {
    check(traits_);
    workspace_size = static_cast<size_t>(plan_mha_bwd_workspace(mha_bwd_sizes(traits)).bytes);
  } catch (const Unsupported& error) {
    unsupported_ = error.what();
  }
}

void fmha_bwd_launcher::prepare_workspace(void* workspace, const fmha_bwd_args& args,
                                          const stream_config&) {
  if (workspace_size == 0) return;
  if (workspace == nullptr) {
    checks::invalid("workspace", "null", std::to_string(workspace_size) + " bytes");
  }
  if (workspace != args.workspace_ptr) {
    checks::invalid("workspace_ptr", "another block than the prepared one", "that one");
  }
  check_sizes_equal(traits_, args);
}

float fmha_bwd_launcher::run(const fmha_bwd_args& args, const stream_config& stream) {
  return negative_when_unsupported([&] {
    if (!unsupported_.empty()) throw Unsupported(unsupported_);
    check_sizes_equal(traits_, args);
    if (workspace_size > 0 && args.workspace_ptr == nullptr) {
      checks::invalid("workspace_ptr", "null", std::to_string(workspace_size) + " bytes");
    }
    return run_mha_bwd(
        check(to_mha_bwd_args(traits_, args)), [&](size_t, bool) { return args.workspace_ptr; },
        stream);
  });
}

}  // namespace mha_sink
