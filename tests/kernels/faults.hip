// Kernels that a GPU would fault on, or that read what nobody wrote.
#include "gfx950.h"

KERNEL global_read(const uint32_t* x, uint32_t* out, int32_t index) {
  out[thread_id()] = x[index + (int32_t)thread_id()];  // global_read's access
}

KERNEL global_write(const uint32_t* x, uint32_t* out, int32_t index) {
  out[index + (int32_t)thread_id()] = x[thread_id()];  // global_write's access
}

KERNEL global_atomic(float* out, int32_t index) {
  const auto sum = (GlobalPointer<float>)(out + index);
  __builtin_amdgcn_global_atomic_fadd_f32(sum, 1.0f);  // global_atomic's access
}

KERNEL lds_read(uint32_t* out, uint32_t address) {
  LDS static uint32_t shared[64];
  shared[thread_id()] = thread_id();
  uint32_t value;
  asm volatile("ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"  // lds_read's access
               : "=v"(value)
               : "v"(lds_address(&shared[0]) + address)
               : "memory");
  out[thread_id()] = value;
}

KERNEL lds_write(uint32_t* out, uint32_t address) {
  LDS static uint32_t shared[64];
  asm volatile("ds_write_b32 %0, %1\n s_waitcnt lgkmcnt(0)"  // lds_write's access
               :
               : "v"(lds_address(&shared[0]) + address), "v"(thread_id())
               : "memory");
  out[thread_id()] = shared[thread_id()];
}

// The last dword of LDS-DMA data of lane 63 lands at address + 63 * 4.
KERNEL lds_dma_write(const uint32_t* x, uint32_t* out, uint32_t address) {
  LDS static uint32_t shared[64];
  const auto target = (LdsPointer<uint8_t>)&shared[0] + __builtin_amdgcn_readfirstlane(address);
  const auto source = (GlobalPointer<uint32_t>)(x + thread_id());
  __builtin_amdgcn_global_load_lds(source, target, 4, 0, 0);  // lds_dma_write's access
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  out[thread_id()] = shared[thread_id()];
}

KERNEL uninitialized_register(float* out) {
  float value;
  asm volatile("v_add_f32 %0, 1.0, v40" : "=v"(value) : : "v40");
  out[thread_id()] = value;
}

KERNEL uninitialized_accumulator(float* out) {
  float value;
  asm volatile("v_accvgpr_read_b32 %0, a7" : "=v"(value) : : "a7");
  out[thread_id()] = value;
}

KERNEL uninitialized_lds(uint32_t* out) {
  LDS static uint32_t shared[64];
  uint32_t value;
  asm volatile("ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"
               : "=v"(value)
               : "v"(lds_address(&shared[thread_id()]))
               : "memory");
  out[thread_id()] = value;
}
