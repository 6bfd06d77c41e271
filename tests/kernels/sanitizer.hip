// Planted faults for the sanitizer, each with a twin that lacks it. Assembly, because the compiler
// repairs what it knows.
#include "gfx950.h"

#define VGPRS                                                                                    \
  "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22",     \
      "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "v32", "v33", "v34", "v35", \
      "v36", "v37", "v38", "v39", "v40", "v41", "v42", "v43", "v44", "v45", "v46", "v47", "v48", \
      "v49", "v50", "v51", "v52", "v53", "v54", "v55", "v56", "v57", "v58", "v59"
#define OTHERS "s20", "s21", "s22", "s23", "s24", "s25", "vcc", "a9", "m0", "memory"

// Two twins: `early` between the lines in the faulty one, `enough` in the other.
#define TWINS(name, first, early, enough, second)                                      \
  KERNEL name##_fault(const uint32_t* x, uint32_t* out) {                              \
    asm volatile(first "\n" early "\n" second::"s"(x), "s"(out), "v"(4 * thread_id())  \
                 : VGPRS, OTHERS);                                                     \
  }                                                                                    \
  KERNEL name##_clean(const uint32_t* x, uint32_t* out) {                              \
    asm volatile(first "\n" enough "\n" second::"s"(x), "s"(out), "v"(4 * thread_id()) \
                 : VGPRS, OTHERS);                                                     \
  }

// Waits.

TWINS(use_of_load, "global_load_dword v10, %2, %0", "", "s_waitcnt vmcnt(0)",
      "v_add_u32 v11, 1, v10")
TWINS(use_of_second_load, "global_load_dword v10, %2, %0\n global_load_dword v11, %2, %0",
      "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "v_add_u32 v12, 1, v11")
TWINS(store_between_loads,
      "global_load_dword v10, %2, %0\n global_store_dword %2, %2, %1\n"
      "global_load_dword v11, %2, %0",
      "s_waitcnt vmcnt(3)", "s_waitcnt vmcnt(2)", "v_add_u32 v12, 1, v10")
TWINS(overwritten_load, "global_load_dword v10, %2, %0", "", "s_waitcnt vmcnt(0)",
      "v_mov_b32 v10, 0")
TWINS(use_of_lds_read, "ds_read_b32 v10, %2\n ds_read_b32 v11, %2 offset:4", "s_waitcnt lgkmcnt(1)",
      "s_waitcnt lgkmcnt(0)", "v_add_u32 v12, v10, v11")
TWINS(use_of_scalar_load, "s_load_dword s20, %0, 0x0\n s_load_dword s21, %0, 0x4",
      "s_waitcnt lgkmcnt(1)", "s_waitcnt lgkmcnt(0)", "s_add_u32 s22, s20, 1")

// Hazards.

#define MFMA "v_mfma_f32_32x32x16_bf16 v[20:35], v[36:39], v[40:43], v[44:59]"
#define MFMA16 "v_mfma_f32_16x16x32_bf16 v[20:23], v[36:39], v[40:43], v[44:47]"

TWINS(mfma_to_valu, MFMA, "s_nop 10", "s_nop 11", "v_add_u32 v10, 1, v35")
TWINS(mfma16_to_valu, MFMA16, "s_nop 6", "s_nop 7", "v_add_u32 v10, 1, v23")
TWINS(mfma_to_store, MFMA, "s_nop 10", "s_nop 11", "global_store_dword %2, v20, %1")
TWINS(mfma_to_overwrite, MFMA, "s_nop 10", "s_nop 11", "v_mov_b32 v25, 0")
TWINS(mfma_to_a, MFMA, "s_nop 10", "s_nop 11",
      "v_mfma_f32_16x16x32_bf16 v[10:13], v[20:23], v[40:43], v[44:47]")
TWINS(mfma_to_part_of_c, MFMA, "s_nop 8", "s_nop 9",
      "v_mfma_f32_16x16x32_bf16 v[10:13], v[36:39], v[40:43], v[24:27]")
TWINS(c_to_overwrite, MFMA, "s_nop 5", "s_nop 6", "v_mov_b32 v44, 0")
TWINS(valu_to_mfma, "v_mov_b32 v36, 0", "s_nop 0", "s_nop 1", MFMA)
TWINS(m0_to_lds_dma, "s_mov_b32 m0, 0", "", "s_nop 0",
      "global_load_lds_dword %2, %0\n s_waitcnt vmcnt(0)")
TWINS(transcendental_to_valu, "v_exp_f32 v10, %2", "", "s_nop 0", "v_add_f32 v11, 1.0, v10")
TWINS(mask_to_select, "v_cmp_gt_u32 vcc, 9, %2", "s_nop 0", "s_nop 1",
      "v_cndmask_b32 v11, 0, %2, vcc")
TWINS(valu_to_lane_swap, "v_mov_b32 v10, %2\n v_mov_b32 v11, %2", "s_nop 0", "s_nop 1",
      "v_permlane32_swap_b32 v10, v11")
TWINS(valu_to_dpp, "v_mov_b32 v10, %2", "s_nop 0", "s_nop 1",
      "v_mov_b32_dpp v11, v10 row_shr:1 row_mask:0xf bank_mask:0xf")
TWINS(valu_to_readlane, "v_mov_b32 v10, %2", "", "s_nop 0", "v_readfirstlane_b32 s20, v10")
TWINS(valu_to_lane_select, "v_readfirstlane_b32 s20, %2", "s_nop 2", "s_nop 3",
      "v_readlane_b32 s21, %2, s20")
TWINS(valu_to_address,
      "s_mov_b64 s[22:23], %0\n v_mov_b32 v11, s22\n s_nop 0\n v_readfirstlane_b32 s22, v11",
      "s_nop 3", "s_nop 4", "global_load_dword v12, %2, s[22:23]\n s_waitcnt vmcnt(0)")
TWINS(wide_store_to_overwrite,
      "v_mov_b32 v12, 0\n v_lshlrev_b32 v14, 2, %2\n s_nop 1\n"
      "global_store_dwordx4 v14, v[10:13], %1",
      "s_nop 0", "s_nop 1", "v_mov_b32 v12, 0")

// Uninitialised.

TWINS(uninit_vgpr, "", "", "v_mov_b32 v10, 0", "v_add_u32 v11, 1, v10")
TWINS(uninit_agpr, "", "v_accvgpr_read_b32 v10, a9",
      "v_accvgpr_write_b32 a9, 0\n"
      "v_accvgpr_read_b32 v10, a9",
      "v_add_u32 v11, 1, v10")
TWINS(uninit_address, "", "", "s_mov_b64 s[20:21], %0", "s_load_dword s22, s[20:21], 0x0")
TWINS(uninit_branch, "", "s_cmp_eq_u32 s24, 0", "s_mov_b32 s24, 0\n s_cmp_eq_u32 s24, 0",
      "s_cbranch_scc1 1f\n s_nop 0\n 1:")
TWINS(uninit_lanes, "s_mov_b64 s[20:21], exec\n s_mov_b64 exec, 0xff\n v_mov_b32 v10, 0",
      "s_mov_b64 exec, s[20:21]", "", "v_add_u32 v11, 1, v10\n s_mov_b64 exec, s[20:21]")
TWINS(uninit_lds, "", "", "ds_write_b32 %2, %2",
      "ds_read_b32 v10, %2\n s_waitcnt lgkmcnt(0)\n"
      "v_add_u32 v11, 1, v10")
TWINS(uninit_mask, "", "", "s_mov_b64 vcc, 0", "v_cndmask_b32 v11, 0, %2, vcc")

// Races.

namespace {

constexpr uint32_t kThreads = 256;

// Each wave fetches a quarter of x to LDS, and reads what the next wave fetched.
template <bool kBarrier>
DEVICE void read_what_another_wave_fetched(const uint32_t* x, uint32_t* out) {
  LDS static uint32_t shared[kThreads];
  const auto target = (LdsPointer<uint32_t>)&shared[0] + 64 * wave_id();
  const auto source = (GlobalPointer<uint32_t>)(x + thread_id());
  __builtin_amdgcn_global_load_lds(source, target, 4, 0, 0);  // fetched: write
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  if (kBarrier) workgroup_barrier();
  const uint32_t value = shared[(thread_id() + 64) % kThreads];  // fetched: read
  out[thread_id()] = value;
}

// A barrier orders what the waves waited for before it, no more.
template <bool kWait>
DEVICE void write_then_barrier(uint32_t* out) {
  LDS static uint32_t shared[kThreads];
  asm volatile("ds_write_b32 %0, %1"  // barrier: write
               :
               : "v"(lds_address(&shared[thread_id()])), "v"(thread_id())
               : "memory");
  if (kWait) asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  uint32_t value;
  asm volatile("s_barrier\n ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)"  // barrier: read
               : "=v"(value)
               : "v"(lds_address(&shared[(thread_id() + 64) % kThreads]))
               : "memory");
  out[thread_id()] = value;
}

// The waves write the four bytes of the same dwords, or all the same byte.
template <bool kSame>
DEVICE void write_bytes(uint32_t* out) {
  LDS static uint8_t shared[kThreads];
  const uint32_t byte = 4 * lane_id() + (kSame ? 0 : wave_id());
  asm volatile("ds_write_b8 %0, %1\n s_waitcnt lgkmcnt(0)"  // bytes: write
               :
               : "v"(lds_address(&shared[byte])), "v"(byte)
               : "memory");
  workgroup_barrier();
  out[thread_id()] = shared[4 * lane_id()];
}

template <bool kSame>
DEVICE void store_to_own_part(uint32_t* out) {
  uint32_t* const part = out + (kSame ? 0 : 64 * workgroup_id());
  part[lane_id()] = lane_id();  // stored: write
}

// Halves of dwords, a workgroup each.
DEVICE void store_halves(uint32_t* out) {
  ((uint16_t*)out)[2 * lane_id() + workgroup_id() % 2] = (uint16_t)lane_id();
}

// Workgroup 0 stores what the others load, or something else.
template <bool kSame>
DEVICE void load_what_another_workgroup_stored(uint32_t* out) {
  if (workgroup_id() == 0) {
    out[lane_id()] = lane_id();
    return;
  }
  uint32_t value;
  asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)"  // loaded: read
               : "=v"(value)
               : "v"(out + (kSame ? 0 : 64) + lane_id())
               : "memory");
  out[64 * (workgroup_id() + 1) + lane_id()] = value;
}

DEVICE void add_to_same(uint32_t* out) {
  __hip_atomic_fetch_add(out + lane_id(), 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

}  // namespace

#define RACE(name, ...)                           \
  KERNEL name(const uint32_t* x, uint32_t* out) { \
    (void)x;                                      \
    __VA_ARGS__;                                  \
  }
RACE(fetched_by_another_wave_fault, read_what_another_wave_fetched<false>(x, out))
RACE(fetched_by_another_wave_clean, read_what_another_wave_fetched<true>(x, out))
RACE(barrier_before_wait_fault, write_then_barrier<false>(out))
RACE(barrier_before_wait_clean, write_then_barrier<true>(out))
RACE(bytes_of_a_dword_fault, write_bytes<true>(out))
RACE(bytes_of_a_dword_clean, write_bytes<false>(out))
RACE(stored_by_two_workgroups_fault, store_to_own_part<true>(out))
RACE(stored_by_two_workgroups_clean, store_to_own_part<false>(out))
RACE(halves_of_a_dword_clean, store_halves(out))
RACE(loaded_from_another_workgroup_fault, load_what_another_workgroup_stored<true>(out))
RACE(loaded_from_another_workgroup_clean, load_what_another_workgroup_stored<false>(out))
RACE(atomics_of_two_workgroups_clean, add_to_same(out))
