// Parts of a report that all benchmarks have, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmark/gate.h"
#include "benchmark/json.h"
#include "benchmark/measure.h"

namespace mha_sink::benchmark {

// Executions of an instruction class; 0 when there were none.
uint64_t count_of(const KernelProfile& profile, const std::string& class_name);

bool passed(const std::vector<TensorResult>& tensors);

void print_counts(const Emulation& emulation);
void print_validation(const std::vector<TensorResult>& tensors);

void write_emulation(JsonWriter& json, const Emulation& emulation);
void write_validation(JsonWriter& json, const std::vector<TensorResult>& tensors);

}  // namespace mha_sink::benchmark
