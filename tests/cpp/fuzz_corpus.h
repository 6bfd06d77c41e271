// What the fuzzer starts from: the library's own kernels with the launches that mha_bwd makes of
// them, and the arguments of whole calls.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "attention.h"
#include "device/proxy.h"
#include "emulator/memory_map.h"
#include "host/kernel_registry.h"
#include "host/kernel_table.h"
#include "mha_sink/sparse_mla.h"
#include "sparse_mla.h"

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
    for (const HeadDimKernels& kernels : kHeadDimKernels) {
      // Two heads a KV head, more rows than one tile of either kind holds, and a diagonal.
      const auto hdim = static_cast<int>(kernels.hdim_q);
      record(problems_.emplace_back(1, 2, 1, 70, 75, hdim, true), kernels);
    }
    for (const char* data_type : {"bf16", "fp16"}) {
      for (int heads : {12, 20, 64, 128}) {
        record(sparse_problems_.emplace_back(2, heads, 9, 40), data_type);
      }
    }
    for (const KernelBinary& kernel : embedded_kernels()) {
      bool launched = false;
      for (const RecordedLaunch& launch : launches_) launched |= launch.kernel == kernel.name;
      expect(launched, std::string("the corpus launches ") + kernel.name);
    }
    add_lined_objects();
    for (const RecordedLaunch& launch : launches_) {
      for (const emulator::MemoryRange& buffer : launch.buffers) {
        if (buffer.bytes == 0) continue;  // at no address perhaps
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
    if (bytes == 0) return true;
    const auto& [start, saved] = *std::prev(saved_.upper_bound(begin));
    return std::memcmp(reinterpret_cast<const void*>(begin), saved.data() + (begin - start),
                       bytes) == 0;
  }

 private:
  // The launches of kernels that the build compiled with line tables too, with those objects.
  void add_lined_objects() {
    std::stringstream paths(MHA_SINK_LINED_OBJECTS);
    for (std::string path; std::getline(paths, path, ',');) {
      std::ifstream file(path, std::ios::binary);
      const std::vector<uint8_t> object{std::istreambuf_iterator<char>(file), {}};
      const std::string kernel = std::filesystem::path(path).stem().stem().string();
      bool launched = false;
      for (size_t i = 0, count = launches_.size(); i < count; ++i) {
        if (launches_[i].kernel != kernel) continue;
        launches_.push_back(launches_[i]);
        launches_.back().object = object;
        launched = true;
      }
      expect(launched, "the corpus launches " + path);
    }
  }

  // As a batch by atomics, and packed and deterministic: every kernel is in one of them.
  void record(Attention& problem, const HeadDimKernels& kernels) {
    RecordingDevice device(launches_);
    stream_config stream;
    stream.device_ = &device;
    mha_bwd_args args = problem.args();
    args.data_type = kernels.data_type;
    args.hdim_v = static_cast<int>(kernels.hdim_v);
    args.workspace_alloc = [this](size_t bytes, bool) -> void* {
      return workspaces_.emplace_back(bytes).data();
    };
    mha_bwd(args, stream);
    args.is_deterministic = args.is_group_mode = true;
    args.seqstart_q_ptr = starts_q_.data(), args.seqstart_k_ptr = starts_k_.data();
    mha_bwd(args, stream);
  }

  void record(SparseMla& problem, const char* data_type) {
    RecordingDevice device(launches_);
    stream_config stream;
    stream.device_ = &device;
    const auto workspace = [this](size_t bytes, bool) -> void* {
      return workspaces_.emplace_back(bytes).data();
    };
    sparse_mla_fwd_args forward = problem.forward();
    forward.data_type = data_type;
    forward.workspace_alloc = workspace;
    sparse_mla_fwd(forward, stream);
    sparse_mla_bwd_args backward = problem.backward();
    backward.data_type = data_type;
    backward.workspace_alloc = workspace;
    sparse_mla_bwd(backward, stream);
  }

  std::array<int32_t, 2> starts_q_ = {0, 70}, starts_k_ = {0, 75};
  std::list<SparseMla> sparse_problems_;
  std::list<Attention> problems_;  // lists: the launches refer to their elements' memory
  std::list<std::vector<std::byte>> workspaces_;
  std::vector<RecordedLaunch> launches_;
  std::map<uintptr_t, std::vector<uint8_t>> saved_;
};

}  // namespace mha_sink::test
