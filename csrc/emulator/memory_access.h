// What memory instructions touch, worked out from registers before they execute: for observers.
// The handlers in simd/ compute the same addresses for themselves.
#pragma once

#include <cstdint>

#include "emulator/instruction.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {

inline constexpr uint64_t kLineBytes = 128;  // of the L1 and L2 of gfx950

enum class MemorySpace : uint8_t { none, lds, global, scratch, scalar };
enum class AccessKind : uint8_t { load, store, atomic };

// What follows from the instruction alone.
struct AccessShape {
  MemorySpace space = MemorySpace::none;
  AccessKind kind = AccessKind::load;
  uint8_t bytes = 0;      // of one lane and access; scalar: of the wave
  uint8_t accesses = 1;   // 2: ds_read2, ds_write2
  uint16_t stride = 0;    // what the offsets of ds_read2 and ds_write2 count, in bytes
  bool lds_dma = false;   // the loaded data goes to LDS
  uint8_t dma_bytes = 0;  // what each lane then writes there
};
AccessShape access_shape(const Instruction& instruction);

struct LaneAddresses {
  uint64_t lanes = 0;  // that touch memory: active, and not clipped by a buffer's range
  uint64_t address[kLanes];
  uint64_t limit = ~uint64_t{0};  // a buffer's end

  // How many of `bytes` the lane accesses: buffers clip dword by dword.
  uint32_t bytes(int lane, uint32_t bytes) const {
    const uint64_t left = limit - address[lane];
    return left >= bytes ? bytes : static_cast<uint32_t>(left) & ~3u;
  }
};

// Addresses of access number `which` of an instruction with a shape: global ones as the host's,
// LDS and scratch ones as offsets (scratch: in the lane's own). Scalar: lane 0 alone.
LaneAddresses lane_addresses(const Instruction& instruction, const AccessShape& shape,
                             const Wave& wave, unsigned which = 0);

// Offset in LDS at which the LDS-DMA of lane 0 lands; lane l follows l * dma_bytes further.
uint32_t lds_dma_address(const Instruction& instruction, const Wave& wave);

}  // namespace mha_sink::emulator
