// How the emulator starts, schedules and stops waves: kernels whose instructions are C++ functions.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "device/emulated.h"
#include "emulator/code_object.h"
#include "emulator/launch.h"
#include "hip/mha/params.h"
#include "host/kernel_registry.h"
#include "mha_sink/error.h"

namespace mha_sink::test {
namespace {

using namespace emulator;

void end(const Instruction&, Wave& wave) { wave.ended = true; }
void barrier(const Instruction&, Wave& wave) { wave.at_barrier = true; }
void jump(const Instruction& instruction, Wave& wave) { wave.pc = instruction.target; }
void nothing(const Instruction&, Wave&) {}

Kernel kernel_of(std::vector<Handler> handlers) {
  Kernel kernel;
  kernel.name = "planted";
  kernel.vgpr_count = 8;
  kernel.properties = 1 << 3;  // kernarg pointer in s[0:1]
  // Two user SGPRs, workgroup ids x, y, z, work-item ids x, y, z.
  kernel.rsrc2 = 2 << 1 | 7 << 7 | 2 << 11;
  for (const Handler handler : handlers) {
    Instruction instruction;
    instruction.op = Op::s_nop;
    instruction.address = 4 * static_cast<uint32_t>(kernel.program.size());
    instruction.handler = handler;
    kernel.program.push_back(instruction);
  }
  return kernel;
}

// Any object will do: the planted kernels read nothing of it.
const CodeObject& object() {
  static const CodeObject loaded(embedded_kernel("mha_reduce_d_sink").object, "mha_reduce_d_sink");
  return loaded;
}

LaunchSpec spec_of(uint32_t workgroups, uint32_t items) {
  LaunchSpec spec;
  spec.workgroups = {workgroups, 1, 1};
  spec.workgroup_size = {items, 1, 1};
  return spec;
}

std::mutex seen_mutex;
std::vector<Wave> seen;
std::vector<uint32_t> seen_registers;  // v0 and v7 of each wave, lanes 0, 31, 63
std::vector<uint8_t> seen_kernarg, seen_lds;

void record(const Instruction&, Wave& wave) {
  const std::lock_guard lock(seen_mutex);
  seen.push_back(wave);
  for (const int lane : {0, 31, 63}) {
    for (const int index : {0, 7}) seen_registers.push_back(wave.vgpr[index].lane[lane]);
  }
  const auto* kernarg = reinterpret_cast<const uint8_t*>(wave.read64(0));
  seen_kernarg.assign(kernarg, kernarg + 64);
  seen_lds = wave.workgroup->lds;
  expect(wave.workgroup->memory->readable(wave.read64(0), 64) &&
             !wave.workgroup->memory->writable(wave.read64(0), 1),
         "the kernel may read its arguments and not write them");
}

void initial_state() {
  Kernel kernel = kernel_of({record, end});
  kernel.kernarg_bytes = 24;
  kernel.lds_bytes = 100;
  kernel.kernarg_preload_dwords = 2;
  kernel.kernarg_preload_offset = 1;
  kernel.rsrc2 = 4 << 1 | 7 << 7 | 2 << 11;
  kernel.arguments = {{"p", "by_value", 0, 12},
                      {"", "hidden_block_count_y", 12, 4},
                      {"", "hidden_group_size_x", 16, 2},
                      {"", "hidden_remainder_x", 18, 2},
                      {"", "hidden_grid_dims", 20, 2}};
  const uint32_t arguments[3] = {11, 22, 33};
  LaunchSpec spec;
  spec.workgroups = {2, 3, 1};
  spec.workgroup_size = {20, 5, 1};
  spec.arguments = std::as_bytes(std::span(arguments));
  launch(object(), kernel, spec);
  if (!expect(seen.size() == 12, "two waves in each of six workgroups")) return;

  std::vector<uint32_t> ids;
  for (size_t i = 0; i < seen.size(); ++i) {
    const Wave& wave = seen[i];
    ids.push_back(wave.sgpr[4] * 100 + wave.sgpr[5] * 10 + wave.index);
    expect(wave.sgpr[2] == 22 && wave.sgpr[3] == 33, "preloaded arguments in s2 and s3");
    expect(wave.sgpr[6] == 0 && wave.sgpr[7] == kPoison && wave.sgpr[kVcc] == kPoison,
           "workgroup id z, then poison");
    expect(wave.exec() == (wave.index == 0 ? ~uint64_t{0} : (uint64_t{1} << 36) - 1),
           "the last wave has 100 - 64 lanes");
    const uint32_t item = 64 * wave.index + 31;
    expect(seen_registers[6 * i + 2] == (item % 20 | item / 20 << 10), "packed work-item id");
    expect(seen_registers[6 * i + 3] == kPoison, "registers start as poison");
    expect(wave.index == 0 || seen_registers[6 * i + 4] == kPoison, "v0 of a lane without item");
  }
  std::sort(ids.begin(), ids.end());
  expect(ids == std::vector<uint32_t>{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121},
         "every workgroup and wave once");
  uint32_t words[6];
  std::memcpy(words, seen_kernarg.data(), sizeof(words));
  expect(words[0] == 11 && words[2] == 33 && words[3] == 3 && words[4] == 20 &&
             (words[5] & 0xffff) == 2,
         "explicit and hidden arguments");
  uint32_t lds = 0;
  std::memcpy(&lds, seen_lds.data() + 96, sizeof(lds));
  expect(seen_lds.size() == 100 && lds == kPoison, "LDS starts as poison");
}

// After the barrier a wave looks whether all four have arrived.
std::atomic<int> arrivals{0}, early{0};
void arrive(const Instruction&, Wave&) { ++arrivals; }
void look(const Instruction&, Wave&) { early += arrivals % 4 != 0; }
void end_wave_2(const Instruction&, Wave& wave) { wave.ended = wave.index == 2; }

void barriers() {
  for (const uint32_t quantum : {1u, 3u, 50u, 0u}) {
    for (const bool reverse : {false, true}) {
      Kernel kernel = kernel_of(
          {arrive, barrier, look, barrier, arrive, barrier, look, end_wave_2, barrier, end});
      LaunchSpec spec = spec_of(1, 256);
      spec.schedule = {quantum, reverse};
      Profile profile;
      spec.profile = &profile;
      arrivals = early = 0;
      launch(object(), kernel, spec);
      expect(arrivals == 8 && early == 0,
             "a barrier holds every wave, quantum " + std::to_string(quantum));
      const std::vector<uint64_t> wanted = {4, 4, 4, 4, 4, 4, 4, 4, 3, 3};
      expect(profile.executions == wanted && profile.wave_instructions == 38,
             "executions of each instruction; a wave that ended does not count at a barrier");
    }
  }
}

std::vector<int> order;
void note(const Instruction&, Wave& wave) { order.push_back(wave.index); }

void schedules() {
  Kernel kernel = kernel_of({note, note, end});
  const auto run = [&](Schedule schedule) {
    LaunchSpec spec = spec_of(1, 128);
    spec.schedule = schedule;
    order.clear();
    launch(object(), kernel, spec);
    return order;
  };
  expect(run({1, false}) == std::vector<int>{0, 1, 0, 1}, "quantum 1");
  expect(run({1, true}) == std::vector<int>{1, 0, 1, 0}, "quantum 1, reverse");
  expect(run({0, true}) == std::vector<int>{1, 1, 0, 0}, "until blocked, reverse");
  set_default_schedule({7, true});
  expect(default_schedule().quantum == 7 && default_schedule().reverse, "the default is settable");
  set_default_schedule({});
}

void jump_in_wave_0(const Instruction& instruction, Wave& wave) {
  if (wave.index == 0) wave.pc = instruction.target;
}

void runaway_waves() {
  setenv("MHA_SINK_MAX_INSTRUCTIONS", "5000", 1);
  for (const uint32_t quantum : {64u, 0u}) {
    LaunchSpec spec = spec_of(3, 256);
    spec.schedule = {quantum, quantum == 0};  // run to block: wave 0 last, so that the others wait
    expect_throw<EmulationError>(
        [&] { launch(object(), kernel_of({nothing, jump_in_wave_0, barrier, end}), spec); },
        "deadlock, because waves waiting at s_barrier for this one: 1, 2, 3", "a deadlock");
    expect_throw<EmulationError>([&] { launch(object(), kernel_of({nothing, jump, end}), spec); },
                                 "not ended after 5000 instructions", "an endless loop");
  }
  setenv("MHA_SINK_MAX_INSTRUCTIONS", "many", 1);
  expect_throw<EmulationError>([&] { launch(object(), kernel_of({end}), spec_of(1, 64)); },
                               "MHA_SINK_MAX_INSTRUCTIONS=many", "a limit that is no number");
  unsetenv("MHA_SINK_MAX_INSTRUCTIONS");
  expect_throw<EmulationError>([&] { launch(object(), kernel_of({nothing}), spec_of(1, 64)); },
                               "past the end", "a program without an end");
  expect_throw<EmulationError>(
      [&] { launch(object(), kernel_of({nothing, nullptr, end}), spec_of(1, 64)); },
      "does not implement s_nop", "an instruction without handler");
}

std::atomic<int> executed{0};
void count(const Instruction&, Wave&) { ++executed; }
void fail_in_workgroup_40(const Instruction&, Wave& wave) {
  if (wave.workgroup->id[0] == 40 && wave.index == 1) throw EmulationError("planted fault");
}

void errors_of_workers() {
  set_thread_count(4);
  try {
    launch(object(), kernel_of({fail_in_workgroup_40, end}), spec_of(1000, 128));
    expect(false, "a fault in a worker reaches the caller");
  } catch (const EmulationError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"kernel planted", "s_nop", "at 0x0", "workgroup (40, 0, 0)", "wave 1", "planted fault"}) {
      expect(text.find(part) != std::string::npos, text + " names " + part);
    }
  }
  executed = 0;
  launch(object(), kernel_of({count, end}), spec_of(1000, 128));
  expect(executed == 2000, "the workers live on after a fault");
}

void concurrent_launches() {
  executed = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([] {
      for (int round = 0; round < 20; ++round) {
        launch(object(), kernel_of({count, end}), spec_of(50, 64));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  expect(executed == 3 * 20 * 50, "launches from several threads at once");
}

void fork_then_launch() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that waits for threads it does not have must not hang the test
    executed = 0;
    try {
      launch(object(), kernel_of({count, end}), spec_of(500, 64));
    } catch (...) {
      _exit(2);
    }
    _exit(executed == 500 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child launches");
}

std::atomic<int> rounding{-1};
void note_rounding(const Instruction&, Wave&) { rounding = std::fegetround(); }

void float_environment() {
  std::fesetround(FE_DOWNWARD);
  launch(object(), kernel_of({note_rounding, end}), spec_of(1, 64));
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  expect(rounding == FE_TONEAREST && after == FE_DOWNWARD,
         "a launch neither sees nor changes the caller's rounding");
}

void refusals() {
  const auto refused = [](Kernel kernel, LaunchSpec spec, const char* part) {
    expect_throw<EmulationError>([&] { launch(object(), kernel, spec); }, part, part);
  };
  const Kernel kernel = kernel_of({end});
  refused(kernel, spec_of(1, 1025), "workgroup size (1025, 1, 1)");
  refused(kernel, spec_of(1, 0), "workgroup size (0, 1, 1)");
  refused(kernel, spec_of(0, 64), "grid of (0, 1, 1)");
  refused(kernel, spec_of(UINT32_MAX, 64), "grid of (4294967295, 1, 1)");
  LaunchSpec lds = spec_of(1, 64);
  lds.dynamic_lds_bytes = 160 * 1024 + 1;
  refused(kernel, lds, "163841 bytes of LDS");
  Kernel with_arguments = kernel;
  with_arguments.kernarg_bytes = 16;
  with_arguments.arguments = {{"p", "by_value", 0, 16}};
  refused(with_arguments, spec_of(1, 64), "arguments of 0 bytes given, 16 needed");
  with_arguments.arguments = {{"", "hidden_surprise", 0, 8}};
  refused(with_arguments, spec_of(1, 64), "hidden_surprise");
  Kernel changed = kernel;
  changed.properties |= 1;
  refused(changed, spec_of(1, 64), "private segment buffer");
  changed = kernel;
  changed.properties |= 1 << 10;
  refused(changed, spec_of(1, 64), "wave32");
  changed = kernel;
  changed.properties |= 1 << 1;
  refused(changed, spec_of(1, 64), "declares 2 user SGPRs");
  changed = kernel;
  changed.scratch_bytes = 64 * 1024 + 1;
  refused(changed, spec_of(1, 64), "65537 bytes of scratch a lane");
  changed = kernel;
  changed.kernarg_bytes = 64 * 1024 + 1;
  refused(changed, spec_of(1, 64), "65537 bytes of kernel arguments");
  changed = kernel;
  changed.mode.round = 3;
  refused(changed, spec_of(1, 64), "rounding mode 3");
  expect_throw<EmulationError>([] { set_thread_count(0); }, "thread count 0", "no threads");
}

void device() {
  const KernelBinary& binary = embedded_kernel("mha_reduce_d_sink");
  constexpr int kBatch = 2, kHeads = 3, kTiles = 300;
  std::vector<float> partial(kBatch * kHeads * kTiles), d_sink(kHeads, 100.0f);
  for (size_t i = 0; i < partial.size(); ++i) partial[i] = static_cast<float>(i % 17);
  const mha::ReduceDSinkParams params{.partial = partial.data(),
                                      .sequences = nullptr,
                                      .d_sink = d_sink.data(),
                                      .entry_stride = 0,
                                      .nhead_stride = kTiles,
                                      .row_stride = kHeads * kTiles,
                                      .rows = kBatch,
                                      .tiles = kTiles,
                                      .nhead_q = kHeads};
  const LaunchDims dims{{kHeads, 1, 1}, {256, 1, 1}};
  BufferRange buffers[] = {{partial.data(), partial.size() * 4, false, "partial"},
                           {d_sink.data(), d_sink.size() * 4, true, "d_sink"}};
  const auto arguments = std::as_bytes(std::span(&params, 1));
  {
    const ProfileSession session;
    emulated_device().launch(binary, dims, arguments, buffers, nullptr);
    emulated_device().synchronize(nullptr);
    const auto kernels = session.kernels();
    if (expect(kernels.size() == 1 && kernels.begin()->first == binary.name, "one kernel ran")) {
      const KernelProfile& profile = kernels.begin()->second;
      const auto sum = [](uint64_t total, const auto& entry) { return total + entry.second; };
      expect(profile.launches == 1 && profile.wave_instructions > 100, "profile of one launch");
      for (const auto* counts : {&profile.by_class, &profile.by_mnemonic}) {
        expect(std::accumulate(counts->begin(), counts->end(), uint64_t{0}, sum) ==
                   profile.wave_instructions,
               "a profile's parts sum to its whole");
      }
      expect(profile.by_mnemonic.count("s_endpgm") == 1, "mnemonics are counted");
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    float wanted = 100.0f;
    for (int batch = 0; batch < kBatch; ++batch) {
      for (int tile = 0; tile < kTiles; ++tile) {
        wanted += partial[(batch * kHeads + head) * kTiles + tile];
      }
    }
    expect(d_sink[head] == wanted, "the device's result, exact in fp32");
  }

  buffers[0].bytes = 64;
  expect_throw<Error>([&] { emulated_device().launch(binary, dims, arguments, buffers, nullptr); },
                      "bytes past the end of partial", "an access outside of the buffers");
  buffers[0] = {nullptr, 64, false, "partial"};
  expect_throw<Error>([&] { emulated_device().launch(binary, dims, arguments, buffers, nullptr); },
                      "buffer partial of 64 bytes is null", "a null buffer");
  expect_throw<Error>(
      [&] { emulated_device().launch(binary, dims, arguments.first(8), {}, nullptr); },
      "arguments of 8 bytes given", "short arguments");
  const std::vector<uint8_t> broken(binary.object.begin(), binary.object.begin() + 200);
  expect_throw<Error>(
      [&] { emulated_device().launch({binary.name, broken}, dims, arguments, {}, nullptr); },
      binary.name, "a truncated code object");
  expect_throw<Error>([] { emulated_device().memset(nullptr, 0, 8, nullptr); }, "null",
                      "memset of nothing");
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  initial_state();
  barriers();
  schedules();
  runaway_waves();
  errors_of_workers();
  concurrent_launches();
  fork_then_launch();
  float_environment();
  refusals();
  device();
  return summary();
}
