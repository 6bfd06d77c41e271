// Launches on one device and stream, named, logged and timed.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "device/device.h"
#include "host/checks.h"
#include "host/kernel_registry.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

class KernelLauncher {
 public:
  KernelLauncher(Device& device, const stream_config& config) : device_(device), config_(config) {
    if (config.time_kernel_ && config.nrepeat_ < 1) {
      checks::invalid("stream_config::nrepeat_", std::to_string(config.nrepeat_), "at least 1");
    }
  }

  Device& device() const { return device_; }
  Stream stream() const { return config_.stream_id_; }

  // A kernel that is missing or cannot be loaded must show before anything is launched.
  const KernelBinary& load(std::string_view name) const {
    const KernelBinary& kernel = embedded_kernel(name);
    device_.load(kernel, stream());
    return kernel;
  }

  // Grids with an empty dimension are no launch.
  template <class Params>
  void launch(const KernelBinary& kernel, const std::array<int64_t, 3>& grid, uint32_t threads,
              const Params& params, std::span<const BufferRange> buffers) const {
    LaunchDims dims{{}, {threads, 1, 1}};
    for (size_t axis = 0; axis < grid.size(); ++axis) {
      if (grid[axis] == 0) return;
      dims.workgroups[axis] = static_cast<uint32_t>(grid[axis]);
    }
    if (config_.log_level_ > 0) {
      std::fprintf(stderr, "mha_sink: %s grid %u x %u x %u\n", kernel.name, dims.workgroups[0],
                   dims.workgroups[1], dims.workgroups[2]);
    }
    device_.launch(kernel, dims, std::as_bytes(std::span(&params, 1)), buffers, stream());
  }

  void memset(const void* data, int value, int64_t bytes) const {
    if (bytes == 0) return;
    device_.memset(const_cast<void*>(data), value, static_cast<size_t>(bytes), stream());
  }

  // What mha_bwd returns: 0, or the mean milliseconds of the call's repeats. call(last) is told
  // which of them is the last.
  template <class Call>
  float run(Call&& call) const {
    if (!config_.time_kernel_) {
      call(true);
      return 0;
    }
    for (int i = 0; i < config_.cold_niters_; ++i) call(false);
    const auto repeat = [&] {
      for (int i = 0; i < config_.nrepeat_; ++i) call(i + 1 == config_.nrepeat_);
    };
    return (config_.is_gpu_timer_ ? device_milliseconds(repeat) : host_milliseconds(repeat)) /
           static_cast<float>(config_.nrepeat_);
  }

 private:
  template <class Call>
  float device_milliseconds(Call&& call) const {
    const Event begin = device_.record(stream());
    call();
    return device_.milliseconds(begin, device_.record(stream()));
  }

  template <class Call>
  float host_milliseconds(Call&& call) const {
    using Clock = std::chrono::steady_clock;
    device_.synchronize(stream());
    const Clock::time_point begin = Clock::now();
    call();
    device_.synchronize(stream());
    return std::chrono::duration<float, std::milli>(Clock::now() - begin).count();
  }

  Device& device_;
  const stream_config& config_;
};

}  // namespace mha_sink
