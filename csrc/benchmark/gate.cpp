#include "benchmark/gate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace mha_sink::benchmark {
namespace {

constexpr double kReferenceErrors = 2, kRelativeFloor = 0x1p-20, kResolvable = 0.1;

// A NaN would vanish in std::max.
double larger(double most, double difference) {
  return std::isnan(difference) ? INFINITY : std::max(most, std::abs(difference));
}

}  // namespace

const char* to_string(Status status) {
  switch (status) {
    case Status::pass:
      return "pass";
    case Status::fail:
      return "FAIL";
    case Status::unresolvable:
      return "unresolvable";
  }
  return "";
}

TensorResult check_tensor(const std::string& name, std::span<const double> x,
                          std::span<const double> exact, std::span<const double> rounded) {
  TensorResult result{.name = name};
  size_t stray = 0, first_stray = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    result.magnitude = larger(result.magnitude, exact[i]);
    result.reference_error = larger(result.reference_error, rounded[i] - exact[i]);
    if (!std::isfinite(x[i])) {
      if (stray++ == 0) first_stray = i;
      continue;
    }
    result.error = larger(result.error, x[i] - exact[i]);
  }
  result.allowed = kReferenceErrors * result.reference_error + kRelativeFloor * result.magnitude;
  const auto conclude = [&](Status status, const std::string& reason) {
    result.status = status;
    result.reason = reason;
  };
  if (stray > 0) {
    conclude(Status::fail, std::to_string(stray) + " of " + std::to_string(x.size()) +
                               " elements are NaN or inf, the first at h,s,d offset " +
                               std::to_string(first_stray));
  } else if (result.reference_error > kResolvable * result.magnitude) {
    conclude(Status::unresolvable, "the rounding reference is off by more than a tenth");
  } else if (result.error > result.allowed) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.3g x allowed", result.error / result.allowed);
    conclude(Status::fail, text);
  }
  return result;
}

bool worse(const TensorResult& result, const TensorResult& other) {
  if (result.status != other.status) return result.status > other.status;
  const auto share = [](const TensorResult& r) { return r.error == 0 ? 0 : r.error / r.allowed; };
  return share(result) > share(other);
}

}  // namespace mha_sink::benchmark
