// A device that passes everything on to another: the base of those that watch what is run.
#pragma once

#include <span>
#include <string>

#include "device/device.h"

namespace mha_sink {

class DeviceProxy : public Device {
 public:
  explicit DeviceProxy(Device& target) : target_(target) {}

  std::string name() const override { return target_.name(); }
  void load(const KernelBinary& kernel, Stream stream) override { target_.load(kernel, stream); }
  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream stream) override {
    target_.launch(kernel, dims, arguments, buffers, stream);
  }
  void memset(void* data, int value, size_t bytes, Stream stream) override {
    target_.memset(data, value, bytes, stream);
  }
  void synchronize(Stream stream) override { target_.synchronize(stream); }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    target_.copy(to, from, bytes, stream);
  }
  void* allocate(size_t bytes) override { return target_.allocate(bytes); }
  void free(void* data) override { target_.free(data); }
  Event record(Stream stream) override { return target_.record(stream); }
  float milliseconds(const Event& begin, const Event& end) override {
    return target_.milliseconds(begin, end);
  }

 protected:
  Device& target_;
};

}  // namespace mha_sink
