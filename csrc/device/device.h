// Where kernels run. Host code sees this interface only; an implementation loads code objects,
// launches their kernels in stream order and moves memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mha_sink {

// A code object that the build embedded, and the single kernel that it holds.
struct KernelBinary {
  const char* name;                // kernel symbol, unique in the library
  std::span<const uint8_t> object;  // AMDGPU ELF
};

// Memory that a launch may touch. The emulated device faults on any access outside; a GPU ignores it.
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

using Stream = void*;

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;

  // Enqueues one launch; loads the kernel's code object at its first use. `arguments` is the
  // kernel's parameter struct. Throws Error naming the kernel when it cannot be loaded or launched.
  virtual void launch(const KernelBinary& kernel, const LaunchDims& dims,
                      std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
                      Stream stream) = 0;
  virtual void memset(void* data, int value, size_t bytes, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;
};

// Runs the gfx950 code objects on this machine's processors; memory is the host's own.
Device& emulated_device();

}  // namespace mha_sink
