// Sparse MLA calls after their arguments were checked, whichever interface they came through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hip/sparse_mla/params.h"

namespace mha_sink {

// A contiguous tensor. Not given: data is null and present false.
struct Array {
  const char* name = "";  // as the caller knows it
  bool present = false;
  const void* data = nullptr;
  int64_t bytes = 0;
  uintptr_t alignment = 16;  // of the kernels' widest access
};

struct SparseMlaSizes {
  std::string data_type;  // "bf16" or "fp16"
  int64_t tokens = 0, nhead = 0, num_kv = 0, topk = 0;
  int64_t r_chunk = 0;  // slots of a chunk; topk where there is one

  int64_t chunks() const { return r_chunk == 0 ? 1 : topk / r_chunk; }
  // What the kernels work on: 16, 32, 64 or 128.
  int64_t padded_heads() const {
    return nhead <= 16 ? 16 : nhead <= 32 ? 32 : nhead <= 64 ? 64 : sparse_mla::kMaxHeads;
  }
};

struct SparseMlaFwdProblem {
  SparseMlaSizes sizes;
  float scale = 1;
  Array q, kv, topk_indices, sink, plan, o, lse;

  std::vector<const Array*> inputs() const { return {&q, &kv, &topk_indices, &sink, &plan}; }
  std::vector<const Array*> outputs() const { return {&o, &lse}; }
};

struct SparseMlaBwdProblem {
  SparseMlaSizes sizes;
  float scale = 1;
  Array q, kv, dout, o, lse, topk_indices, sink, dlse, plan, dq, dkv, d_sink;

  std::vector<const Array*> inputs() const {
    return {&q, &kv, &dout, &o, &lse, &topk_indices, &sink, &dlse, &plan};
  }
  std::vector<const Array*> outputs() const { return {&dq, &dkv, &d_sink}; }
};

struct SparseMlaPlanProblem {
  SparseMlaSizes sizes;  // data_type and nhead do not matter
  Array topk_indices, plan;

  std::vector<const Array*> inputs() const { return {&topk_indices}; }
  std::vector<const Array*> outputs() const { return {&plan}; }
};

}  // namespace mha_sink
