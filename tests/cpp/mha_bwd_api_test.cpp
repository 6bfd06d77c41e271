// The C++ interface: aiter's field order, the workspace callback, what is refused and how.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "attention.h"
#include "call_fixture.h"
#include "check.h"
#include "mha_sink/error.h"
#include "mha_sink/fmha_bwd.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::test {
namespace {

Attention small(bool causal = false) { return Attention(1, 2, 1, 17, 33, 64, causal); }

// Compiles only while every field keeps aiter's place and a compatible type.
void positional_initialisation() {
  const void* in = nullptr;
  void* out = nullptr;
  // clang-format off
  const mha_bwd_args args{
      true, true, 1, false,                                     // routing
      64, 64, "bf16", false, 2, 0, false, false, false, false,  // traits
      in, in, in, in, in, in, in,                               // q k v bias o lse do
      out, out, out, out, out, out,                             // d rand_val dq dk dv dbias
      in, out,                                                  // sink d_sink
      in, in, in, in, in, in,                                   // sequence pointers
      17, 33, 1, 17, 33, 2, 1, 0.125f,                          // sizes, scale
      1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,                        // strides
      21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,           // head strides
      41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52,           // batch strides
      -1, 0,                                                    // window
      0.0f, 1.0f, std::pair<uint64_t, uint64_t>{0, 0},          // dropout
      [](size_t, bool) -> void* { return nullptr; },            // workspace_alloc
      [](size_t) { return std::shared_ptr<void>(); }};          // pinned_host_alloc
  // clang-format on
  expect(args.stride_dbias == 11 && args.nhead_stride_lsed == 28 && args.batch_stride_lsed == 48 &&
             args.window_size_right == 0 && args.scale == 0.125f,
         "positional initialisation lands in the right fields");

  const stream_config stream{nullptr, true, 1, 2, 3, false, true, 4, nullptr};
  expect(stream.cold_niters_ == 2 && stream.nrepeat_ == 3 && stream.rotating_count_ == 4,
         "stream_config in ck_tile's order");
}

fmha_bwd_traits traits_of(const mha_bwd_args& a) {
  fmha_bwd_traits traits{};
  traits.seqlen_q = a.seqlen_q, traits.seqlen_k = a.seqlen_k, traits.batch = a.batch;
  traits.max_seqlen_q = a.max_seqlen_q, traits.max_seqlen_k = a.max_seqlen_k;
  traits.hdim_q = a.hdim_q, traits.hdim_v = a.hdim_v;
  traits.nhead_q = a.nhead_q, traits.nhead_k = a.nhead_k;
  traits.data_type = a.data_type;
  traits.mask_type = a.mask_type;
  return traits;
}

void results(bool causal) {
  Attention attention = small(causal);
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  args.pinned_host_alloc = [](size_t) -> std::shared_ptr<void> {
    throw std::logic_error("pinned_host_alloc was called");
  };
  expect(mha_bwd(args, {}) == 0, "0 when not timing");
  attention.expect_gradients(causal ? "causal" : "full");
  expect(workspace.calls == 1, "one workspace call");
  expect(!workspace.last_zero_init, "zero_init false");
  expect(workspace.last_bytes == fmha_bwd_launcher(traits_of(args)).workspace_size,
         "the launcher's byte count");
  expect(workspace.guard_untouched(), "nothing written past the workspace");
}

// What a mask, dlse and the deterministic kernel change, against the definition.
void variants() {
  for (const auto& [name, top_left, with_dlse] :
       {std::tuple("top-left", true, false), std::tuple("dlse", false, true)}) {
    for (bool deterministic : {false, true}) {
      for (int seqlen_k : {9, 70}) {  // on either side of seqlen_q
        Attention attention(2, 4, 2, 33, seqlen_k, 64, true, top_left, with_dlse);
        Workspace workspace;
        mha_bwd_args args = attention.args();
        args.is_deterministic = deterministic;
        args.workspace_alloc = workspace.callback();
        mha_bwd(args, {});
        attention.expect_gradients(std::string(name) + (deterministic ? ", deterministic" : "") +
                                   ", seqlen_k " + std::to_string(seqlen_k));
        expect(workspace.guard_untouched(), "nothing written past the workspace");
      }
    }
  }
}

void without_sink_and_d() {
  Attention attention = small();
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  mha_bwd(args, {});
  const auto dq = attention.dq, dk = attention.dk, dv = attention.dv;
  attention.poison();
  args.d_ptr = nullptr;
  args.d_sink_ptr = nullptr;
  mha_bwd(args, {});
  expect(attention.dk == dk && attention.dv == dv, "dk, dv the same without d_ptr, d_sink_ptr");
  expect(attention.d_sink[0] == Attention::kDSinkBefore && std::isnan(attention.delta[0]),
         "d and d_sink left alone");
}

void timed() {
  Attention attention = small();
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  stream_config stream;
  stream.time_kernel_ = true;
  stream.cold_niters_ = 1;
  stream.nrepeat_ = 2;
  expect(mha_bwd(args, stream) > 0, "milliseconds when timing");
  attention.expect_gradients("timed");  // d_sink accumulated once
  expect(workspace.calls == 1, "one workspace call when timing");
  stream.nrepeat_ = 0;
  expect_throw<InvalidArgument>([&] { mha_bwd(args, stream); }, "nrepeat_", "no repeat");
}

struct CallbackFailure {};

void failing_callbacks() {
  Attention attention = small();
  CountingDevice device;
  stream_config stream;
  stream.device_ = &device;
  mha_bwd_args args = attention.args();

  expect_throw<InvalidArgument>([&] { mha_bwd(args, stream); }, "workspace_alloc", "no callback");
  args.workspace_alloc = [](size_t, bool) -> void* { return nullptr; };
  expect_throw<Error>([&] { mha_bwd(args, stream); }, "workspace_alloc", "null workspace");
  args.workspace_alloc = [](size_t, bool) -> void* { throw CallbackFailure(); };
  bool caught = false;
  try {
    mha_bwd(args, stream);
  } catch (const CallbackFailure&) {
    caught = true;
  }
  expect(caught, "what the callback throws passes through");
  expect(device.calls == 0 && attention.untouched(), "nothing launched after a failed callback");

  Workspace workspace;
  args.workspace_alloc = workspace.callback();
  mha_bwd(args, stream);
  attention.expect_gradients("after failures");
  expect(device.calls == 5, "four launches and a memset");
}

void launcher_matches() {
  Attention attention = small();
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  mha_bwd(args, {});
  const auto dk = attention.dk, dv = attention.dv;
  const auto delta = attention.delta, d_sink = attention.d_sink;
  attention.poison();

  fmha_bwd_launcher launcher(traits_of(args));
  std::vector<std::byte> block(launcher.workspace_size, std::byte{0xff});
  fmha_bwd_args a{};
  a.q_ptr = args.q_ptr, a.k_ptr = args.k_ptr, a.v_ptr = args.v_ptr, a.o_ptr = args.o_ptr;
  a.lse_ptr = args.lse_ptr, a.do_ptr = args.do_ptr, a.d_ptr = args.d_ptr;
  a.dq_ptr = args.dq_ptr, a.dk_ptr = args.dk_ptr, a.dv_ptr = args.dv_ptr;
  a.sink_ptr = args.sink_ptr, a.d_sink_ptr = args.d_sink_ptr;
  a.workspace_ptr = block.data();
  a.seqlen_q = args.seqlen_q, a.seqlen_k = args.seqlen_k, a.batch = args.batch;
  a.hdim_q = args.hdim_q, a.hdim_v = args.hdim_v;
  a.nhead_q = args.nhead_q, a.nhead_k = args.nhead_k, a.scale = args.scale;
  a.stride_q = args.stride_q, a.stride_k = args.stride_k, a.stride_v = args.stride_v;
  a.stride_o = args.stride_o, a.stride_do = args.stride_do, a.stride_dq = args.stride_dq;
  a.stride_dk = args.stride_dk, a.stride_dv = args.stride_dv;
  a.nhead_stride_q = a.nhead_stride_k = a.nhead_stride_v = a.nhead_stride_o = args.hdim_q;
  a.nhead_stride_do = a.nhead_stride_dq = a.nhead_stride_dk = a.nhead_stride_dv = args.hdim_q;
  a.nhead_stride_lsed = args.nhead_stride_lsed;
  a.batch_stride_q = args.batch_stride_q, a.batch_stride_k = args.batch_stride_k;
  a.batch_stride_v = args.batch_stride_v, a.batch_stride_o = args.batch_stride_o;
  a.batch_stride_do = args.batch_stride_do, a.batch_stride_dq = args.batch_stride_dq;
  a.batch_stride_dk = args.batch_stride_dk, a.batch_stride_dv = args.batch_stride_dv;
  a.batch_stride_lsed = args.batch_stride_lsed;
  a.window_size_left = a.window_size_right = -1;
  a.mask_type = args.mask_type;

  launcher.prepare_workspace(block.data(), a, {});
  expect(launcher.run(a, {}) == 0, "launcher runs");
  attention.expect_gradients("launcher");
  // dq is summed by atomics, the others in a fixed order.
  expect(attention.dk == dk && attention.dv == dv && attention.delta == delta &&
             attention.d_sink == d_sink,
         "launcher equals mha_bwd bitwise");

  expect_throw<InvalidArgument>([&] { launcher.prepare_workspace(nullptr, a, {}); }, "workspace",
                                "null workspace prepared");
  a.seqlen_q = 16;
  expect_throw<InvalidArgument>([&] { launcher.run(a, {}); }, "seqlen_q", "other sizes");
}

void workspace_bound() {
  fmha_bwd_traits traits = traits_of(small().args());
  traits.batch = 3;
  traits.nhead_q = 64;
  for (int hdim : {64, 128}) {
    for (int nhead_k : {1, 8, 64}) {
      for (int seqlen : {1, 17, 2048, 8192, 65536, 1 << 20}) {
        traits.hdim_q = traits.hdim_v = hdim;
        traits.nhead_k = nhead_k;
        traits.seqlen_q = traits.seqlen_k = seqlen;
        const double dq_bytes = 4.0 * 3 * 64 * seqlen * hdim;
        const auto bytes = static_cast<double>(fmha_bwd_launcher(traits).workspace_size);
        expect(bytes >= dq_bytes && bytes <= 4 * dq_bytes,
               "workspace of seqlen " + std::to_string(seqlen) + " within 4 x fp32 dq");
      }
    }
  }
}

void expect_refused(const std::string& name, const std::function<void(mha_bwd_args&)>& change,
                    bool unsupported) {
  Attention attention = small();
  CountingDevice device;
  stream_config stream;
  stream.device_ = &device;
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  change(args);
  if (unsupported) {
    expect(mha_bwd(args, stream) < 0, name + ": negative");
    expect(unsupported_reason().find(name) != std::string::npos,
           name + ": reason is \"" + unsupported_reason() + "\"");
  } else {
    expect_throw<InvalidArgument>([&] { mha_bwd(args, stream); }, name, name);
  }
  expect(device.calls == 0 && workspace.calls == 0 && attention.untouched(),
         name + ": nothing launched or written");
}

void unsupported_requests() {
  using Args = mha_bwd_args&;
  static const int something = 0;
  const std::pair<const char*, std::function<void(Args)>> changes[] = {
      {"seqstart_q_ptr", [](Args a) { a.is_group_mode = true; }},
      {"mask_type", [](Args a) { a.mask_type = kMaskGeneric; }},
      {"bias_type", [](Args a) { a.bias_type = 2; }},
      {"has_dbias", [](Args a) { a.has_dbias = true; }},
      {"has_dropout", [](Args a) { a.has_dropout = true; }},
      {"is_store_randval", [](Args a) { a.is_store_randval = true; }},
      {"multiples of 8 up to 256", [](Args a) { a.hdim_q = a.hdim_v = 264; }},
      {"head dim", [](Args a) { a.hdim_v = 60; }},
      {"cu_seqlen_q_ptr", [](Args a) { a.cu_seqlen_q_ptr = &something; }},
      {"p_drop", [](Args a) { a.p_drop = 0.5f; }}};
  for (const auto& [name, change] : changes) expect_refused(name, change, true);

  Attention attention = small();
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  mha_bwd(args, {});
  expect(unsupported_reason().empty(), "no reason after a call that ran");

  fmha_bwd_traits traits = traits_of(args);
  traits.has_dropout = true;
  fmha_bwd_launcher launcher(traits);
  expect(launcher.workspace_size == 0 && launcher.run({}, {}) < 0,
         "launcher of unsupported traits");
  expect(unsupported_reason().find("has_dropout") != std::string::npos, "launcher's reason");
}

void invalid_arguments() {
  using Args = mha_bwd_args&;
  const std::pair<const char*, std::function<void(Args)>> changes[] = {
      {"q_ptr", [](Args a) { a.q_ptr = nullptr; }},
      {"k_ptr", [](Args a) { a.k_ptr = nullptr; }},
      {"v_ptr", [](Args a) { a.v_ptr = nullptr; }},
      {"o_ptr", [](Args a) { a.o_ptr = nullptr; }},
      {"do_ptr", [](Args a) { a.do_ptr = nullptr; }},
      {"lse_ptr", [](Args a) { a.lse_ptr = nullptr; }},
      {"dq_ptr", [](Args a) { a.dq_ptr = nullptr; }},
      {"dk_ptr", [](Args a) { a.dk_ptr = nullptr; }},
      {"dv_ptr", [](Args a) { a.dv_ptr = nullptr; }},
      {"sink_ptr", [](Args a) { a.sink_ptr = nullptr; }},
      {"dk_ptr", [](Args a) { a.dk_ptr = a.dv_ptr; }},
      {"dq_ptr", [](Args a) { a.dq_ptr = const_cast<void*>(a.q_ptr); }},
      {"dk_ptr", [](Args a) { a.stride_dk = 63; }},
      {"dq_ptr", [](Args a) { a.nhead_stride_dq = 0; }},
      {"k_ptr", [](Args a) { a.stride_k = -64; }},
      {"q_ptr", [](Args a) { a.stride_q = std::numeric_limits<int64_t>::max() / 8; }},
      {"lse_ptr", [](Args a) { a.lse_ptr = static_cast<const std::byte*>(a.lse_ptr) + 1; }},
      {"nhead_k", [](Args a) { a.nhead_q = 3, a.nhead_k = 2; }},
      {"nhead_k", [](Args a) { a.nhead_k = 0; }},
      {"batch", [](Args a) { a.batch = 0; }},
      {"seqlen_q", [](Args a) { a.seqlen_q = -1; }},
      {"data_type", [](Args a) { a.data_type = "fp8"; }},
      {"mask_type", [](Args a) { a.mask_type = 4; }},
      {"window_size_left", [](Args a) { a.mask_type = 2, a.window_size_left = -2; }},
      {"scale", [](Args a) { a.scale = std::numeric_limits<float>::quiet_NaN(); }},
      {"p_drop", [](Args a) { a.p_drop = 1.0f; }}};
  for (const auto& [name, change] : changes) expect_refused(name, change, false);
}

void empty_sequences() {
  Workspace workspace;
  Attention no_queries(1, 2, 1, 0, 33, 64, false);
  mha_bwd_args args = no_queries.args();
  args.workspace_alloc = workspace.callback();
  mha_bwd(args, {});
  no_queries.expect_gradients("no queries");
  expect(workspace.calls == 0, "no workspace call for 0 bytes");

  Attention no_keys(1, 2, 1, 17, 0, 64, false);
  args = no_keys.args();
  args.workspace_alloc = workspace.callback();
  mha_bwd(args, {});
  no_keys.expect_gradients("no keys");
}

// dk and dv as the even and odd heads of one buffer.
void interleaved_outputs() {
  Attention attention(2, 4, 2, 17, 33, 64, true);
  std::vector<Bf16> packed(2 * attention.dk.size(), 0xffff);
  Workspace workspace;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = workspace.callback();
  args.dk_ptr = packed.data();
  args.dv_ptr = packed.data() + 64;
  args.nhead_stride_dk = args.nhead_stride_dv = 128;
  args.stride_dk = args.stride_dv = 2 * 128;
  args.batch_stride_dk = args.batch_stride_dv = 33 * 2 * 128;
  mha_bwd(args, {});
  for (size_t i = 0; i < packed.size(); ++i) {
    auto& gradient = i / 64 % 2 ? attention.dv : attention.dk;
    gradient[i / 128 * 64 + i % 64] = packed[i];
  }
  attention.expect_gradients("interleaved");
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  positional_initialisation();
  results(false);
  results(true);
  variants();
  without_sink_and_d();
  timed();
  failing_callbacks();
  launcher_matches();
  workspace_bound();
  unsupported_requests();
  invalid_arguments();
  empty_sequences();
  interleaved_outputs();
  return summary();
}
