// What the fuzzer starts from: the library's own kernels with the launches that mha_bwd makes of
// them, and the arguments of whole calls.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "attention.h"
#include "device/proxy.h"
#include "emulator/memory_map.h"
#include "host/kernel_registry.h"
#include "host/kernel_table.h"

namespace mha_sink::test {

// A launch as the host made it. Buffers are the corpus's own.
struct RecordedLaunch {
  std::string kernel;
  std::vector<uint8_t> object;
  std::array<uint32_t, 3> workgroups, workgroup_size;
  std::vector<std::byte> arguments;
  std::vector<emulator::MemoryRange> buffers;
};

// The emulated device, remembering what it is asked to launch.
class RecordingDevice final : public DeviceProxy {
 public:
  explicit RecordingDevice(std::vector<RecordedLaunch>& launches)
      : DeviceProxy(emulated_device()), launches_(launches) {}

  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream stream) override {
    RecordedLaunch launch;
    launch.kernel = kernel.name;
    launch.object.assign(kernel.object.begin(), kernel.object.end());
    std::copy_n(dims.workgroups, 3, launch.workgroups.begin());
    std::copy_n(dims.workgroup_size, 3, launch.workgroup_size.begin());
    launch.arguments.assign(arguments.begin(), arguments.end());
    for (const BufferRange& buffer : buffers) {
      launch.buffers.push_back(
          {reinterpret_cast<uintptr_t>(buffer.data), buffer.bytes, buffer.writable, buffer.name});
    }
    launches_.push_back(std::move(launch));
    DeviceProxy::launch(kernel, dims, arguments, buffers, stream);
  }

 private:
  std::vector<RecordedLaunch>& launches_;
};

class Corpus {
 public:
  Corpus() {
    for (const DqDkDvKernel& kernel : kDqDkDvKernels) {
      // Two heads a KV head, more rows than one tile of either kind holds, and a diagonal.
      const auto hdim = static_cast<int>(kernel.hdim_q);
      record(problems_.emplace_back(1, 2, 1, 70, 75, hdim, true), kernel);
    }
    for (const KernelBinary& kernel : embedded_kernels()) {
      bool launched = false;
      for (const RecordedLaunch& launch : launches_) launched |= launch.kernel == kernel.name;
      expect(launched, std::string("the corpus launches ") + kernel.name);
    }
    for (const RecordedLaunch& launch : launches_) {
      for (const emulator::MemoryRange& buffer : launch.buffers) {
        const auto* data = reinterpret_cast<const uint8_t*>(buffer.begin);
        saved_[buffer.begin].assign(data, data + buffer.bytes);
      }
    }
  }

  const std::vector<RecordedLaunch>& launches() const { return launches_; }
  std::list<Attention>& problems() { return problems_; }

  // Every buffer as it was: a case depends on its seed alone.
  void restore() const {
    for (const auto& [begin, bytes] : saved_) {
      std::memcpy(reinterpret_cast<void*>(begin), bytes.data(), bytes.size());
    }
  }
  // Whether the bytes, of one buffer, are still as they were.
  bool unchanged(uintptr_t begin, size_t bytes) const {
    const auto& [start, saved] = *std::prev(saved_.upper_bound(begin));
    return std::memcmp(reinterpret_cast<const void*>(begin), saved.data() + (begin - start),
                       bytes) == 0;
  }

 private:
  void record(Attention& problem, const DqDkDvKernel& kernel) {
    RecordingDevice device(launches_);
    stream_config stream;
    stream.device_ = &device;
    mha_bwd_args args = problem.args();
    args.data_type = kernel.data_type;
    args.hdim_v = static_cast<int>(kernel.hdim_v);
    args.workspace_alloc = [this](size_t bytes, bool) -> void* {
      return workspaces_.emplace_back(bytes).data();
    };
    mha_bwd(args, stream);
  }

  std::list<Attention> problems_;  // lists: the launches refer to their elements' memory
  std::list<std::vector<std::byte>> workspaces_;
  std::vector<RecordedLaunch> launches_;
  std::map<uintptr_t, std::vector<uint8_t>> saved_;
};

}  // namespace mha_sink::test
