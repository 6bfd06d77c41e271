// Copies of host buffers in a device's memory, for calls that are compared with the emulator.
#pragma once

#include <cstddef>
#include <deque>

#include "device/device.h"
#include "host/run_mha_bwd.h"
#include "mha_sink/error.h"

namespace mha_sink {

class Uploads {
 public:
  explicit Uploads(Device& device) : device_(device) {}

  void* copy(const void* data, size_t bytes) {
    void* copied = allocate(bytes);
    device_.copy(copied, data, bytes, nullptr);
    return copied;
  }

  // A workspace that starts as NaN.
  WorkspaceAlloc workspace() {
    return [this](size_t bytes, bool) {
      void* data = allocate(bytes);
      device_.memset(data, 0xff, bytes, nullptr);
      return data;
    };
  }

 private:
  class Memory {
   public:
    Memory(Device& device, size_t bytes) : device_(device), data_(device.allocate(bytes)) {}
    ~Memory() {
      try {
        device_.free(data_);
      } catch (const Error&) {
        // After a failed kernel the runtime refuses every call; the first failure is the one to
        // tell.
      }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void* data() const { return data_; }

   private:
    Device& device_;
    void* data_;
  };

  void* allocate(size_t bytes) { return memory_.emplace_back(device_, bytes).data(); }

  Device& device_;
  std::deque<Memory> memory_;
};

}  // namespace mha_sink
