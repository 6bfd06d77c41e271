// What was computed, measured and found, as text and as one JSON object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "benchmark/gate.h"
#include "benchmark/measure.h"
#include "benchmark/options.h"

namespace mha_sink::benchmark {

struct Report {
  Options options;
  std::string device, device_reason;  // why that device; empty when it was asked for
  size_t workspace_bytes = 0;
  size_t bytes_moved = 0;
  double flops = 0;  // 2.5 times the forward's, every query of a sequence with every key of it
  double flops_masked = 0;  // of the pairs that the mask leaves
  std::optional<Timing> timing;
  std::optional<Emulation> emulation;
  std::optional<std::vector<TensorResult>> validation;

  bool valid() const;  // true also when nothing was validated
};

void print_text(const Report& report);
void print_json(const Report& report);

}  // namespace mha_sink::benchmark
