// Attention with constant q, k, v and dout, whose gradients are known in closed form, from the
// installed headers and library alone. Prints the largest error of each gradient; exits with 0 when
// all are small.
#include <mha_sink/mha_bwd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

constexpr int kQueries = 150, kKeys = 150, kHeads = 2,
              kHeadDim = 64;  // two heads share one of k, v
constexpr float kQ = 0.25f, kK = 0.5f, kV = 0.75f, kDout = 1.5f, kScale = 0.125f;
constexpr float kSinks[kHeads] = {3.0f, 5.5f};

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// What query i of a head has: i + 1 visible keys, all with the same score.
struct Row {
  double lse, probability, out, delta, ds;

  Row(int head, int i) {
    const double score = kScale * kHeadDim * kQ * kK;
    lse = std::log(std::exp(kSinks[head]) + (i + 1) * std::exp(score));
    probability = std::exp(score - lse);
    out = (i + 1) * probability * kV;
    delta = kHeadDim * kDout * out;
    ds = probability * (kHeadDim * kDout * kV - delta);
  }
};

// Within 2 % of the largest value: bf16 P, dS and out cost about half of that.
bool check(const char* name, int count, const std::function<double(int)>& given,
           const std::function<double(int)>& expected) {
  double error = 0, largest = 0;
  for (int i = 0; i < count; ++i) {
    const double difference = std::abs(given(i) - expected(i));
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    largest = std::max(largest, std::abs(expected(i)));
  }
  std::printf("%-6s error %.3g of %.3g\n", name, error, largest);
  return error <= 0.02 * largest;
}

}  // namespace

int main() {
  const size_t query_size = size_t{kQueries} * kHeads * kHeadDim,
               key_size = size_t{kKeys} * kHeadDim;
  const std::vector<uint16_t> q(query_size, to_bf16(kQ)), dout(query_size, to_bf16(kDout));
  const std::vector<uint16_t> k(key_size, to_bf16(kK)), v(key_size, to_bf16(kV));
  std::vector<uint16_t> out(query_size), dq(query_size, 0xffff), dk(key_size, 0xffff), dv = dk;
  std::vector<float> lse(size_t{kHeads} * kQueries), d_sink(kHeads, 1.0f);
  for (int i = 0; i < kQueries; ++i) {
    for (int h = 0; h < kHeads; ++h) {
      const Row row(h, i);
      lse[h * kQueries + i] = static_cast<float>(row.lse);
      std::fill_n(&out[(i * kHeads + h) * kHeadDim], kHeadDim,
                  to_bf16(static_cast<float>(row.out)));
    }
  }

  mha_sink::mha_bwd_args a{};
  a.data_type = "bf16", a.mask_type = mha_sink::kMaskBottomRight;
  a.window_size_left = -1, a.window_size_right = 0;
  a.batch = 1, a.nhead_q = kHeads, a.nhead_k = 1, a.hdim_q = a.hdim_v = kHeadDim;
  a.seqlen_q = a.max_seqlen_q = kQueries, a.seqlen_k = a.max_seqlen_k = kKeys;
  a.scale = kScale, a.p_undrop = 1;
  a.q_ptr = q.data(), a.k_ptr = k.data(), a.v_ptr = v.data(), a.o_ptr = out.data();
  a.do_ptr = dout.data(), a.lse_ptr = lse.data(), a.sink_ptr = kSinks;
  a.dq_ptr = dq.data(), a.dk_ptr = dk.data(), a.dv_ptr = dv.data(), a.d_sink_ptr = d_sink.data();
  a.stride_q = a.stride_o = a.stride_do = a.stride_dq = kHeads * kHeadDim;
  a.stride_k = a.stride_v = a.stride_dk = a.stride_dv = kHeadDim;
  a.nhead_stride_q = a.nhead_stride_o = a.nhead_stride_do = a.nhead_stride_dq = kHeadDim;
  a.nhead_stride_k = a.nhead_stride_v = a.nhead_stride_dk = a.nhead_stride_dv = kHeadDim;
  a.nhead_stride_lsed = kQueries;
  std::vector<std::byte> workspace;
  a.workspace_alloc = [&](size_t bytes, bool) {
    workspace.resize(bytes);
    return workspace.data();
  };

  // The tensors are in host memory: this runs on the emulated device.
  if (mha_sink::mha_bwd(a, {}) < 0) {
    std::printf("not supported: %s\n", mha_sink::unsupported_reason().c_str());
    return 1;
  }

  std::vector<double> dk_expected(kKeys), dv_expected(kKeys), d_sink_expected(kHeads, 1.0);
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kQueries; ++i) {
      const Row row(h, i);
      d_sink_expected[h] -= std::exp(kSinks[h] - row.lse) * row.delta;
      for (int j = 0; j <= i; ++j) {
        dk_expected[j] += kScale * row.ds * kQ;
        dv_expected[j] += row.probability * kDout;
      }
    }
  }
  const auto of = [](const std::vector<uint16_t>& x) {
    return [&x](int i) { return from_bf16(x[i]); };
  };
  const bool dq_ok = check("dq", static_cast<int>(query_size), of(dq), [](int at) {
    const int h = at / kHeadDim % kHeads, i = at / kHeadDim / kHeads;
    return kScale * (i + 1) * Row(h, i).ds * kK;
  });
  const bool dk_ok = check("dk", static_cast<int>(key_size), of(dk),
                           [&](int at) { return dk_expected[at / kHeadDim]; });
  const bool dv_ok = check("dv", static_cast<int>(key_size), of(dv),
                           [&](int at) { return dv_expected[at / kHeadDim]; });
  const bool d_sink_ok = check(
      "d_sink", kHeads, [&](int h) { return d_sink[h]; },
      [&](int h) { return d_sink_expected[h]; });
  return dq_ok && dk_ok && dv_ok && d_sink_ok ? 0 : 1;
}
