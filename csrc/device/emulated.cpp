#include "device/emulated.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/launch.h"
#include "emulator/sanitizer.h"
#include "mha_sink/error.h"

namespace mha_sink {
namespace {

using Profiles = std::map<std::string, KernelProfile>;

struct LoadedKernel {
  std::vector<uint8_t> bytes;  // what was loaded, to notice another object of the same name
  emulator::CodeObject object;
  const emulator::Kernel& kernel;

  explicit LoadedKernel(const KernelBinary& binary)
      : bytes(binary.object.begin(), binary.object.end()),
        object(bytes, binary.name),
        kernel(object.kernel(binary.name)) {}
};

// Guards what follows. Held across fork, so that a child never inherits it locked by another
// thread.
std::mutex mutex;
std::map<std::string, std::shared_ptr<const LoadedKernel>, std::less<>> loaded_kernels;
std::vector<std::shared_ptr<Profiles>> sessions;
int sessions_with_accesses = 0;

const int fork_handlers_registered =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

std::shared_ptr<const LoadedKernel> loaded_kernel(const KernelBinary& binary) {
  if (fork_handlers_registered != 0) throw Error("pthread_atfork failed: out of memory");
  const std::lock_guard lock(mutex);
  std::shared_ptr<const LoadedKernel>& loaded = loaded_kernels[binary.name];
  if (!loaded || !std::ranges::equal(loaded->bytes, binary.object)) {
    loaded = std::make_shared<const LoadedKernel>(binary);
  }
  return loaded;
}

enum class Profiling { none, executions, accesses };

Profiling profiling() {
  const std::lock_guard lock(mutex);
  if (sessions.empty()) return Profiling::none;
  return sessions_with_accesses > 0 ? Profiling::accesses : Profiling::executions;
}

KernelProfile summarize(const emulator::Kernel& kernel, const LaunchDims& dims,
                        const emulator::Profile& profile) {
  KernelProfile launch;
  launch.launches = 1;
  launch.wave_instructions = profile.wave_instructions;
  launch.executions = profile.executions;
  launch.workgroups = launch.work_items = 1;
  for (int axis = 0; axis < 3; ++axis) {
    launch.workgroups *= dims.workgroups[axis];
    launch.work_items *= uint64_t{dims.workgroups[axis]} * dims.workgroup_size[axis];
  }
  for (size_t i = 0; i < profile.executions.size(); ++i) {
    if (profile.executions[i] == 0) continue;
    const emulator::Op op = kernel.program[i].op;
    launch.by_class[std::string(to_string(emulator::classify(op)))] += profile.executions[i];
    launch.by_mnemonic[std::string(emulator::mnemonic(op))] += profile.executions[i];
  }
  return launch;
}

void add_to_sessions(const std::string& kernel, const KernelProfile& launch) {
  const std::lock_guard lock(mutex);
  for (const auto& session : sessions) {
    KernelProfile& total = (*session)[kernel];
    total.launches += launch.launches;
    total.wave_instructions += launch.wave_instructions;
    total.workgroups += launch.workgroups;
    total.work_items += launch.work_items;
    for (const auto& [name, count] : launch.by_class) total.by_class[name] += count;
    for (const auto& [name, count] : launch.by_mnemonic) total.by_mnemonic[name] += count;
    total.executions.resize(std::max(total.executions.size(), launch.executions.size()));
    for (size_t i = 0; i < launch.executions.size(); ++i) {
      total.executions[i] += launch.executions[i];
    }
    if (!launch.accesses) continue;
    if (!total.accesses) total.accesses.emplace();
    *total.accesses += *launch.accesses;
  }
}

using Clock = std::chrono::steady_clock;

class EmulatedDevice final : public Device {
 public:
  std::string name() const override { return "emulated gfx950"; }

  void load(const KernelBinary& binary, Stream) override {
    try {
      loaded_kernel(binary);
    } catch (const std::exception& error) {
      fail(binary, error);
    }
  }

  void launch(const KernelBinary& binary, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream) override {
    try {
      const std::shared_ptr<const LoadedKernel> loaded = loaded_kernel(binary);
      std::vector<emulator::MemoryRange> memory;
      for (const BufferRange& buffer : buffers) {
        if (buffer.bytes == 0) continue;
        if (buffer.data == nullptr) {
          throw Error("buffer " + std::string(buffer.name) + " of " + std::to_string(buffer.bytes) +
                      " bytes is null");
        }
        memory.push_back(
            {reinterpret_cast<uintptr_t>(buffer.data), buffer.bytes, buffer.writable, buffer.name});
      }
      emulator::Profile profile;
      emulator::LaunchSpec spec;
      std::copy_n(dims.workgroups, 3, spec.workgroups.begin());
      std::copy_n(dims.workgroup_size, 3, spec.workgroup_size.begin());
      spec.arguments = arguments;
      spec.memory = memory;
      spec.schedule = emulator::default_schedule();
      spec.sanitize = emulator::default_checks();
      const Profiling profiled = profiling();
      if (profiled != Profiling::none) spec.profile = &profile;
      std::optional<emulator::AccessCounter> counter;
      std::vector<emulator::ObserverFactory> observers;
      if (profiled == Profiling::accesses) {
        observers.push_back(counter.emplace(loaded->kernel, memory).observers());
        spec.observers = observers;
      }
      emulator::launch(loaded->object, loaded->kernel, spec);
      if (profiled == Profiling::none) return;
      KernelProfile launched = summarize(loaded->kernel, dims, profile);
      if (counter) launched.accesses = counter->counts();
      add_to_sessions(loaded->kernel.name, launched);
    } catch (const std::exception& error) {
      fail(binary, error);
    }
  }

  void memset(void* data, int value, size_t bytes, Stream) override {
    if (bytes == 0) return;
    if (data == nullptr) {
      throw Error("memset of " + std::to_string(bytes) + " bytes at null");
    }
    std::memset(data, value, bytes);
  }

  // Launches return when they have run.
  void synchronize(Stream) override {}

  void copy(void* to, const void* from, size_t bytes, Stream) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }

  void* allocate(size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void free(void* data) override { ::operator delete(data, kAlignment); }

  Event record(Stream) override { return std::make_shared<Clock::time_point>(Clock::now()); }

  float milliseconds(const Event& begin, const Event& end) override {
    const auto time = [](const Event& event) {
      return *static_cast<Clock::time_point*>(event.get());
    };
    return std::chrono::duration<float, std::milli>(time(end) - time(begin)).count();
  }

 private:
  // What hipMalloc gives at least.
  static constexpr std::align_val_t kAlignment{256};

  [[noreturn]] void fail(const KernelBinary& binary, const std::exception& error) const {
    throw Error("kernel " + std::string(binary.name) + " failed on the " + name() + ": " +
                error.what());
  }
};

}  // namespace

ProfileSession::ProfileSession(bool accesses)
    : kernels_(std::make_shared<Profiles>()), accesses_(accesses) {
  const std::lock_guard lock(mutex);
  sessions.push_back(kernels_);
  sessions_with_accesses += accesses_;
}

ProfileSession::~ProfileSession() {
  const std::lock_guard lock(mutex);
  std::erase(sessions, kernels_);
  sessions_with_accesses -= accesses_;
}

Profiles ProfileSession::kernels() const {
  const std::lock_guard lock(mutex);
  return *kernels_;
}

Device& emulated_device() {
  static EmulatedDevice device;
  return device;
}

}  // namespace mha_sink
