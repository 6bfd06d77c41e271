// What the test kernels share. Deliberately not csrc/hip/arch: these kernels test the emulator, and
// must not change when a wrapper of the library does.
#pragma once

#include <cstdint>

#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static inline __attribute__((device, always_inline))
#define LDS __attribute__((shared))

template <class T>
using GlobalPointer = __attribute__((address_space(1))) T*;
template <class T>
using LdsPointer = __attribute__((address_space(3))) T*;

using f32x2 = float __attribute__((ext_vector_type(2)));
using f32x4 = float __attribute__((ext_vector_type(4)));
using f32x16 = float __attribute__((ext_vector_type(16)));
using u16x4 = uint16_t __attribute__((ext_vector_type(4)));
using u16x8 = uint16_t __attribute__((ext_vector_type(8)));
using u32x2 = uint32_t __attribute__((ext_vector_type(2)));
using u32x4 = uint32_t __attribute__((ext_vector_type(4)));

DEVICE uint32_t thread_id() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE uint32_t workgroup_id() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE uint32_t lane_id() { return thread_id() % 64; }
DEVICE uint32_t wave_id() { return __builtin_amdgcn_readfirstlane(thread_id() / 64); }

template <class T>
DEVICE uint32_t lds_address(T* shared) {
  return (uint32_t)(uintptr_t)(LdsPointer<T>)shared;
}

// Orders LDS accesses of the workgroup. kBarrier false keeps the fences, so that the compiler's
// code differs in the s_barrier alone.
template <bool kBarrier = true>
DEVICE void workgroup_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  if (kBarrier) __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
