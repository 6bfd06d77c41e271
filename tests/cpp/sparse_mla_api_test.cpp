// The C++ interface of sparse MLA: results, workspace and plan, what is refused and how.
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "call_fixture.h"
#include "check.h"
#include "emulator/launch.h"
#include "mha_sink/device.h"
#include "mha_sink/mha_bwd.h"
#include "sparse_mla.h"

namespace mha_sink::test {
namespace {

void forward(SparseMla& problem, Device* device = nullptr) {
  Workspace workspace;
  sparse_mla_fwd_args args = problem.forward();
  args.workspace_alloc = workspace.callback();
  stream_config stream;
  stream.device_ = device;
  expect(sparse_mla_fwd(args, stream) == 0, "forward: 0 when not timing");
  expect(workspace.guard_untouched(), "forward: nothing written past the workspace");
}

void backward(SparseMla& problem, int r_chunk = 0, Device* device = nullptr) {
  Workspace workspace;
  sparse_mla_bwd_args args = problem.backward();
  args.r_chunk = r_chunk;
  args.workspace_alloc = workspace.callback();
  stream_config stream;
  stream.device_ = device;
  expect(sparse_mla_bwd(args, stream) == 0, "backward: 0 when not timing");
  sparse_mla_bwd_traits traits = problem.traits();
  traits.r_chunk = r_chunk;
  expect(workspace.calls == 1 && !workspace.last_zero_init, "one workspace call, zero_init false");
  expect(workspace.last_bytes == sparse_mla_bwd_launcher(traits).workspace_size,
         "the launcher's byte count");
  expect(workspace.guard_untouched(), "backward: nothing written past the workspace");
}

struct Bits {
  std::vector<uint16_t> o, dq, dkv;
  std::vector<float> lse, d_sink;
  bool operator==(const Bits&) const = default;

  explicit Bits(const SparseMla& p) : o(p.o), dq(p.dq), dkv(p.dkv), lse(p.lse), d_sink(p.d_sink) {}
};

void results() {
  for (const auto& [heads, topk, chunk] :
       {std::tuple{3, 40, 0}, {33, 96, 0}, {33, 96, 32}, {128, 64, 0}, {64, 0, 0}}) {
    SparseMla problem(3, heads, 37, topk);
    if (topk == 0) problem.sink.assign(static_cast<size_t>(heads), 0.5f);
    forward(problem);
    backward(problem, chunk);
    problem.expect_results("H " + std::to_string(heads) + ", TOPK " + std::to_string(topk) +
                           ", R_CHUNK " + std::to_string(chunk));
  }
}

void same_bits_however_waves_interleave(int heads) {
  SparseMla problem(3, heads, 37, 160);
  const emulator::Schedule before = emulator::default_schedule();
  forward(problem);
  backward(problem);
  const Bits expected(problem);
  for (const emulator::Schedule& schedule : {emulator::Schedule{1, false}, {50, true}, {0, true}}) {
    emulator::set_default_schedule(schedule);
    problem.poison();
    forward(problem);
    backward(problem);
    expect(Bits(problem) == expected,
           "H " + std::to_string(heads) + ", quantum " + std::to_string(schedule.quantum));
  }
  emulator::set_default_schedule(before);
}

void a_plan_serves_many_calls() {
  SparseMla problem(5, 20, 37, 96);
  forward(problem);
  backward(problem);
  const Bits expected(problem);
  std::vector<std::byte> plan(sparse_mla_plan_size(5, 37, 96), std::byte{0xff});
  const sparse_mla_plan_args args{.tokens = 5,
                                  .num_kv = 37,
                                  .topk = 96,
                                  .topk_indices_ptr = problem.indices.data(),
                                  .plan_ptr = plan.data()};
  expect(sparse_mla_plan(args, {}) == 0, "plan: 0 when not timing");
  for (int call = 0; call < 2; ++call) {
    problem.poison();
    sparse_mla_fwd_args forward_args = problem.forward();
    forward_args.plan_ptr = plan.data();  // and no workspace_alloc: none is needed
    sparse_mla_fwd(forward_args, {});
    sparse_mla_bwd_traits traits = problem.traits();
    traits.has_plan = true;
    sparse_mla_bwd_launcher launcher(traits);
    expect(launcher.workspace_size < sparse_mla_bwd_launcher(problem.traits()).workspace_size,
           "a plan's memory is not in the workspace too");
    std::vector<std::byte> workspace(launcher.workspace_size, std::byte{0xff});
    sparse_mla_bwd_args backward_args = problem.backward();
    backward_args.plan_ptr = plan.data();
    expect(launcher.run(backward_args, workspace.data(), {}) == 0, "launcher: 0");
    expect(Bits(problem) == expected, "the same bits with a plan, call " + std::to_string(call));
  }
}

void optional_tensors() {
  SparseMla problem(3, 16, 9, 32);
  forward(problem);
  problem.dlse.assign(problem.dlse.size(), 0.0f);
  backward(problem);
  const Bits expected(problem);
  Workspace workspace;
  sparse_mla_bwd_args args = problem.backward();
  args.workspace_alloc = workspace.callback();
  args.dlse_ptr = nullptr;
  problem.dq.assign(problem.dq.size(), 0xffff);
  sparse_mla_bwd(args, {});
  expect(Bits(problem) == expected, "no dlse is a dlse of zero");
  args.d_sink_ptr = nullptr;
  args.sink_ptr = nullptr;
  problem.d_sink.assign(problem.d_sink.size(), 7.0f);
  sparse_mla_bwd(args, {});
  expect(problem.dq == expected.dq && problem.dkv == expected.dkv && problem.d_sink[0] == 7.0f,
         "without a sink: dq and dkv the same, d_sink left alone");
}

void nothing_to_do() {
  SparseMla problem(0, 16, 5, 32);
  sparse_mla_bwd_args args = problem.backward();
  expect(sparse_mla_bwd(args, {}) == 0, "T = 0 needs no workspace");
  expect(problem.dkv == std::vector<uint16_t>(problem.dkv.size(), 0), "T = 0: dkv is zero");
  expect(problem.d_sink == std::vector<float>(16, 0.0f), "T = 0: d_sink is zero");
  expect(sparse_mla_fwd(problem.forward(), {}) == 0, "T = 0: an empty forward");
}

void timed_calls() {
  SparseMla problem(2, 16, 5, 32);
  forward(problem);
  backward(problem);
  const Bits expected(problem);
  Workspace workspace;
  sparse_mla_bwd_args args = problem.backward();
  args.workspace_alloc = workspace.callback();
  stream_config stream;
  stream.time_kernel_ = true;
  stream.cold_niters_ = 1;
  stream.nrepeat_ = 2;
  problem.poison();
  problem.o = expected.o, problem.lse = expected.lse;
  args.o_ptr = problem.o.data(), args.lse_ptr = problem.lse.data();
  args.dq_ptr = problem.dq.data(), args.dkv_ptr = problem.dkv.data();
  args.d_sink_ptr = problem.d_sink.data();
  expect(sparse_mla_bwd(args, stream) > 0, "milliseconds when timing");
  expect(workspace.calls == 1, "one workspace call however often it repeats");
  expect(Bits(problem) == expected, "repeats do not accumulate");
}

// -1 and every other value outside [0, num_kv) alike.
void bad_indices_are_no_access() {
  SparseMla problem(3, 16, 9, 32);
  SparseMla other(3, 16, 9, 32);
  constexpr int32_t kBad[] = {9, -2, std::numeric_limits<int32_t>::max(),
                              std::numeric_limits<int32_t>::min()};
  for (size_t i = 0; i < other.indices.size(); ++i) {
    if (other.indices[i] == -1) other.indices[i] = kBad[i % 4];
  }
  expect_throw<InvalidArgument>([&] { forward(other); }, "topk_indices_ptr must be -1",
                                "refused where the host can read them");
  expect_throw<InvalidArgument>([&] { backward(other); }, "topk_indices_ptr must be -1",
                                "backward too");
  forward(problem);
  backward(problem);
  CountingDevice device;
  forward(other, &device);
  backward(other, 0, &device);
  expect(Bits(problem) == Bits(other), "elsewhere they count as empty");

  setenv("MHA_SINK_CHECK", "1", 1);
  device.calls = 0;
  expect_throw<InvalidArgument>([&] { backward(other, 0, &device); }, "given at [0, 3]",
                                "MHA_SINK_CHECK=1 fetches and names them");
  expect(device.calls == 0, "before anything is launched");
  unsetenv("MHA_SINK_CHECK");
}

void refusals() {
  SparseMla problem(3, 16, 9, 64);
  CountingDevice device;
  stream_config stream;
  stream.device_ = &device;
  const auto refused = [&](const std::string& part,
                           const std::function<void(sparse_mla_bwd_args&)>& change) {
    sparse_mla_bwd_args args = problem.backward();
    args.workspace_alloc = [](size_t, bool) -> void* {
      expect(false, "workspace_alloc was called");
      return nullptr;
    };
    change(args);
    expect_throw<InvalidArgument>([&] { sparse_mla_bwd(args, stream); }, part, part);
  };
  refused("data_type", [](auto& a) { a.data_type = "fp32"; });
  refused("T (tokens)", [](auto& a) { a.tokens = -1; });
  refused("H (heads)", [](auto& a) { a.nhead = 0; });
  refused("num_kv", [](auto& a) { a.num_kv = 2; });
  refused("TOPK", [](auto& a) { a.topk = -1; });
  refused("multiple of 32", [](auto& a) { a.r_chunk = 48; });
  refused("must divide TOPK", [](auto& a) { a.r_chunk = 96; });
  refused("scale", [](auto& a) { a.scale = std::numeric_limits<float>::infinity(); });
  refused("q_ptr", [](auto& a) { a.q_ptr = nullptr; });
  refused("kv_ptr", [](auto& a) { a.kv_ptr = static_cast<const char*>(a.kv_ptr) + 2; });
  refused("dkv_ptr", [](auto& a) { a.dkv_ptr = nullptr; });
  refused("sink_ptr", [](auto& a) { a.sink_ptr = nullptr; });
  refused("dq_ptr and q_ptr", [](auto& a) { a.dq_ptr = const_cast<void*>(a.q_ptr); });
  refused("dkv_ptr and dq_ptr", [](auto& a) { a.dkv_ptr = a.dq_ptr; });
  expect(device.calls == 0, "nothing was launched");

  sparse_mla_bwd_args args = problem.backward();
  args.nhead = 129;
  expect(sparse_mla_bwd(args, stream) < 0, "129 heads: negative");
  expect(unsupported_reason().find("at most 128") != std::string::npos, "and why");
  args.nhead = 16;
  args.num_kv = 1 << 23;
  expect(sparse_mla_bwd(args, stream) < 0, "2^23 rows of kv: more workgroups than a grid holds");
  args = problem.backward();
  expect_throw<InvalidArgument>([&] { sparse_mla_bwd(args, stream); }, "workspace_alloc",
                                "an empty callback");
  args.workspace_alloc = [](size_t, bool) -> void* { return nullptr; };
  expect_throw<Error>([&] { sparse_mla_bwd(args, stream); }, "returned null", "a null workspace");
  expect(device.calls == 0, "nothing was launched");

  sparse_mla_bwd_launcher launcher(problem.traits());
  args.tokens = 2;
  expect_throw<InvalidArgument>([&] { launcher.run(args, problem.dq.data(), {}); }, "tokens",
                                "other sizes than the traits'");
}

// From sizes alone: nothing of these is allocated.
void workspace_sizes() {
  const auto bytes = [](int tokens, int topk, int r_chunk) {
    return sparse_mla_bwd_launcher({.data_type = "bf16",
                                    .tokens = tokens,
                                    .nhead = 128,
                                    .num_kv = tokens + 1024,
                                    .topk = topk,
                                    .r_chunk = r_chunk,
                                    .has_plan = false})
        .workspace_size;
  };
  constexpr size_t kGiB = size_t{1} << 30;
  expect(bytes(4096, 1024, 0) > 6 * kGiB && bytes(4096, 1024, 0) < 6.2 * kGiB,
         "the published shape: 4 GiB of interm, 2 GiB of P and dS, little else");
  expect(bytes(4096, 1024, 128) < 2.2 * kGiB, "chunks need less");
  expect(bytes(1 << 20, 2048, 0) > 2048 * kGiB, "2^20 tokens");
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  results();
  for (int heads : {16, 20, 64, 100}) same_bits_however_waves_interleave(heads);
  a_plan_serves_many_calls();
  optional_tensors();
  nothing_to_do();
  timed_calls();
  bad_indices_are_no_access();
  refusals();
  workspace_sizes();
  return summary();
}
