// Which kernels serve a data type and head dims. A new instance is one line here and two in
// cmake/kernels.cmake.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "hip/mha/params.h"

namespace mha_sink {

// The kernels that are compiled for head dims, which serve any up to these.
struct HeadDimKernels {
  std::string_view data_type;
  int64_t hdim_q, hdim_v;
  std::string_view dq_dk_dv;
  std::string_view dq;

  int32_t larger_hdim() const { return static_cast<int32_t>(std::max(hdim_q, hdim_v)); }
  int64_t keys_per_workgroup() const { return mha::keys_per_workgroup(larger_hdim()); }
  int64_t queries_per_workgroup() const { return mha::queries_per_workgroup(larger_hdim()); }
};

// By ascending cost: the first that is large enough serves.
inline constexpr HeadDimKernels kHeadDimKernels[] = {
    {"bf16", 32, 32, "mha_dq_dk_dv_bf16_hd32", "mha_dq_bf16_hd32"},
    {"bf16", 64, 64, "mha_dq_dk_dv_bf16_hd64", "mha_dq_bf16_hd64"},
    {"bf16", 96, 96, "mha_dq_dk_dv_bf16_hd96", "mha_dq_bf16_hd96"},
    {"bf16", 128, 128, "mha_dq_dk_dv_bf16_hd128", "mha_dq_bf16_hd128"},
    {"bf16", 160, 160, "mha_dq_dk_dv_bf16_hd160", "mha_dq_bf16_hd160"},
    {"bf16", 192, 128, "mha_dq_dk_dv_bf16_hd192x128", "mha_dq_bf16_hd192x128"},
    {"bf16", 192, 192, "mha_dq_dk_dv_bf16_hd192", "mha_dq_bf16_hd192"},
    {"bf16", 256, 256, "mha_dq_dk_dv_bf16_hd256", "mha_dq_bf16_hd256"},
    {"fp16", 32, 32, "mha_dq_dk_dv_fp16_hd32", "mha_dq_fp16_hd32"},
    {"fp16", 64, 64, "mha_dq_dk_dv_fp16_hd64", "mha_dq_fp16_hd64"},
    {"fp16", 96, 96, "mha_dq_dk_dv_fp16_hd96", "mha_dq_fp16_hd96"},
    {"fp16", 128, 128, "mha_dq_dk_dv_fp16_hd128", "mha_dq_fp16_hd128"},
    {"fp16", 160, 160, "mha_dq_dk_dv_fp16_hd160", "mha_dq_fp16_hd160"},
    {"fp16", 192, 128, "mha_dq_dk_dv_fp16_hd192x128", "mha_dq_fp16_hd192x128"},
    {"fp16", 192, 192, "mha_dq_dk_dv_fp16_hd192", "mha_dq_fp16_hd192"},
    {"fp16", 256, 256, "mha_dq_dk_dv_fp16_hd256", "mha_dq_fp16_hd256"},
};

inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kHeadDimStep = 8;  // elements of a 16-byte load

// nullptr: none.
inline const HeadDimKernels* find_head_dim_kernels(std::string_view data_type, int64_t hdim_q,
                                                   int64_t hdim_v) {
  for (const HeadDimKernels& kernel : kHeadDimKernels) {
    if (kernel.data_type == data_type && hdim_q <= kernel.hdim_q && hdim_v <= kernel.hdim_v) {
      return &kernel;
    }
  }
  return nullptr;
}

inline constexpr std::string_view kPrepareSequencesKernel = "mha_prepare_sequences";
inline constexpr std::string_view kReduceDSinkKernel = "mha_reduce_d_sink";

inline std::string_view dot_do_o_kernel(std::string_view data_type) {
  return data_type == "bf16" ? "mha_dot_do_o_bf16" : "mha_dot_do_o_fp16";
}

inline std::string_view convert_dq_kernel(std::string_view data_type) {
  return data_type == "bf16" ? "mha_convert_dq_bf16" : "mha_convert_dq_fp16";
}

}  // namespace mha_sink
