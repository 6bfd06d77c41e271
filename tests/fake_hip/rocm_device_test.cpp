// The ROCm device on a fake HIP runtime of two GPUs. Each case runs in a process of its own,
// because a process keeps the runtime that it found.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention.h"
#include "check.h"
#include "device/device.h"
#include "device/rocm_api.h"
#include "hip/mha/params.h"
#include "host/kernel_registry.h"
#include "mha_sink/error.h"
#include "mha_sink/mha_bwd.h"

namespace mha_sink::test {
namespace {

// The fake, as a program that loaded HIP before us sees it: by its symbols.
class Fake {
 public:
  explicit Fake(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw Error(dlerror());
  }

  template <class Result = int, class... Arguments>
  Result call(const char* symbol, Arguments... arguments) const {
    auto* function = reinterpret_cast<Result (*)(Arguments...)>(dlsym(handle_, symbol));
    if (function == nullptr) throw Error(std::string("the fake lacks ") + symbol);
    return function(arguments...);
  }

  int calls(const char* function) const { return call("fake_hip_calls", function); }
  void fail(const char* function, int nth, int status) const {
    call<void>("fake_hip_fail", function, nth, status);
  }
  int pending(Stream stream) const { return call("fake_hip_pending", stream); }
  int current_device() const {
    int device = -1;
    call("hipGetDevice", &device);
    return device;
  }
  // Created on the current device.
  Stream stream_of(int device) const {
    const int before = current_device();
    Stream stream = nullptr;
    call("hipSetDevice", device);
    call("hipStreamCreateWithFlags", &stream, 1u);
    call("hipSetDevice", before);
    return stream;
  }
  // Of a stream of that device.
  int on(int device, const char* symbol, auto... arguments) const {
    const int before = current_device();
    call("hipSetDevice", device);
    const int status = call(symbol, arguments...);
    call("hipSetDevice", before);
    return status;
  }

 private:
  void* handle_;
};

// An Attention whose tensors live on a GPU.
class AttentionOnGpu {
 public:
  AttentionOnGpu(Device& device, Stream stream)
      : device_(device), stream_(stream), host_(1, 2, 1, 70, 300, 64, true), args_(host_.args()) {
    move(args_.q_ptr, host_.q), move(args_.k_ptr, host_.k), move(args_.v_ptr, host_.v);
    move(args_.o_ptr, host_.out), move(args_.do_ptr, host_.dout);
    move(args_.lse_ptr, host_.lse), move(args_.sink_ptr, host_.sink);
    move(args_.d_ptr, host_.delta), move(args_.d_sink_ptr, host_.d_sink);
    move(args_.dq_ptr, host_.dq), move(args_.dk_ptr, host_.dk), move(args_.dv_ptr, host_.dv);
    args_.workspace_alloc = [this](size_t bytes, bool) { return workspace(bytes); };
    workspace(kWorkspaceBytes);
  }

  // Allocates nothing when it was called before, as a caching allocator.
  void* workspace(size_t bytes) {
    if (workspace_ == nullptr) {
      workspace_ = device_.allocate(bytes);
      device_.memset(workspace_, 0xff, bytes, stream_);
      device_.synchronize(stream_);
    }
    expect(bytes <= kWorkspaceBytes, "the workspace is large enough");
    return workspace_;
  }

  void poison() {
    host_.poison();
    for (const auto& tensor : tensors_) {
      if (tensor.writable) device_.copy(tensor.data, tensor.host, tensor.bytes, stream_);
    }
  }

  // Waits for the stream.
  void download() {
    for (const auto& tensor : tensors_) {
      if (tensor.writable) device_.copy(tensor.host, tensor.data, tensor.bytes, stream_);
    }
  }

  void expect_gradients(const std::string& what) {
    download();
    host_.expect_gradients(what);
  }

  const Attention& host() const { return host_; }
  mha_bwd_args& args() { return args_; }

 private:
  static constexpr size_t kWorkspaceBytes = 1 << 20;

  struct Tensor {
    void *data, *host;
    size_t bytes;
    bool writable;
  };

  template <class Pointer, class T>
  void move(Pointer*& pointer, std::vector<T>& host) {
    const size_t bytes = host.size() * sizeof(T);
    void* data = device_.allocate(bytes);
    device_.copy(data, host.data(), bytes, stream_);
    tensors_.push_back({data, host.data(), bytes, !std::is_const_v<Pointer>});
    pointer = data;
  }

  Device& device_;
  Stream stream_;
  Attention host_;
  mha_bwd_args args_;
  std::vector<Tensor> tensors_;
  void* workspace_ = nullptr;
};

stream_config on_stream(Stream stream) {
  stream_config config;
  config.stream_id_ = stream;
  return config;
}

void device_1_while_0_is_current(const Fake& fake) {
  AttentionOnGpu attention(rocm_device(1), nullptr);
  // No device is named: the tensors' memory decides.
  mha_bwd(attention.args(), {});
  expect(fake.current_device() == 0, "device 0 is current again");
  expect(fake.calls("hipModuleLaunchKernel") == 4, "four launches");
  expect(fake.pending(nullptr) == 0, "nothing on device 0's default stream");
  expect(fake.on(1, "fake_hip_pending", Stream{}) == 5, "all on device 1's default stream");
  attention.expect_gradients("device 1");
  expect(rocm_device(1).name().find("cuda:1") == 0, "the device's name");
}

void host_memory_is_emulated(const Fake& fake) {
  Attention attention(1, 2, 1, 17, 33, 64, false);
  std::vector<std::byte> block;
  mha_bwd_args args = attention.args();
  args.workspace_alloc = [&](size_t bytes, bool) {
    block.resize(bytes);
    return block.data();
  };
  mha_bwd(args, {});
  attention.expect_gradients("host memory beside a GPU");
  expect(fake.calls("hipModuleLaunchKernel") == 0, "nothing launched on a GPU");
  expect(fake.call("hipGetLastError") == 0, "asking about host memory leaves no error behind");
}

void side_stream(const Fake& fake) {
  const Stream stream = fake.stream_of(1);
  AttentionOnGpu attention(rocm_device(1), stream);
  mha_bwd(attention.args(), on_stream(stream));
  expect(fake.pending(stream) == 5, "four launches and a memset on the stream");
  expect(fake.on(1, "fake_hip_pending", Stream{}) == 0, "none elsewhere");
  expect(fake.calls("hipStreamSynchronize") == fake.calls("hipMemcpyAsync") + 1,
         "the call does not wait");
  attention.expect_gradients("side stream");
}

void capture(const Fake& fake) {
  const Stream stream = fake.stream_of(1);
  AttentionOnGpu attention(rocm_device(1), stream);
  warmup(rocm_device(1), stream);
  const int loads = fake.calls("hipModuleLoadData");
  expect(loads == static_cast<int>(embedded_kernels().size()), "every module loaded");

  expect(fake.on(1, "hipStreamBeginCapture", stream, 0) == 0, "capture begins");
  mha_bwd(attention.args(), on_stream(stream));
  void *graph = nullptr, *executable = nullptr;
  expect(fake.on(1, "hipStreamEndCapture", stream, &graph) == 0, "the capture is valid");
  expect(fake.calls("hipModuleLoadData") == loads, "nothing loaded again");
  expect(fake.pending(stream) == 0, "captured, not run");
  attention.download();
  expect(attention.host().untouched(), "nothing written while capturing");
  fake.on(1, "hipGraphInstantiate", &executable, graph, static_cast<void*>(nullptr),
          static_cast<char*>(nullptr), size_t{0});
  for (int replay = 0; replay < 2; ++replay) {
    attention.poison();
    fake.on(1, "hipGraphLaunch", executable, stream);
    attention.expect_gradients("replay " + std::to_string(replay));
  }
}

void capture_before_the_modules_are_loaded(const Fake& fake) {
  const Stream stream = fake.stream_of(0), other = fake.stream_of(0);
  AttentionOnGpu attention(rocm_device(0), stream);
  fake.call("hipStreamBeginCapture", stream, 0);
  expect_throw<Error>([&] { mha_bwd(attention.args(), on_stream(stream)); },
                      "mha_sink.warmup(device)", "a capture of the stream");
  expect_throw<Error>([&] { mha_bwd(attention.args(), {}); }, "hipErrorStreamCaptureImplicit",
                      "the default stream during a capture");
  expect(fake.calls("hipModuleLoadData") == 0, "no load was tried");
  void* graph = nullptr;
  expect(fake.call("hipStreamEndCapture", stream, &graph) == static_cast<int>(hip::Status::success),
         "a refusal on the captured stream leaves the capture valid");

  fake.call("hipStreamBeginCapture", stream, 0);
  expect_throw<Error>([&] { mha_bwd(attention.args(), on_stream(other)); },
                      "mha_sink.warmup(device)", "a capture of another stream");
  expect(fake.call("hipGetLastError") == 0, "no error left behind");
  fake.call("hipStreamEndCapture", stream, &graph);
  mha_bwd(attention.args(), on_stream(stream));
  attention.expect_gradients("after the refusals");
}

std::string error_of(mha_bwd_args& args, const stream_config& config) {
  try {
    mha_bwd(args, config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void failing_calls(const Fake& fake) {
  constexpr int kOutOfMemory = 2, kNoBinaryForGpu = 209, kNotFound = 500, kLaunchFailure = 719;
  AttentionOnGpu attention(rocm_device(1), nullptr);
  stream_config config;
  config.device_ = &rocm_device(1);
  struct Failure {
    const char* function;
    int nth, status;
    bool before_launches;
    std::vector<std::string> named;
  };
  // Each load succeeds once, so the first failures leave modules to load to the next.
  const Failure failures[] = {
      {"hipGetDevice", 1, kOutOfMemory, true, {"hipErrorOutOfMemory (2): out of memory"}},
      {"hipSetDevice", 1, kOutOfMemory, true, {"hipErrorOutOfMemory"}},
      {"hipStreamIsCapturing", 1, kOutOfMemory, true, {"hipErrorOutOfMemory", "cuda:1"}},
      {"hipModuleLoadData",
       2,
       kNoBinaryForGpu,
       true,
       {"hipErrorNoBinaryForGpu (209): no kernel image is available", "mha_dq_dk_dv_bf16_hd64",
        "cuda:1 (Fake MI350X)"}},
      {"hipModuleGetFunction",
       1,
       kNotFound,
       true,
       {"hipErrorNotFound (500)", "mha_dq_dk_dv_bf16_hd64", "cuda:1"}},
      {"hipModuleLaunchKernel",
       1,
       kLaunchFailure,
       true,
       {"mha_dot_do_o", "hipErrorLaunchFailure (719): unspecified launch failure", "cuda:1"}},
      {"hipMemsetAsync", 1, kOutOfMemory, false, {"hipErrorOutOfMemory", "bytes", "cuda:1"}},
      {"hipModuleLaunchKernel", 2, kLaunchFailure, false, {"mha_dq_dk_dv_bf16_hd64"}},
      {"hipModuleLaunchKernel", 3, kLaunchFailure, false, {"mha_convert_dq"}},
      {"hipModuleLaunchKernel", 4, kLaunchFailure, false, {"mha_reduce_d_sink"}},
  };
  for (const auto& [function, nth, status, before_launches, named] : failures) {
    const std::string what = std::string(function) + " " + std::to_string(nth);
    rocm_device(1).synchronize(nullptr);
    fake.fail(function, nth, status);
    const std::string message = error_of(attention.args(), config);
    expect(message.find(function) != std::string::npos, what + ": \"" + message + "\"");
    for (const std::string& part : named) {
      expect(message.find(part) != std::string::npos,
             what + ": \"" + message + "\" does not name \"" + part + "\"");
    }
    expect(fake.current_device() == 0, what + ": device 0 is current again");
    expect(fake.call("hipGetLastError") == 0, what + ": no error left behind");
    if (before_launches) {
      expect(fake.on(1, "fake_hip_pending", Stream{}) == 0, what + ": nothing launched");
    }
  }
  rocm_device(1).synchronize(nullptr);
  attention.poison();
  mha_bwd(attention.args(), config);
  attention.expect_gradients("after the failures");
}

// The fake refuses what the metadata does not allow, so a wrong packing cannot pass.
void wrong_arguments(const Fake& fake) {
  const KernelBinary& kernel = embedded_kernel("mha_reduce_d_sink");
  const LaunchDims dims{{1, 1, 1}, {256, 1, 1}};
  constexpr size_t kBytes = sizeof(mha::ReduceDSinkParams);
  for (size_t bytes : {size_t{16}, kBytes - 8, kBytes + 8, kBytes + 16}) {
    const std::vector<std::byte> arguments(bytes);
    expect_throw<Error>([&] { rocm_device(0).launch(kernel, dims, arguments, {}, nullptr); },
                        "mha_reduce_d_sink", std::to_string(bytes) + " bytes of arguments");
    expect(std::string(fake.call<const char*>("fake_hip_message"))
                   .find("end at " + std::to_string(kBytes)) != std::string::npos,
           "the fake names the size");
  }
  // Null pointers: the kernel faults when it runs, and the wait for it says so.
  const std::vector<std::byte> nulls(kBytes);
  rocm_device(0).launch(kernel, dims, nulls, {}, nullptr);
  float* host_only = new float[4]();
  mha::ReduceDSinkParams params{};
  params.partial = params.d_sink = host_only;
  params.rows = params.tiles = params.nhead_q = 1;
  rocm_device(0).launch(kernel, dims, std::as_bytes(std::span(&params, 1)), {}, nullptr);
  expect_throw<Error>([] { rocm_device(0).synchronize(nullptr); }, "hipErrorLaunchFailure",
                      "a kernel that reads the host's memory");
  delete[] host_only;
}

void timed(const Fake& fake) {
  const Stream stream = fake.stream_of(1);
  AttentionOnGpu attention(rocm_device(1), stream);
  for (bool events : {true, false}) {
    attention.poison();
    stream_config config = on_stream(stream);
    config.time_kernel_ = true;
    config.cold_niters_ = 1;
    config.nrepeat_ = 2;
    config.is_gpu_timer_ = events;
    expect(mha_bwd(attention.args(), config) > 0, "milliseconds");
    attention.expect_gradients(events ? "timed by events" : "timed by the host");
  }
  expect(fake.calls("hipEventRecord") == 2 && fake.calls("hipEventDestroy") == 2, "two events");
}

void two_threads_two_devices(const Fake& fake) {
  std::vector<std::jthread> threads;
  for (int index : {0, 1}) {
    threads.emplace_back([&fake, index] {
      const Stream stream = fake.stream_of(index);
      AttentionOnGpu attention(rocm_device(index), stream);
      for (int repeat = 0; repeat < 3; ++repeat) {
        attention.poison();
        mha_bwd(attention.args(), on_stream(stream));
        attention.expect_gradients("thread of device " + std::to_string(index));
      }
    });
  }
  threads.clear();
  expect(fake.calls("hipModuleLoadData") == 8, "four modules a device");
}

void no_devices(const Fake& fake) {
  fake.call<void>("fake_hip_set_device_count", 0);
  expect_throw<Error>([] { rocm_device(0); }, "no ROCm device: hipGetDeviceCount", "no devices");
  expect(fake.call("hipGetLastError") == 0, "no error left behind");
  host_memory_is_emulated(fake);
  fake.call<void>("fake_hip_set_device_count", 1);
  rocm_device(0);
  expect_throw<Error>([] { rocm_device(1); }, "index 1 given", "one device");
}

void no_runtime() {
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so"}) {
    if (dlopen(name, RTLD_NOW) != nullptr) {
      std::printf("no_runtime skipped: %s is installed\n", name);
      return;
    }
  }
  expect_throw<Error>([] { rocm_device(0); },
                      "no ROCm device: no HIP runtime is loaded or installed (libamdhip64.so.7",
                      "no runtime");
  static const int host = 0;
  expect(&device_of(&host) == &emulated_device(), "host memory is emulated");
}

void two_runtimes(const std::string& path) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("mha_sink_two_runtimes_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string copy = folder / "libamdhip64-1234abcd.so.7";
  std::filesystem::copy_file(path, copy);
  {
    const Fake first(path), second(copy);
    expect_throw<Error>([] { rocm_device(0); }, copy, "two runtimes, the copy");
    expect_throw<Error>([] { rocm_device(0); }, path, "two runtimes, the original");
    static const int host = 0;
    expect_throw<Error>([] { device_of(&host); }, "2 HIP runtimes", "two runtimes, by address");
  }
  std::filesystem::remove_all(folder);
}

// A name that repair tools give a bundled copy.
void mangled_name(const std::string& path) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("mha_sink_mangled_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string copy = folder / "libamdhip64-1234abcd.so.7";
  std::filesystem::copy_file(path, copy);
  const Fake fake(copy);
  std::filesystem::remove_all(folder);
  device_1_while_0_is_current(fake);
}

void in_child(const char* name, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    failures() = 0;
    try {
      body();
    } catch (const std::exception& error) {
      expect(false, error.what());
    }
    std::fflush(nullptr);
    _exit(failures() == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, std::string("case ") + name);
}

}  // namespace
}  // namespace mha_sink::test

int main(int argc, char** argv) {
  using namespace mha_sink::test;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s libamdhip64.so.7 of tests/fake_hip\n", argv[0]);
    return 2;
  }
  const std::string path = argv[1];
  const std::pair<const char*, void (*)(const Fake&)> cases[] = {
      {"device_1_while_0_is_current", device_1_while_0_is_current},
      {"host_memory_is_emulated", host_memory_is_emulated},
      {"side_stream", side_stream},
      {"capture", capture},
      {"capture_before_the_modules_are_loaded", capture_before_the_modules_are_loaded},
      {"failing_calls", failing_calls},
      {"wrong_arguments", wrong_arguments},
      {"timed", timed},
      {"two_threads_two_devices", two_threads_two_devices},
      {"no_devices", no_devices}};
  for (const auto& [name, body] : cases) {
    in_child(name, [&] { body(Fake(path)); });
  }
  in_child("no_runtime", no_runtime);
  in_child("two_runtimes", [&] { two_runtimes(path); });
  in_child("mangled_name", [&] { mangled_name(path); });
  return summary();
}
