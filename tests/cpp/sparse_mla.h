// A small sparse MLA problem in host memory, and its values in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "benchmark/tensor.h"
#include "check.h"
#include "mha_sink/sparse_mla.h"

namespace mha_sink::test {

struct SparseMla {
  static constexpr int kDim = kSparseMlaHeadDim;

  int tokens, nhead, num_kv, topk;
  float scale = 0.0442f;
  std::vector<uint16_t> q, kv, dout, o, dq, dkv;
  std::vector<int32_t> indices;
  std::vector<float> sink, lse, d_sink, dlse;

  // Values from a fixed sequence. Every 7th slot is empty, token 1 has none, rows repeat.
  SparseMla(int t, int h, int n, int k) : tokens(t), nhead(h), num_kv(n), topk(k) {
    uint32_t state = 12345;
    const auto next = [&] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
    };
    const auto fill = [&](std::vector<uint16_t>& tensor, int rows) {
      tensor.resize(static_cast<size_t>(rows) * kDim);
      for (uint16_t& element : tensor) element = bits(2 * next());
    };
    fill(q, t * h);
    fill(kv, n);
    fill(dout, t * h);
    for (int i = 0; i < t * k; ++i) {
      state = state * 1664525u + 1013904223u;
      const bool empty = i % 7 == 3 || i / k == 1;
      indices.push_back(empty ? -1 : static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(n)));
    }
    for (int i = 0; i < h; ++i) sink.push_back(std::log(static_cast<float>(k)) + 4 * next());
    for (int i = 0; i < t * h; ++i) dlse.push_back(next());
    poison();
  }

  void poison() {
    const size_t rows = static_cast<size_t>(tokens) * static_cast<size_t>(nhead);
    o.assign(rows * kDim, 0xffff);
    dq.assign(rows * kDim, 0xffff);
    dkv.assign(static_cast<size_t>(num_kv) * kDim, 0xffff);
    lse.assign(rows, std::numeric_limits<float>::quiet_NaN());
    d_sink.assign(static_cast<size_t>(nhead), std::numeric_limits<float>::quiet_NaN());
  }

  // Without workspace_alloc.
  sparse_mla_fwd_args forward() {
    return {.data_type = "bf16",
            .tokens = tokens,
            .nhead = nhead,
            .num_kv = num_kv,
            .topk = topk,
            .scale = scale,
            .q_ptr = q.data(),
            .kv_ptr = kv.data(),
            .topk_indices_ptr = indices.data(),
            .o_ptr = o.data(),
            .lse_ptr = lse.data(),
            .sink_ptr = sink.data()};
  }
  sparse_mla_bwd_args backward() {
    return {.data_type = "bf16",
            .tokens = tokens,
            .nhead = nhead,
            .num_kv = num_kv,
            .topk = topk,
            .r_chunk = 0,
            .scale = scale,
            .q_ptr = q.data(),
            .kv_ptr = kv.data(),
            .do_ptr = dout.data(),
            .o_ptr = o.data(),
            .lse_ptr = lse.data(),
            .topk_indices_ptr = indices.data(),
            .dq_ptr = dq.data(),
            .dkv_ptr = dkv.data(),
            .sink_ptr = sink.data(),
            .d_sink_ptr = d_sink.data(),
            .dlse_ptr = dlse.data()};
  }
  sparse_mla_bwd_traits traits() const {
    return {.data_type = "bf16",
            .tokens = tokens,
            .nhead = nhead,
            .num_kv = num_kv,
            .topk = topk,
            .r_chunk = 0,
            .has_plan = false};
  }

  static uint16_t bits(float value) { return benchmark::to_bits(value, benchmark::Dtype::bf16); }
  static std::vector<double> values(const std::vector<uint16_t>& tensor) {
    std::vector<double> result;
    for (uint16_t element : tensor) {
      result.push_back(benchmark::from_bits(element, benchmark::Dtype::bf16));
    }
    return result;
  }

  // Against autograd's formulas in double, from q, kv, do, sink and dlse alone.
  void expect_results(const std::string& what) const {
    const std::vector<double> x = values(q), c = values(kv), g = values(dout);
    std::vector<double> o64(o.size()), dq64(dq.size()), dkv64(dkv.size()), lse64, d_sink64;
    d_sink64.resize(sink.size());
    for (int row = 0; row < tokens * nhead; ++row) {
      const int token = row / nhead, head = row % nhead;
      const double* qr = x.data() + size_t(row) * kDim;
      const double* gr = g.data() + size_t(row) * kDim;
      const auto dot = [](const double* a, const double* b) {
        double sum = 0;
        for (int d = 0; d < kDim; ++d) sum += a[d] * b[d];
        return sum;
      };
      std::vector<const double*> rows;
      std::vector<int32_t> chosen;
      for (int slot = 0; slot < topk; ++slot) {
        const int32_t index = indices[size_t(token * topk + slot)];
        if (index < 0) continue;
        chosen.push_back(index);
        rows.push_back(c.data() + size_t(index) * kDim);
      }
      double sum = std::exp(double{sink[size_t(head)]});
      for (const double* k : rows) sum += std::exp(scale * dot(qr, k));
      lse64.push_back(std::log(sum));
      double* out = o64.data() + size_t(row) * kDim;
      for (const double* k : rows) {
        const double p = std::exp(scale * dot(qr, k)) / sum;
        for (int d = 0; d < kDim; ++d) out[d] += p * k[d];
      }
      const double delta = dot(out, gr) - dlse[size_t(row)];
      d_sink64[size_t(head)] -= std::exp(double{sink[size_t(head)]}) / sum * delta;
      for (size_t i = 0; i < rows.size(); ++i) {
        const double p = std::exp(scale * dot(qr, rows[i])) / sum;
        const double ds = scale * p * (dot(gr, rows[i]) - delta);
        for (int d = 0; d < kDim; ++d) {
          dq64[size_t(row) * kDim + size_t(d)] += ds * rows[i][d];
          dkv64[size_t(chosen[i]) * kDim + size_t(d)] += ds * qr[d] + p * gr[d];
        }
      }
    }
    const auto doubles = [](const std::vector<float>& v) {
      return std::vector<double>(v.begin(), v.end());
    };
    expect_close(what + ": o", values(o), o64, 0x1p-7);
    expect_close(what + ": lse", doubles(lse), lse64, 1e-5);
    expect_close(what + ": dq", values(dq), dq64, 0x1p-6);
    expect_close(what + ": dkv", values(dkv), dkv64, 0x1p-6);
    expect_close(what + ": d_sink", doubles(d_sink), d_sink64, 0x1p-7);
  }

 private:
  // Relative to the largest value.
  static void expect_close(const std::string& what, const std::vector<double>& given,
                           const std::vector<double>& exact, double tolerance) {
    double largest = 0, error = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      const double difference = std::abs(given[i] - exact[i]);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    }
    expect(error <= tolerance * largest,
           what + " off by " + std::to_string(error) + " of " + std::to_string(largest));
  }
};

}  // namespace mha_sink::test
