// The inputs of one sparse MLA backward, and what it should give.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/gate.h"
#include "benchmark/tensor.h"

namespace mha_sink::benchmark {

struct SparseMlaOptions {
  bool help = false;
  int tokens = 0, nhead = 0, topk = 0, num_pool = 0, window = 0, ratio = 0, r_chunk = 0;
  std::string indices;  // "pool" or "uniform"
  std::string prec;
  bool sink = false, plan = false;
  unsigned seed = 0;
  bool validate = false, breakdown = false, json = false, print_kernels = false;
  int warmup = 0, repeat = 0;
  std::string device;

  int num_kv() const;  // rows of tokens and, when slots are left for it, of the pool
};

// Resolves a seed of 0. Throws BadOption: a topk below the window, too few pool rows.
SparseMlaOptions parse_sparse_mla_options(int argc, char** argv);
std::string sparse_mla_help_text();

struct SparseMlaInputs {
  Dtype dtype = Dtype::bf16;
  int64_t tokens = 0, nhead = 0, topk = 0, num_kv = 0;
  float scale = 0;
  std::vector<uint16_t> q, kv, dout;  // [tokens, nhead, 512], [num_kv, 512], like q
  std::vector<int32_t> indices;       // [tokens, topk]
  std::vector<float> sink;            // [nhead]; empty: no sink
  // What the backward gets from the forward.
  std::vector<uint16_t> o;  // like q
  std::vector<float> lse;   // [tokens, nhead]

  int64_t valid_slots() const;
};

// Everything but o and lse. Window indices: the last `window` tokens up to t in slots 0..window-1,
// -1 before the first; then distinct random rows of the pool, behind the tokens' rows, of which
// token t sees (t + 1) / ratio, -1 where fewer are visible. Uniform: any row, with replacement.
SparseMlaInputs make_sparse_mla_inputs(const SparseMlaOptions& options);

struct SparseMlaOutputs {
  std::vector<uint16_t> dq, dkv;  // like q and kv
  std::vector<float> d_sink;      // like sink
};

// The gate on o and lse (from q, kv and sink) and on dq, dkv and d_sink (of the formulas, from o
// and lse as given), in double. `tokens` tokens and as many rows of kv are looked at, spread
// evenly, and all of d_sink.
std::vector<TensorResult> validate_sparse_mla(const SparseMlaInputs& inputs,
                                              const SparseMlaOutputs& outputs, int64_t tokens);

// Tokens for validate_sparse_mla that a CPU looks at in some seconds.
int64_t tokens_to_validate(const SparseMlaInputs& inputs);

}  // namespace mha_sink::benchmark
