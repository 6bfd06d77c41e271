// Lane masks and values that are the same in all lanes of a wave.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

// A load of memory that no kernel writes while this one runs, at an address that all lanes share:
// s_load, into scalar registers.
template <class T>
MHA_SINK_DEVICE T scalar_load(const T* address) {
  return *(const __attribute__((address_space(4))) T*)address;
}

// Bit l: the value in lane l; 0 in lanes that EXEC turns off.
MHA_SINK_DEVICE uint64_t ballot(bool value) { return __builtin_amdgcn_ballot_w64(value); }

// v_mbcnt: set bits of the mask below the lane's own.
MHA_SINK_DEVICE uint32_t lanes_before(uint64_t mask) {
  const uint32_t low = __builtin_amdgcn_mbcnt_lo(static_cast<uint32_t>(mask), 0);
  return __builtin_amdgcn_mbcnt_hi(static_cast<uint32_t>(mask >> 32), low);
}

// v_readlane_b32: the value of a lane whose number is the same in all lanes.
MHA_SINK_DEVICE int read_lane(int value, int lane) {
  return __builtin_amdgcn_readlane(value, lane);
}

// ds_permute_b32: the value goes to lane `target`; targets are a permutation of all lanes.
MHA_SINK_DEVICE int send_to_lane(int target, int value) {
  return __builtin_amdgcn_ds_permute(target * 4, value);
}

// global_load_dwordx4 at an address that is the same in all lanes plus an offset that is not. The
// asm keeps the two apart: the compiler would add them into 64-bit vector registers. So would it
// where lane_offset is an invariant of a loop, unless that is opaque() in the loop.
MHA_SINK_DEVICE u32x4 load_16_bytes(uint64_t address, uint32_t lane_offset) {
  asm("" : "+s"(address));
  using Bytes = const __attribute__((address_space(1))) char*;
  using Chunk = const __attribute__((address_space(1))) u32x4*;
  return *reinterpret_cast<Chunk>(reinterpret_cast<Bytes>(address) + lane_offset);
}

// global_atomic_add without return, device scope. Sums of integers do not depend on the order.
MHA_SINK_DEVICE void atomic_increment(uint32_t* address) {
  __hip_atomic_fetch_add((__attribute__((address_space(1))) uint32_t*)address, 1u, __ATOMIC_RELAXED,
                         __HIP_MEMORY_SCOPE_AGENT);
}

}  // namespace mha_sink::arch
