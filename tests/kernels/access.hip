// Accesses at given addresses, for what counts them.
#include "gfx950.h"

namespace {

using u32x3 = uint32_t __attribute__((ext_vector_type(3)));

}  // namespace

// Each lane accesses LDS once, at addresses[lane]; `lanes` are active. LDS is dynamic.
#define LDS_ACCESS(name, instruction, type)                                                 \
  KERNEL lds_read_##name(const uint32_t* addresses, uint64_t lanes) {                       \
    const uint32_t address = addresses[lane_id()];                                          \
    if ((lanes >> lane_id() & 1) == 0) return;                                              \
    type value;                                                                             \
    asm volatile("ds_read_" #instruction " %0, %1\n\ts_waitcnt lgkmcnt(0)"                  \
                 : "=v"(value)                                                              \
                 : "v"(address));                                                           \
  }                                                                                         \
  KERNEL lds_write_##name(const uint32_t* addresses, uint64_t lanes) {                      \
    const uint32_t address = addresses[lane_id()];                                          \
    if ((lanes >> lane_id() & 1) == 0) return;                                              \
    type value = {};                                                                        \
    asm volatile("ds_write_" #instruction " %0, %1\n\ts_waitcnt lgkmcnt(0)" ::"v"(address), \
                 "v"(value)                                                                 \
                 : "memory");                                                               \
  }

LDS_ACCESS(b32, b32, uint32_t)
LDS_ACCESS(b64, b64, u32x2)
LDS_ACCESS(b96, b96, u32x3)
LDS_ACCESS(b128, b128, u32x4)

KERNEL lds_read2_b32(const uint32_t* addresses) {
  u32x2 value;
  asm volatile("ds_read2_b32 %0, %1 offset0:0 offset1:64\n\ts_waitcnt lgkmcnt(0)"
               : "=v"(value)
               : "v"(addresses[lane_id()]));
}

// Every lane reads from the same bank. LDS is dynamic, 16 KiB.
KERNEL lds_conflicts() {
  uint32_t value;
  asm volatile("ds_read_b32 %0, %1\n\ts_waitcnt lgkmcnt(0)"  // the conflict
               : "=v"(value)
               : "v"(256 * lane_id()));
}

// Every workgroup loads a dword at `offsets` bytes into x, and adds to and stores to `sums` and
// `out`.
KERNEL global_accesses(const uint8_t* x, const uint32_t* offsets, uint32_t* sums, uint32_t* out) {
  uint32_t value;
  asm volatile("global_load_dword %0, %1, %2\n\ts_waitcnt vmcnt(0)"
               : "=v"(value)
               : "v"(offsets[lane_id()]), "s"(x));
  __hip_atomic_fetch_add(&sums[lane_id()], 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  out[workgroup_id() * 64 + lane_id()] = value;
}

// 16 bytes a lane of a buffer of `bytes`, straight to LDS.
KERNEL buffer_to_lds(const void* x, uint32_t bytes) {
  LDS u32x4 tile[64];
  const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void*)x, 0, bytes, 0x27000);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (LdsPointer<void>)tile, 16, lane_id() * 16, 0, 0,
                                           0);
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
}
