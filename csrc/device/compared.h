// Every launch on a device beside the same launch in the emulator, from the same memory contents.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "device/proxy.h"

namespace mha_sink {

struct ComparedBuffer {
  std::string name;  // as BufferRange
  bool writable;
  std::vector<std::byte> device, emulated;  // after the launch
};

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // Before the device gets the launch: a GPU that faults ends the process.
  virtual void starting(const std::string& kernel) = 0;
  // `kernel` is "memset" for a memset, which has one buffer.
  virtual void compared(const std::string& kernel, const LaunchDims& dims,
                        std::span<const ComparedBuffer> buffers) = 0;
};

// Waits for each launch. Both sides of a launch start from what the device holds, so a difference
// belongs to its kernel and not to an earlier one. The buffers of a launch must not overlap, and
// its arguments must hold their addresses.
class ComparedDevice final : public DeviceProxy {
 public:
  ComparedDevice(Device& device, LaunchObserver& observer)
      : DeviceProxy(device), observer_(observer) {}

  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream stream) override;
  void memset(void* data, int value, size_t bytes, Stream stream) override;

 private:
  LaunchObserver& observer_;
};

}  // namespace mha_sink
