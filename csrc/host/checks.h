// The one place that refuses a call. Each interface has an entry here that turns its arguments into
// a MhaBwdProblem or throws, before anything is launched or written:
//   InvalidArgument  no version could accept it
//   Unsupported      valid, but this version cannot serve it
// Messages: argument, what was given, what is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/mha_bwd_problem.h"
#include "host/tensor.h"
#include "mha_sink/error.h"
#include "mha_sink/fmha_bwd.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink {

struct Unsupported : Error {
  using Error::Error;
};

// The Python call, named as in aiter's mha_bwd and, when cu_seqlens_q is given, mha_varlen_bwd.
struct MhaBwdCall {
  std::optional<TensorDesc> dout, q, k, v, out, softmax_lse, dlse;
  std::optional<TensorDesc> cu_seqlens_q, cu_seqlens_k, cu_seqlens_q_padded, cu_seqlens_k_padded;
  int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  double dropout_p = 0, softmax_scale = 1;
  bool is_causal = false;
  int64_t window_size_left = -1, window_size_right = -1;
  bool deterministic = false;
  std::optional<TensorDesc> dq, dk, dv, softmax_d;
  std::optional<TensorDesc> dbias, bias, alibi_slopes;
  std::optional<TensorDesc> sink, d_sink;
};

enum class Outputs {
  required,  // dq, dk and dv must be there
  optional   // those that are there are checked
};

MhaBwdProblem check(const MhaBwdCall& call, Outputs outputs);

MhaBwdProblem check(const mha_bwd_args& args);

// What the traits alone decide. Throws as above.
void check(const fmha_bwd_traits& traits);
MhaBwdSizes mha_bwd_sizes(const fmha_bwd_traits& traits);

namespace checks {

// Building blocks of the entries.

[[noreturn]] void invalid(const std::string& argument, const std::string& given,
                          const std::string& needed);
[[noreturn]] void unsupported(const std::string& argument, const std::string& given,
                              const std::string& supported);

// "[1, 2, 3]".
std::string format(std::span<const int64_t> values);

void check_count(const char* argument, int64_t given, int64_t least, int64_t most);

// Of the C++ interfaces: "bf16" or "fp16".
void check_data_type(const std::string& data_type);
// What the arguments of a run have in common with the launcher's traits.
void check_as_launcher(const char* argument, const std::string& given, const std::string& traits);
void check_as_launcher(const char* argument, int given, int traits);

// Of the Python calls.
const TensorDesc& required(const char* name, const std::optional<TensorDesc>& tensor);
// Of a tensor whose dtype and device the others must follow. Returns the data type's C++ name.
std::string data_type_of(const char* name, const TensorDesc& tensor);
void check_device(const char* name, const TensorDesc& tensor);

// Sizes that the kernels can index, head counts that divide, a head dim that has kernels.
void check_sizes(const MhaBwdSizes& sizes);

// The window as the kernels take it.
int32_t window_bound(const char* argument, int64_t given);
float finite_scale(const char* argument, double given);
void check_dropout(const char* argument, double given);

// Strides, null and misaligned pointers, and memory that two elements would share.
void check_memory(const MhaBwdProblem& problem);

}  // namespace checks
}  // namespace mha_sink
