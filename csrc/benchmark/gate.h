// How far from the double-precision value a gradient may be; python/mha_sink/testing/gate.py in
// C++.
#pragma once

#include <span>
#include <string>

namespace mha_sink::benchmark {

enum class Status { pass, unresolvable, fail };  // from good to bad

const char* to_string(Status status);

struct TensorResult {
  std::string name;
  Status status = Status::pass;
  double error = 0;            // max|x - exact|
  double reference_error = 0;  // max|rounded - exact|
  double magnitude = 0;        // max|exact|
  double allowed = 0;          // on error: 2 * reference_error + 2^-20 * magnitude
  std::string reason{};        // why not pass
  int sequence = -1;           // the one that these are numbers of; -1: all
};

// A NaN or inf of x where exact has none fails; exact itself is finite. When the rounded reference
// is off by more than a tenth of the magnitude, the dtype cannot resolve the tensor: a wrong sign
// would go unnoticed, so that is no pass.
TensorResult check_tensor(const std::string& name, std::span<const double> x,
                          std::span<const double> exact, std::span<const double> rounded);

// Than `other`, by status and then by the share of the allowed error.
bool worse(const TensorResult& result, const TensorResult& other);

}  // namespace mha_sink::benchmark
