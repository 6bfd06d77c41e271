// Buffer range checks and atomics.
#include "gfx950.h"

namespace {

DEVICE __amdgpu_buffer_rsrc_t make_buffer(const void* data, uint32_t bytes) {
  return __builtin_amdgcn_make_buffer_rsrc((void*)data, 0, bytes, 0x27000);
}

}  // namespace

// Lane l loads 1, 2 and 4 dwords at element l: [0, 64) [64, 192) [192, 448) of out. Each dword past
// `bytes` reads as 0.
KERNEL buffer_loads(const uint32_t* x, uint32_t* out, uint32_t bytes) {
  const auto buffer = make_buffer(x, bytes);
  const uint32_t lane = lane_id();
  out[lane] = __builtin_amdgcn_raw_buffer_load_b32(buffer, lane * 4, 0, 0);
  *(u32x2*)(out + 64 + lane * 2) = __builtin_amdgcn_raw_buffer_load_b64(buffer, lane * 4, 0, 0);
  *(u32x4*)(out + 192 + lane * 4) = __builtin_amdgcn_raw_buffer_load_b128(buffer, lane * 4, 0, 0);
}

// Stores past `bytes` are dropped. soffset moves the address and takes part in the check.
KERNEL buffer_store(uint32_t* out, uint32_t bytes, uint32_t soffset) {
  const auto buffer = make_buffer(out, bytes);
  __builtin_amdgcn_raw_buffer_store_b32(lane_id() + 1, buffer, lane_id() * 4, soffset, 0);
}

// 16-bit and byte accesses.
KERNEL buffer_small(const uint8_t* x, uint8_t* out, uint32_t bytes) {
  const auto source = make_buffer(x, bytes);
  const auto target = make_buffer(out, 4096);
  const uint32_t lane = lane_id();
  const uint16_t half = __builtin_amdgcn_raw_buffer_load_b16(source, lane * 2, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b16((uint16_t)(half + 1), target, lane * 2, 0, 0);
  const uint8_t byte = __builtin_amdgcn_raw_buffer_load_b8(source, lane, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b8((uint8_t)(byte + 3), target, 128 + lane, 0, 0);
}

// Lane l reads record l (plus 4 bytes, plus voffset) of a buffer with a stride, and writes to
// record l of another. Records from `records` on read as 0 and are not written.
KERNEL buffer_indexed(const uint32_t* x, uint32_t* out, uint32_t* target, uint32_t stride,
                      uint32_t records) {
  const auto from = (uint64_t)x, to = (uint64_t)target;
  const u32x4 source = {(uint32_t)from, (uint32_t)(from >> 32) | stride << 16, records, 0x20000};
  const u32x4 sink = {(uint32_t)to, (uint32_t)(to >> 32) | stride << 16, records, 0x20000};
  const uint32_t lane = lane_id();
  const u32x2 index_and_offset = {lane, 8 + 4 * (lane % 4)};
  uint32_t plain, shifted, both;
  asm volatile(
      "buffer_load_dword %0, %3, %5, 0 idxen\n"
      "buffer_load_dword %1, %3, %5, 0 idxen offset:4\n"
      "buffer_load_dword %2, %4, %5, 0 idxen offen\n"
      "buffer_store_dword %3, %3, %6, 0 idxen\n"
      "s_waitcnt vmcnt(0)"
      : "=&v"(plain), "=&v"(shifted), "=&v"(both)
      : "v"(lane), "v"(index_and_offset), "s"(source), "s"(sink)
      : "memory");
  out[lane] = plain;
  out[64 + lane] = shifted;
  out[128 + lane] = both;
}

// Every thread of every workgroup adds 1 to out[thread % cells] and to out_bf16[thread % cells].
KERNEL atomics(float* out, uint32_t* out_bf16, uint32_t cells) {
  using bf16x2 = short __attribute__((ext_vector_type(2)));
  const uint32_t cell = thread_id() % cells;
  __builtin_amdgcn_global_atomic_fadd_f32((GlobalPointer<float>)(out + cell), 1.0f);
  const bf16x2 ones = {0x3f80, 0x3f80};
  __builtin_amdgcn_global_atomic_fadd_v2bf16((GlobalPointer<bf16x2>)(out_bf16 + cell), ones);
}

// Old values returned: together they are 0, 1, 2, ... each once.
KERNEL atomic_tickets(float* counter, float* out) {
  out[workgroup_id() * 64 + thread_id()] =
      __builtin_amdgcn_global_atomic_fadd_f32((GlobalPointer<float>)counter, 1.0f);
}
