// A small attention backward problem in plain memory: its inputs, its gradients in double from the
// definition, and the arguments that describe it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::test {

using Bf16 = uint16_t;

inline double to_double(Bf16 value) { return std::bit_cast<float>(uint32_t{value} << 16); }
inline double to_double(float value) { return value; }

inline Bf16 to_bf16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<Bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Gradients {
  std::vector<double> dq, dk, dv, delta, d_sink;
};

// Contiguous [b, s, h, d] tensors. Outputs start as NaN; d_sink starts at kDSinkBefore.
struct Attention {
  static constexpr float kDSinkBefore = 3.0f;

  int batch, nhead_q, nhead_k, seqlen_q, seqlen_k, hdim;
  bool causal, top_left;
  float scale = 0.125f;
  std::vector<Bf16> q, k, v, out, dout, dq, dk, dv;
  std::vector<float> lse, dlse, delta, sink, d_sink;  // dlse: empty, or like lse
  Gradients expected;

  Attention(int b, int hq, int hk, int sq, int sk, int d, bool is_causal, bool is_top_left = false,
            bool with_dlse = false)
      : batch(b),
        nhead_q(hq),
        nhead_k(hk),
        seqlen_q(sq),
        seqlen_k(sk),
        hdim(d),
        causal(is_causal),
        top_left(is_top_left) {
    std::mt19937 generator(17);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<Bf16>& tensor, size_t count) {
      tensor.resize(count);
      for (Bf16& value : tensor) value = to_bf16(normal(generator));
    };
    const size_t queries = size_t(b) * sq * hq, keys = size_t(b) * sk * hk;
    fill(q, queries * d);
    fill(k, keys * d);
    fill(v, keys * d);
    fill(dout, queries * d);
    out.resize(queries * d);
    lse.resize(queries);
    sink.resize(size_t(b) * hq);
    for (float& value : sink) value = static_cast<float>(2 + normal(generator));
    if (with_dlse) dlse.resize(queries);
    for (float& value : dlse) value = static_cast<float>(normal(generator));
    forward();
    backward();
    poison();
  }

  void poison() {
    dq.assign(q.size(), 0xffff);
    dk.assign(k.size(), 0xffff);
    dv.assign(v.size(), 0xffff);
    delta.assign(lse.size(), std::numeric_limits<float>::quiet_NaN());
    d_sink.assign(static_cast<size_t>(nhead_q), kDSinkBefore);
  }

  bool untouched() const {
    const auto poisoned = [](Bf16 value) { return value == 0xffff; };
    return std::all_of(dq.begin(), dq.end(), poisoned) &&
           std::all_of(dk.begin(), dk.end(), poisoned) &&
           std::all_of(dv.begin(), dv.end(), poisoned) &&
           std::all_of(delta.begin(), delta.end(), [](float x) { return std::isnan(x); }) &&
           std::all_of(d_sink.begin(), d_sink.end(), [](float x) { return x == kDSinkBefore; });
  }

  // Every gradient within 1% of the tensor's largest: bf16 P and dS cost about half of that.
  void expect_gradients(const std::string& what) const {
    expect_close(dq, expected.dq, 0, what + " dq");
    expect_close(dk, expected.dk, 0, what + " dk");
    expect_close(dv, expected.dv, 0, what + " dv");
    expect_close(delta, expected.delta, 0, what + " d");
    expect_close(d_sink, expected.d_sink, kDSinkBefore, what + " d_sink");
  }

  mha_bwd_args args() {
    mha_bwd_args a{};
    a.hdim_q = a.hdim_v = hdim;
    a.data_type = "bf16";
    a.mask_type = !causal ? kNoMask : top_left ? kMaskTopLeft : kMaskBottomRight;
    a.q_ptr = q.data(), a.k_ptr = k.data(), a.v_ptr = v.data();
    a.o_ptr = out.data(), a.lse_ptr = lse.data(), a.do_ptr = dout.data();
    a.d_ptr = delta.data(), a.dq_ptr = dq.data(), a.dk_ptr = dk.data(), a.dv_ptr = dv.data();
    a.sink_ptr = sink.data(), a.d_sink_ptr = d_sink.data();
    a.seqlen_q = a.max_seqlen_q = seqlen_q;
    a.seqlen_k = a.max_seqlen_k = seqlen_k;
    a.batch = batch, a.nhead_q = nhead_q, a.nhead_k = nhead_k;
    a.scale = scale;
    const int64_t query_row = int64_t{nhead_q} * hdim, key_row = int64_t{nhead_k} * hdim;
    a.stride_q = a.stride_o = a.stride_do = a.stride_dq = query_row;
    a.stride_k = a.stride_v = a.stride_dk = a.stride_dv = key_row;
    a.nhead_stride_q = a.nhead_stride_k = a.nhead_stride_v = a.nhead_stride_o = hdim;
    a.nhead_stride_do = a.nhead_stride_dq = a.nhead_stride_dk = a.nhead_stride_dv = hdim;
    a.nhead_stride_lsed = seqlen_q;
    a.batch_stride_q = a.batch_stride_o = a.batch_stride_do = a.batch_stride_dq =
        seqlen_q * query_row;
    a.batch_stride_k = a.batch_stride_v = a.batch_stride_dk = a.batch_stride_dv =
        seqlen_k * key_row;
    a.batch_stride_lsed = int64_t{nhead_q} * seqlen_q;
    a.window_size_left = -1;
    a.window_size_right = causal ? 0 : -1;
    a.p_undrop = 1;
    a.dlse_ptr = dlse.empty() ? nullptr : dlse.data();
    return a;
  }

 private:
  size_t query_at(int b, int i, int h) const {
    return ((size_t(b) * seqlen_q + i) * nhead_q + h) * hdim;
  }
  size_t key_at(int b, int j, int h) const {
    return ((size_t(b) * seqlen_k + j) * nhead_k + h / (nhead_q / nhead_k)) * hdim;
  }
  size_t row_at(int b, int h, int i) const { return (size_t(b) * nhead_q + h) * seqlen_q + i; }

  double dot(const std::vector<Bf16>& x, size_t at_x, const std::vector<Bf16>& y,
             size_t at_y) const {
    double sum = 0;
    for (int c = 0; c < hdim; ++c) sum += to_double(x[at_x + c]) * to_double(y[at_y + c]);
    return sum;
  }

  double score(int b, int h, int i, int j) const {
    const int diagonal = top_left ? 0 : seqlen_k - seqlen_q;
    if (causal && j > i + diagonal) return -std::numeric_limits<double>::infinity();
    return scale * dot(q, query_at(b, i, h), k, key_at(b, j, h));
  }

  template <class Row>
  void for_each_row(Row&& row) const {
    for (int b = 0; b < batch; ++b) {
      for (int h = 0; h < nhead_q; ++h) {
        for (int i = 0; i < seqlen_q; ++i) row(b, h, i);
      }
    }
  }

  void forward() {
    for_each_row([&](int b, int h, int i) {
      double sum = std::exp(sink[b * nhead_q + h]);
      for (int j = 0; j < seqlen_k; ++j) sum += std::exp(score(b, h, i, j));
      lse[row_at(b, h, i)] = static_cast<float>(std::log(sum));
      for (int c = 0; c < hdim; ++c) {
        double value = 0;
        for (int j = 0; j < seqlen_k; ++j) {
          value += std::exp(score(b, h, i, j)) / sum * to_double(v[key_at(b, j, h) + c]);
        }
        out[query_at(b, i, h) + c] = to_bf16(value);
      }
    });
  }

  void backward() {
    expected.dq.assign(q.size(), 0);
    expected.dk.assign(k.size(), 0);
    expected.dv.assign(v.size(), 0);
    expected.delta.assign(lse.size(), 0);
    expected.d_sink.assign(static_cast<size_t>(nhead_q), 0);
    for_each_row([&](int b, int h, int i) {
      const size_t at_q = query_at(b, i, h), row = row_at(b, h, i);
      const double delta_i = dot(out, at_q, dout, at_q);
      expected.delta[row] = delta_i;
      const double row_gradient = delta_i - (dlse.empty() ? 0.0 : dlse[row]);
      expected.d_sink[h] -= std::exp(double{sink[b * nhead_q + h]} - lse[row]) * row_gradient;
      for (int j = 0; j < seqlen_k; ++j) {
        const size_t at_k = key_at(b, j, h);
        const double p = std::exp(score(b, h, i, j) - lse[row]);
        const double ds = p * (dot(dout, at_q, v, at_k) - row_gradient);
        for (int c = 0; c < hdim; ++c) {
          expected.dq[at_q + c] += scale * ds * to_double(k[at_k + c]);
          expected.dk[at_k + c] += scale * ds * to_double(q[at_q + c]);
          expected.dv[at_k + c] += p * to_double(dout[at_q + c]);
        }
      }
    });
  }

  template <class T>
  static void expect_close(const std::vector<T>& given, const std::vector<double>& wanted,
                           double offset, const std::string& what) {
    double largest = 0, error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double difference = std::abs(to_double(given[i]) - offset - wanted[i]);
      largest = std::max(largest, std::abs(wanted[i]));
      // A NaN would vanish in max().
      error = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(error, difference);
      if (std::isinf(error)) break;
    }
    expect(error <= 0.01 * largest,
           what + ": error " + std::to_string(error) + " of largest " + std::to_string(largest));
  }
};

}  // namespace mha_sink::test
