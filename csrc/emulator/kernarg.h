// What a kernel finds in memory and scalar registers when it starts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/launch.h"

namespace mha_sink::emulator {

// The kernarg segment: the caller's explicit arguments and the hidden ones of code object v5,
// filled as the HSA runtime would. Throws EmulationError when the arguments do not fit the kernel.
class KernargSegment {
 public:
  KernargSegment(const Kernel& kernel, const LaunchSpec& spec);

  const uint8_t* data() const { return data_; }
  // Readable by the kernel: the compiler rounds scalar loads up, so the segment's last cache line.
  MemoryRange range() const;
  uint32_t dword(size_t index) const;

 private:
  std::vector<uint8_t> storage_;
  uint8_t* data_ = nullptr;  // aligned to kAlignment in storage_
  size_t bytes_ = 0;         // a multiple of kAlignment
};

// The AQL kernel dispatch packet that a dispatch pointer refers to (HSA 1.2, section 2.9.6), and a
// zeroed queue descriptor.
class DispatchPacket {
 public:
  DispatchPacket(const Kernel& kernel, const LaunchSpec& spec, const KernargSegment& kernarg);
  MemoryRange range() const;
  uint64_t dispatch_address() const;
  uint64_t queue_address() const;

 private:
  std::vector<uint64_t> storage_;
};

// s0.. at wave start, in the descriptor's order (LLVM AMDGPUUsage, "Initial Kernel Execution
// State"); throws EmulationError naming a property that cannot be provided.
std::vector<uint32_t> user_sgprs(const Kernel& kernel, const KernargSegment& kernarg,
                                 const DispatchPacket& packet);

}  // namespace mha_sink::emulator
