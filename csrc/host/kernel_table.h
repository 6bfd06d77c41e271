// Which kernels serve a data type and head dim. A new instance is one line here and one in
// cmake/kernels.cmake.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mha_sink {

struct MhaBwdKernels {
  std::string_view data_type;
  int64_t hdim;
  std::string_view dot_do_o, dq_dk_dv, convert_dq;
};

inline constexpr MhaBwdKernels kMhaBwdKernels[] = {
    {"bf16", 64, "mha_dot_do_o_bf16", "mha_dq_dk_dv_bf16_hd64", "mha_convert_dq_bf16"},
    {"bf16", 128, "mha_dot_do_o_bf16", "mha_dq_dk_dv_bf16_hd128", "mha_convert_dq_bf16"},
    {"fp16", 64, "mha_dot_do_o_fp16", "mha_dq_dk_dv_fp16_hd64", "mha_convert_dq_fp16"},
    {"fp16", 128, "mha_dot_do_o_fp16", "mha_dq_dk_dv_fp16_hd128", "mha_convert_dq_fp16"},
};
inline constexpr std::string_view kReduceDSinkKernel = "mha_reduce_d_sink";

// nullptr: none.
inline const MhaBwdKernels* find_mha_bwd_kernels(std::string_view data_type, int64_t hdim) {
  for (const MhaBwdKernels& kernels : kMhaBwdKernels) {
    if (kernels.data_type == data_type && kernels.hdim == hdim) return &kernels;
  }
  return nullptr;
}

// "64, 128"
inline std::string supported_head_dims(std::string_view data_type) {
  std::string list;
  for (const MhaBwdKernels& kernels : kMhaBwdKernels) {
    if (kernels.data_type != data_type) continue;
    list += list.empty() ? "" : ", ";
    list += std::to_string(kernels.hdim);
  }
  return list;
}

}  // namespace mha_sink
