// Where kernels run. Host code sees this interface only; an implementation loads code objects,
// launches their kernels in stream order and moves memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mha_sink/device.h"

namespace mha_sink {

// A code object that the build embedded, and the single kernel that it holds.
struct KernelBinary {
  const char* name;                 // kernel symbol, unique in the library
  std::span<const uint8_t> object;  // AMDGPU ELF
};

// Memory that a launch may touch. The emulated device faults on any access outside; a GPU ignores
// it.
struct BufferRange {
  const void* data;
  size_t bytes;
  bool writable;
  const char* name;
};

struct LaunchDims {
  uint32_t workgroups[3];
  uint32_t workgroup_size[3];
};

// hipStream_t; null is the device's default stream. Of the device that it is passed to.
using Stream = void*;

// A point in a stream's work.
using Event = std::shared_ptr<void>;

// One GPU, or the emulator. Every failure is an Error that names the call, the kernel where there
// is one, and the device. A device lives as long as the process and serves any thread.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;

  // Makes a kernel ready to launch; free when it is. A GPU cannot do this while `stream` is being
  // captured into a graph: Error.
  virtual void load(const KernelBinary& kernel, Stream stream) = 0;
  // Enqueues one launch. `arguments` is the kernel's parameter struct, copied before this returns.
  virtual void launch(const KernelBinary& kernel, const LaunchDims& dims,
                      std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
                      Stream stream) = 0;
  virtual void memset(void* data, int value, size_t bytes, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;

  // Between any two of the device's and the host's memory, after what the stream holds; has
  // happened when it returns.
  virtual void copy(void* to, const void* from, size_t bytes, Stream stream) = 0;
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* data) = 0;

  virtual Event record(Stream stream) = 0;
  // From one event to a later one of the same stream; waits for it.
  virtual float milliseconds(const Event& begin, const Event& end) = 0;
};

}  // namespace mha_sink
