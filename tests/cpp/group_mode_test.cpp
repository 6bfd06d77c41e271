// Group mode of the C++ interface: sequences one after another, their places and lengths on the
// device, rows of no sequence.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention.h"
#include "call_fixture.h"
#include "check.h"
#include "mha_sink/fmha_bwd.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::test {
namespace {

constexpr int kHeadsQ = 4, kHeadsK = 2, kHdim = 64;

struct Lengths {
  int q, k;
};

// Sequences of these lengths, each followed by rows of none.
class Packed {
 public:
  Packed(const std::vector<Lengths>& lengths, Lengths gap, bool causal) {
    start_q.push_back(0), start_k.push_back(0), cu_q.push_back(0), cu_k.push_back(0);
    for (const Lengths& length : lengths) {
      Attention& one =
          sequences.emplace_back(1, kHeadsQ, kHeadsK, length.q, length.k, kHdim, causal);
      start_q.push_back(start_q.back() + length.q + gap.q);
      start_k.push_back(start_k.back() + length.k + gap.k);
      cu_q.push_back(cu_q.back() + length.q);
      cu_k.push_back(cu_k.back() + length.k);
      length_q.push_back(length.q);
      length_k.push_back(length.k);
      sink.insert(sink.end(), one.sink.begin(), one.sink.end());
    }
    const auto rows = [](int total, int heads) { return size_t(total) * heads * kHdim; };
    for (auto* tensor : {&q, &out, &dout, &dq}) tensor->assign(rows(start_q.back(), kHeadsQ), kNan);
    for (auto* tensor : {&k, &v, &dk, &dv}) tensor->assign(rows(start_k.back(), kHeadsK), kNan);
    lse.assign(size_t(kHeadsQ) * start_q.back(), std::numeric_limits<float>::quiet_NaN());
    delta = lse;
    d_sink.assign(kHeadsQ, Attention::kDSinkBefore);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Attention& one = sequences[i];
      copy_to(one.q, q, start_q[i], kHeadsQ);
      copy_to(one.out, out, start_q[i], kHeadsQ);
      copy_to(one.dout, dout, start_q[i], kHeadsQ);
      copy_to(one.k, k, start_k[i], kHeadsK);
      copy_to(one.v, v, start_k[i], kHeadsK);
      for (int h = 0; h < kHeadsQ; ++h) {
        for (int row = 0; row < one.seqlen_q; ++row) {
          lse[size_t(h) * total_q() + start_q[i] + row] = one.lse[size_t(h) * one.seqlen_q + row];
        }
      }
    }
  }

  int total_q() const { return start_q.back(); }

  mha_bwd_args args() {
    mha_bwd_args a = sequences.front().args();
    a.is_group_mode = true;
    a.q_ptr = q.data(), a.k_ptr = k.data(), a.v_ptr = v.data();
    a.o_ptr = out.data(), a.lse_ptr = lse.data(), a.do_ptr = dout.data();
    a.d_ptr = delta.data(), a.dq_ptr = dq.data(), a.dk_ptr = dk.data(), a.dv_ptr = dv.data();
    a.sink_ptr = sink.data(), a.d_sink_ptr = d_sink.data();
    a.seqstart_q_ptr = start_q.data(), a.seqstart_k_ptr = start_k.data();
    a.seqlen_q = total_q(), a.seqlen_k = start_k.back();
    a.batch = static_cast<int>(sequences.size());
    a.nhead_stride_lsed = total_q();
    a.workspace_alloc = [this](size_t bytes, bool) -> void* {
      workspace.assign(bytes, std::byte{0xff});
      return workspace.data();
    };
    return a;
  }

  // Of each sequence, as alone; of the rows between, 0.
  void expect_gradients(const std::string& what) {
    double d_sink_sum[kHeadsQ] = {};
    for (size_t i = 0; i < sequences.size(); ++i) {
      Attention& one = sequences[i];
      copy_from(dq, one.dq, start_q[i], kHeadsQ);
      copy_from(dk, one.dk, start_k[i], kHeadsK);
      copy_from(dv, one.dv, start_k[i], kHeadsK);
      for (int h = 0; h < kHeadsQ; ++h) {
        for (int row = 0; row < one.seqlen_q; ++row) {
          float& value = delta[size_t(h) * total_q() + start_q[i] + row];
          one.delta[size_t(h) * one.seqlen_q + row] = std::exchange(value, 0.0f);
        }
        d_sink_sum[h] += one.expected.d_sink[h];
        one.d_sink[h] = Attention::kDSinkBefore + static_cast<float>(one.expected.d_sink[h]);
      }
      one.expect_gradients(what + ", sequence " + std::to_string(i));
    }
    double largest = 0, error = 0;
    for (int h = 0; h < kHeadsQ; ++h) {
      largest = std::max(largest, std::abs(d_sink_sum[h]));
      error = std::max(error, std::abs(d_sink[h] - Attention::kDSinkBefore - d_sink_sum[h]));
    }
    expect(error <= 0.01 * largest, what + ": d_sink");
    const auto zero = [](const auto& tensor) {
      return std::all_of(tensor.begin(), tensor.end(), [](auto x) { return x == 0; });
    };
    expect(zero(dq) && zero(dk) && zero(dv) && zero(delta), what + ": rows of no sequence are 0");
  }

  std::deque<Attention> sequences;
  std::vector<int32_t> start_q, start_k, cu_q, cu_k, length_q, length_k;
  std::vector<Bf16> q, k, v, out, dout, dq, dk, dv;
  std::vector<float> lse, delta, sink, d_sink;
  std::vector<std::byte> workspace;

 private:
  static constexpr Bf16 kNan = 0xffff;

  static void copy_to(const std::vector<Bf16>& from, std::vector<Bf16>& to, int row, int heads) {
    std::copy(from.begin(), from.end(), to.begin() + int64_t{row} * heads * kHdim);
  }
  // Leaves zeros, so that what remains belongs to no sequence.
  static void copy_from(std::vector<Bf16>& from, std::vector<Bf16>& to, int row, int heads) {
    const auto begin = from.begin() + int64_t{row} * heads * kHdim;
    std::copy_n(begin, to.size(), to.begin());
    std::fill_n(begin, to.size(), Bf16{0});
  }
};

const std::vector<Lengths> kLengths = {{17, 33}, {0, 5}, {64, 0}, {70, 300}, {1, 1}};

void lengths_by_start(bool causal, bool deterministic) {
  Packed packed(kLengths, {0, 0}, causal);
  mha_bwd_args args = packed.args();
  args.is_deterministic = deterministic;
  expect(mha_bwd(args, {}) == 0, "group mode runs");
  packed.expect_gradients(std::string("starts only") + (causal ? ", causal" : "") +
                          (deterministic ? ", deterministic" : ""));
}

// Every way to say lengths shorter than the rows up to the next start, and which one wins.
void padded_lengths() {
  const std::vector<int32_t> wrong(kLengths.size() + 1, 1);
  for (const char* way : {"cu", "length", "both"}) {
    Packed packed(kLengths, {3, 200}, true);
    mha_bwd_args args = packed.args();
    if (way != std::string("length")) {
      args.cu_seqlen_q_ptr = packed.cu_q.data(), args.cu_seqlen_k_ptr = packed.cu_k.data();
      args.seqlen_q_ptr = args.seqlen_k_ptr = way == std::string("both") ? wrong.data() : nullptr;
    } else {
      args.seqlen_q_ptr = packed.length_q.data(), args.seqlen_k_ptr = packed.length_k.data();
    }
    mha_bwd(args, {});
    packed.expect_gradients(std::string("padded by ") + way);
  }
}

// Where the host may not read them, the emulator behind the device faults on any access outside
// the tensors and the workspace.
void wrong_contents() {
  const int32_t most = std::numeric_limits<int32_t>::max(), least = -most - 1;
  const std::vector<std::vector<int32_t>> contents = {{0, 40, 30, 20, 10, 5},
                                                      {least, most, least, most, least, most},
                                                      {most, most, most, most, most, most},
                                                      {-5, -4, -3, -2, -1, 0},
                                                      {9, 9, 9, 9, 9, 9},
                                                      {0, 1000, 2000, 3000, 4000, 5000}};
  Packed packed(kLengths, {0, 0}, true);
  CountingDevice device;
  stream_config stream;
  stream.device_ = &device;
  const auto run_wrong = [&](mha_bwd_args args, const char* argument) {
    for (bool deterministic : {false, true}) {
      args.is_deterministic = deterministic;
      expect(mha_bwd(args, stream) == 0, std::string("wrong ") + argument + " stay inside");
      expect_throw<InvalidArgument>([&] { mha_bwd(args, {}); }, argument, "refused where readable");
      device.calls = 0;
      setenv("MHA_SINK_CHECK", "1", 1);
      expect_throw<InvalidArgument>([&] { mha_bwd(args, stream); }, argument, "or on request");
      unsetenv("MHA_SINK_CHECK");
      expect(device.calls == 0, "before anything is launched");
    }
  };
  for (const std::vector<int32_t>& wrong : contents) {
    mha_bwd_args args = packed.args();
    args.seqstart_q_ptr = wrong.data();
    run_wrong(args, "seqstart_q_ptr");
    args = packed.args();
    args.cu_seqlen_k_ptr = wrong.data();
    run_wrong(args, "cu_seqlen_k_ptr");
  }
  for (int32_t wrong : {-1, 34, most, least}) {
    std::vector<int32_t> lengths = packed.length_k;
    lengths[0] = wrong;  // of 33 rows
    mha_bwd_args args = packed.args();
    args.seqlen_k_ptr = lengths.data();
    run_wrong(args, "seqlen_k_ptr");
  }
}

void without_starts() {
  for (bool queries : {false, true}) {
    Packed packed(kLengths, {0, 0}, false);
    CountingDevice device;
    stream_config stream;
    stream.device_ = &device;
    mha_bwd_args args = packed.args();
    (queries ? args.seqstart_q_ptr : args.seqstart_k_ptr) = nullptr;
    expect(mha_bwd(args, stream) < 0 && device.calls == 0, "negative without starts");
    expect(unsupported_reason().find(queries ? "seqstart_q_ptr" : "seqstart_k_ptr") !=
               std::string::npos,
           "reason: " + unsupported_reason());
  }
}

void same_bits() {
  Packed packed(kLengths, {3, 200}, true);
  mha_bwd_args args = packed.args();
  args.cu_seqlen_q_ptr = packed.cu_q.data(), args.cu_seqlen_k_ptr = packed.cu_k.data();
  args.is_deterministic = true;
  mha_bwd(args, {});
  const auto dq = packed.dq, dk = packed.dk, dv = packed.dv;
  const auto d_sink = packed.d_sink;
  std::fill(packed.dq.begin(), packed.dq.end(), Bf16{0xffff});
  std::fill(packed.d_sink.begin(), packed.d_sink.end(), Attention::kDSinkBefore);
  mha_bwd(args, {});
  expect(packed.dq == dq && packed.dk == dk && packed.dv == dv && packed.d_sink == d_sink,
         "deterministic: the same bits");
}

void workspace_bound() {
  fmha_bwd_traits traits{};
  traits.data_type = "bf16";
  traits.nhead_q = traits.nhead_k = 8;
  for (bool deterministic : {false, true}) {
    for (int hdim : {64, 128}) {
      for (int length : {64, 2048, 8192, 65536, 1 << 20}) {
        traits.is_group_mode = true;
        traits.is_deterministic = deterministic;
        traits.batch = 4;
        traits.hdim_q = traits.hdim_v = hdim;
        traits.seqlen_q = traits.seqlen_k = traits.batch * length;
        const double dq_bytes = 4.0 * traits.seqlen_q * traits.nhead_q * hdim;
        const auto bytes = static_cast<double>(fmha_bwd_launcher(traits).workspace_size);
        expect(bytes <= 4 * dq_bytes && (deterministic || bytes >= dq_bytes),
               "packed workspace of " + std::to_string(length) + " rows within 4 x fp32 dq");
      }
    }
  }
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  for (bool causal : {false, true}) {
    for (bool deterministic : {false, true}) lengths_by_start(causal, deterministic);
  }
  padded_lengths();
  wrong_contents();
  without_starts();
  same_bits();
  workspace_bound();
  return summary();
}
