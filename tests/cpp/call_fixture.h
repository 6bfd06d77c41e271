// What tests of the C++ calls hand in: a device and a workspace that remember.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "device/proxy.h"
#include "mha_sink/device.h"

namespace mha_sink::test {

// Counts what reaches the emulated device; the host code does not take its memory for its own.
class CountingDevice : public DeviceProxy {
 public:
  CountingDevice() : DeviceProxy(emulated_device()) {}
  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream stream) override {
    ++calls;
    DeviceProxy::launch(kernel, dims, arguments, buffers, stream);
  }
  void memset(void* data, int value, size_t bytes, Stream stream) override {
    ++calls;
    DeviceProxy::memset(data, value, bytes, stream);
  }

  int calls = 0;  // launches and memsets
};

// A workspace callback with a memory of its calls. Blocks start as NaN.
struct Workspace {
  std::function<void*(size_t, bool)> callback() {
    return [this](size_t bytes, bool zero_init) -> void* {
      ++calls;
      last_bytes = bytes;
      last_zero_init = zero_init;
      block.assign(bytes + kGuard, std::byte{0xff});
      return block.data();
    };
  }
  bool guard_untouched() const {
    for (size_t i = last_bytes; i < block.size(); ++i) {
      if (block[i] != std::byte{0xff}) return false;
    }
    return true;
  }

  static constexpr size_t kGuard = 4096;
  int calls = 0;
  size_t last_bytes = 0;
  bool last_zero_init = true;
  std::vector<std::byte> block;
};

}  // namespace mha_sink::test
