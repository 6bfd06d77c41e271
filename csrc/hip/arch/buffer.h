// Global memory through buffer descriptors: 64-bit scalar base, 32-bit byte offsets, loads past the
// end return 0.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

using Buffer = __amdgpu_buffer_rsrc_t;

// A raw buffer of `bytes` bytes, below 4 GiB: descriptors count in 32 bits, so a kernel makes one
// per tile and moves its 64-bit base. 0x27000: 32-bit raw data, as every gfx9 compiler sets it.
MHA_SINK_DEVICE Buffer make_buffer(const void* base, uint32_t bytes) {
  return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, 0x27000);
}

// An offset past the end of every buffer here: 2 GiB.
inline constexpr uint32_t kOutOfRange = 0x80000000u;

// buffer_load_dwordx4.
MHA_SINK_DEVICE u32x4 buffer_load_16_bytes(Buffer buffer, uint32_t byte_offset) {
  return __builtin_amdgcn_raw_buffer_load_b128(buffer, byte_offset, 0, 0);
}

// buffer_load_dword.
MHA_SINK_DEVICE float buffer_load_f32(Buffer buffer, uint32_t byte_offset) {
  return __builtin_bit_cast(float, __builtin_amdgcn_raw_buffer_load_b32(buffer, byte_offset, 0, 0));
}

// buffer_store_dwordx2.
MHA_SINK_DEVICE void buffer_store_8_bytes(Buffer buffer, uint32_t byte_offset, u32x2 value) {
  __builtin_amdgcn_raw_buffer_store_b64(value, buffer, byte_offset, 0, 0);
}

// buffer_store_dwordx4.
MHA_SINK_DEVICE void buffer_store_16_bytes(Buffer buffer, uint32_t byte_offset, u32x4 value) {
  __builtin_amdgcn_raw_buffer_store_b128(value, buffer, byte_offset, 0, 0);
}

// The LLVM intrinsic by its name: clang has a builtin only from version 21 on. Not asm: the
// compiler counts outstanding atomics when it waits for loads that were issued before them.
__attribute__((device)) float raw_buffer_atomic_fadd(
    float value, Buffer buffer, uint32_t lane_offset, uint32_t scalar_offset,
    uint32_t cache_policy) __asm("llvm.amdgcn.raw.ptr.buffer.atomic.fadd.f32");

// buffer_atomic_add_f32 without return, device scope, at lane_offset + scalar_offset bytes; nothing
// happens past the end.
MHA_SINK_DEVICE void buffer_atomic_add(Buffer buffer, uint32_t lane_offset, uint32_t scalar_offset,
                                       float value) {
  raw_buffer_atomic_fadd(value, buffer, lane_offset, scalar_offset, 0);
}

}  // namespace mha_sink::arch
