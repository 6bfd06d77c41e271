// Exchange between the waves of a workgroup through LDS, right and with a barrier removed.
#include "gfx950.h"

namespace {

constexpr uint32_t kThreads = 256;

// Each round reverses the workgroup's values and adds one. Two barriers a round: all have written
// before any reads; all have read before any writes again.
template <bool kBeforeRead, bool kBeforeWrite>
DEVICE void reverse(const uint32_t* x, uint32_t* out, uint32_t rounds) {
  LDS static uint32_t exchange[kThreads];
  uint32_t value = x[thread_id()];
  for (uint32_t round = 0; round < rounds; ++round) {
    exchange[thread_id()] = value;
    workgroup_barrier<kBeforeRead>();
    value = exchange[kThreads - 1 - thread_id()] + 1;
    workgroup_barrier<kBeforeWrite>();
  }
  out[thread_id()] = value;
}

// A tree sum over the workgroup, in a fixed order.
template <bool kBarrier>
DEVICE void sum(const float* x, float* out) {
  LDS static float partial[kThreads];
  partial[thread_id()] = x[workgroup_id() * kThreads + thread_id()];
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    workgroup_barrier<kBarrier>();
    if (thread_id() < half) partial[thread_id()] += partial[thread_id() + half];
  }
  if (thread_id() == 0) out[workgroup_id()] = partial[0];
}

}  // namespace

KERNEL reverse_both_barriers(const uint32_t* x, uint32_t* out, uint32_t rounds) {
  reverse<true, true>(x, out, rounds);
}
KERNEL reverse_no_barrier_before_read(const uint32_t* x, uint32_t* out, uint32_t rounds) {
  reverse<false, true>(x, out, rounds);
}
KERNEL reverse_no_barrier_before_write(const uint32_t* x, uint32_t* out, uint32_t rounds) {
  reverse<true, false>(x, out, rounds);
}
KERNEL sum_with_barriers(const float* x, float* out) { sum<true>(x, out); }
KERNEL sum_without_barriers(const float* x, float* out) { sum<false>(x, out); }

// Wave 0 waits for the others, which end without arriving: hardware does not count them any more.
KERNEL barrier_after_others_ended(uint32_t* out) {
  if (wave_id() == 0) __builtin_amdgcn_s_barrier();
  out[thread_id()] = 1;
}

// Wave 0 waits for the others, which wait for the flag that it would set after the barrier.
KERNEL barrier_deadlock(uint32_t* out) {
  LDS static uint32_t flag;
  const uint32_t address = lds_address(&flag);
  if (thread_id() == 0) flag = 0;
  workgroup_barrier();
  if (wave_id() == 0) {
    workgroup_barrier();
    flag = 1;
  } else {
    uint32_t value;
    do {
      asm volatile("ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"
                   : "=v"(value)
                   : "v"(address)
                   : "memory");
    } while (__builtin_amdgcn_readfirstlane(value) == 0);
  }
  out[thread_id()] = flag;
}
