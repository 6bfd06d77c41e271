// What benchmark_sparse_mla_bwd found, as text and as one JSON object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "benchmark/gate.h"
#include "benchmark/measure.h"
#include "benchmark/sparse_mla_problem.h"

namespace mha_sink::benchmark {

struct SparseMlaReport {
  SparseMlaOptions options;
  std::string device, device_reason;
  size_t workspace_bytes = 0, bytes_moved = 0;
  double slots = 0, valid_slots = 0;  // of all tokens
  std::optional<Timing> timing;
  std::optional<Emulation> emulation;
  std::optional<std::vector<TensorResult>> validation;
  int64_t validated_tokens = 0;

  // 5 products of 512-vectors, 2 FLOP an element.
  double flops(double of_slots) const { return 10.0 * 512 * options.nhead * of_slots; }
  bool valid() const;
};

void print_text(const SparseMlaReport& report);
void print_json(const SparseMlaReport& report);

}  // namespace mha_sink::benchmark
