// 16-bit floats and tensors of them, as the benchmark's host side sees them.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <string>
#include <vector>

namespace mha_sink::benchmark {

enum class Dtype { bf16, fp16 };

inline Dtype parse_dtype(const std::string& name) {
  return name == "fp16" ? Dtype::fp16 : Dtype::bf16;
}

// Bits of the nearest 16-bit value, ties to even.
inline uint16_t to_bits(float value, Dtype dtype) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (dtype == Dtype::bf16) {
    if (std::isnan(value)) return sign | 0x7fc0;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {
    // Subnormal: in [0.5, 1) the spacing of floats is fp16's smallest step, 2^-24.
    return sign | static_cast<uint16_t>(((magnitude + 0.5f) - 0.5f) * 0x1p24f);
  }
  // Drops 13 bits of the mantissa and rebiases the exponent from 127 to 15.
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112 << 10));
}

inline float from_bits(uint16_t bits, Dtype dtype) {
  if (dtype == Dtype::bf16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t rebias = magnitude >= 0x7c00 ? 224u << 23 : 112u << 23;
  return std::bit_cast<float>(sign | ((magnitude << 13) + rebias));
}

inline float round_to(float value, Dtype dtype) { return from_bits(to_bits(value, dtype), dtype); }

// A dense [batch, seqlen, nhead, hdim] tensor, in that order or with nhead before seqlen.
struct Tensor {
  int64_t batch = 0, seqlen = 0, nhead = 0, hdim = 0;
  int64_t batch_stride = 0, seqlen_stride = 0, nhead_stride = 0;
  std::vector<uint16_t> bits;

  Tensor() = default;
  Tensor(int64_t b, int64_t s, int64_t h, int64_t d, bool heads_first)
      : batch(b),
        seqlen(s),
        nhead(h),
        hdim(d),
        batch_stride(s * h * d),
        seqlen_stride(heads_first ? d : h * d),
        nhead_stride(heads_first ? s * d : d),
        bits(count({b, s, h, d})) {}

  size_t at(int64_t b, int64_t s, int64_t h) const {
    return static_cast<size_t>(b * batch_stride + s * seqlen_stride + h * nhead_stride);
  }
  size_t bytes() const { return bits.size() * sizeof(uint16_t); }

 private:
  // Throws std::bad_alloc for more than there are addresses.
  static size_t count(std::initializer_list<int64_t> sizes) {
    size_t product = 1;
    for (const int64_t size : sizes) {
      if (__builtin_mul_overflow(product, static_cast<size_t>(size), &product)) {
        throw std::bad_alloc();
      }
    }
    if (product > PTRDIFF_MAX / sizeof(uint16_t)) throw std::bad_alloc();
    return product;
  }
};

}  // namespace mha_sink::benchmark
