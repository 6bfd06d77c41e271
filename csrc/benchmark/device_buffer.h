// Memory on a device that lives as long as its owner.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "mha_sink/error.h"

namespace mha_sink::benchmark {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device& device, size_t bytes)
      : device_(&device), bytes_(bytes), data_(bytes == 0 ? nullptr : device.allocate(bytes)) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) device_->free(data_);
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Every 16- and 32-bit float of it becomes NaN.
  void poison() { device_->memset(data_, 0xff, bytes_, nullptr); }

  template <class T>
  void upload(const std::vector<T>& from) {
    device_->copy(data_, from.data(), bytes_, nullptr);
  }
  template <class T>
  void download(std::vector<T>& to) const {
    device_->copy(to.data(), data_, bytes_, nullptr);
  }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  Device* device_ = nullptr;
  size_t bytes_ = 0;
  void* data_ = nullptr;
};

template <class T>
DeviceBuffer uploaded(Device& device, const std::vector<T>& values) {
  DeviceBuffer buffer(device, values.size() * sizeof(T));
  buffer.upload(values);
  return buffer;
}

inline DeviceBuffer poisoned(Device& device, size_t bytes) {
  DeviceBuffer buffer(device, bytes);
  buffer.poison();
  return buffer;
}

// A workspace callback that gives the buffer, which must have just the size that is asked for.
inline std::function<void*(size_t bytes, bool zero_init)> as_announced(const DeviceBuffer& buffer) {
  return [&buffer](size_t bytes, bool) {
    if (bytes != buffer.bytes()) {
      throw Error("the call asks for a workspace of " + std::to_string(bytes) +
                  " bytes where the launcher announced " + std::to_string(buffer.bytes()));
    }
    return buffer.data();
  };
}

}  // namespace mha_sink::benchmark
