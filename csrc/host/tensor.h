// Tensors as the host code sees them: descriptions, never owners.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mha_sink {

// What a caller hands in.
struct TensorDesc {
  uintptr_t data = 0;
  std::string dtype;  // torch's name without its prefix: "bfloat16"
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
  std::string device;            // "cpu", "cuda:0"
};

// What the host code works with: checked, at most four dimensions, a lower rank padded in front
// with dimensions of size 1. Not given: data is null and present false.
struct View {
  const char* name = "";
  bool present = false;
  const void* data = nullptr;
  int64_t element_bytes = 0;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> strides{};  // in elements

  bool empty() const {
    for (int64_t size : shape) {
      if (size == 0) return true;
    }
    return false;
  }

  // Bytes from the first element to the end of the last. Needs strides >= 0 and a view whose extent
  // was checked to fit.
  int64_t extent() const {
    if (empty()) return 0;
    int64_t last = 0;
    for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
    return (last + 1) * element_bytes;
  }
};

}  // namespace mha_sink
