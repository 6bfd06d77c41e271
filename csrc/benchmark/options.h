// The command line of benchmark_mha_bwd: CK's and aiter's names and defaults, and a few of our own.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "benchmark/mask.h"

namespace mha_sink::benchmark {

struct BadOption : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  bool help = false;

  bool group_mode = false;
  // Group mode: batch is the number of sequences, seqlen_q and seqlen_k the tensors' rows.
  int batch = 0, nhead_q = 0, nhead_k = 0, seqlen_q = 0, seqlen_k = 0, hdim_q = 0, hdim_v = 0;
  // Group mode, of each sequence: its length, and the rows that it takes up in the tensors.
  std::vector<int> lens_q, lens_k, pad_q, pad_k;
  float scale = 0;
  bool iperm = false, operm = false;  // [b, h, s, d] instead of [b, s, h, d]; group without b
  int bias_type = 0;                  // as mha_bwd_args
  bool dbias = false;
  std::string prec;
  Mask mask;
  float p_drop = 0;
  bool deterministic = false;
  bool sink = false, d_sink = false;

  int init = 0;  // 0 integers in [-2, 2], 1 floats in [-1, 1], 2 sines and cosines
  unsigned seed = 0;

  bool validate = false;
  int warmup = 0, repeat = 0;
  std::string timer, device;
  bool print_kernels = false;
  bool json = false;
};

// Resolves what depends on other options (-1, a scale of 0, lengths). Throws BadOption, naming the
// option, what was given and what is needed. Other sizes are left to the library's own checks.
Options parse_options(int argc, char** argv);

std::string help_text();

}  // namespace mha_sink::benchmark
