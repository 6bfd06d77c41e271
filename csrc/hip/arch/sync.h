// Barriers, the compiler's among them, and lane exchange.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

// Every wave's LDS writes before the barrier are seen by all waves after it. The fences are local
// to the workgroup's LDS: they order ds instructions and leave loads from memory in flight.
MHA_SINK_DEVICE void workgroup_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// The compiler moves no instruction across; it makes none.
MHA_SINK_DEVICE void scheduling_barrier() { __builtin_amdgcn_sched_barrier(0); }

// v_permlane32_swap_b32: exchanges lanes 32..63 of `a` with lanes 0..31 of `b`.
MHA_SINK_DEVICE void swap_halves(uint32_t& a, uint32_t& b) {
  const auto swapped = __builtin_amdgcn_permlane32_swap(a, b, false, false);
  a = swapped[0], b = swapped[1];
}

// v_permlane16_swap_b32: exchanges lanes 16..31 and 48..63 of `a` with lanes 0..15 and 32..47 of
// `b`.
MHA_SINK_DEVICE void swap_odd_rows(uint32_t& a, uint32_t& b) {
  const auto swapped = __builtin_amdgcn_permlane16_swap(a, b, false, false);
  a = swapped[0], b = swapped[1];
}

// Value of lane `lane_id() ^ kMask`: ds_bpermute_b32.
template <int kMask>
MHA_SINK_DEVICE float lane_xor(float value) {
  const int other = (lane_id() ^ kMask) * 4;
  return __builtin_bit_cast(float,
                            __builtin_amdgcn_ds_bpermute(other, __builtin_bit_cast(int, value)));
}

// Value of lane kLane of the caller's row of 16 lanes: DPP row_newbcast, which the compiler folds
// into a VALU operand at no cost.
template <int kLane>
MHA_SINK_DEVICE float row_broadcast(float value) {
  constexpr int kRowNewBroadcast = 0x150;
  const int bits = __builtin_bit_cast(int, value);
  return __builtin_bit_cast(
      float, __builtin_amdgcn_update_dpp(0, bits, kRowNewBroadcast + kLane, 0xf, 0xf, true));
}

}  // namespace mha_sink::arch
