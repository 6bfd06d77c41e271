// A device whose launches somebody else takes: to list them, or to model some of their workgroups.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "device/proxy.h"

namespace mha_sink {

// Everything but launches and memsets happens on the target.
class InterceptedDevice final : public DeviceProxy {
 public:
  using OnLaunch = std::function<void(const KernelBinary&, const LaunchDims&,
                                      std::span<const std::byte>, std::span<const BufferRange>)>;
  using OnMemset = std::function<void(void* data, size_t bytes)>;

  InterceptedDevice(Device& target, OnLaunch on_launch, OnMemset on_memset)
      : DeviceProxy(target), on_launch_(std::move(on_launch)), on_memset_(std::move(on_memset)) {}

  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream) override {
    on_launch_(kernel, dims, arguments, buffers);
  }
  void memset(void* data, int, size_t bytes, Stream) override { on_memset_(data, bytes); }

 private:
  OnLaunch on_launch_;
  OnMemset on_memset_;
};

}  // namespace mha_sink
