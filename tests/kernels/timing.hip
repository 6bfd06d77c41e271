// Long runs of one instruction, for the timing model. Values are of no interest.
#include "gfx950.h"

#define RUN(name, setup, body)                                                                 \
  KERNEL run_##name(uint32_t* x) {                                                             \
    asm volatile(setup "\n.rept 256\n" body "\n.endr\ns_waitcnt vmcnt(0) lgkmcnt(0)" ::"s"(x), \
                 "v"(thread_id() * 16)                                                         \
                 : "v10", "v11", "v12", "v13", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", \
                   "memory");                                                                  \
  }

RUN(independent_valu, "", "v_mul_f32 v10, v11, v12")
RUN(dependent_valu, "", "v_mul_f32 v10, v10, v12")
RUN(transcendental, "", "v_exp_f32 v10, v11")
RUN(independent_mfma, "",
    "v_mfma_f32_16x16x32_bf16 a[0:3], v[10:13], v[10:13], a[0:3]\n"
    "v_mfma_f32_16x16x32_bf16 a[4:7], v[10:13], v[10:13], a[4:7]")
RUN(dependent_mfma, "", "v_mfma_f32_16x16x32_bf16 a[0:3], v[10:13], v[10:13], a[0:3]")
RUN(lds_read, "", "ds_read_b128 v[10:13], %1")
RUN(lds_conflict, "v_lshlrev_b32 v10, 4, %1", "ds_read_b32 v11, v10")
RUN(load_and_wait, "", "global_load_dword v10, %1, %0\ns_waitcnt vmcnt(0)")
RUN(barrier, "", "s_barrier")

// 256 VALU instructions a wave; waves 4 and later then wait for 16 loads, one after another, which
// the VALU work of those before them could hide.
template <int kPriority>
DEVICE void late_loads(uint32_t* x) {
  const bool late = wave_id() >= 4;
  if (late) __builtin_amdgcn_s_setprio(kPriority);
  asm volatile(".rept 256\nv_mul_f32 v10, v11, v12\n.endr" ::: "v10", "v11", "v12");
  if (!late) return;
  asm volatile(".rept 16\nglobal_load_dword v10, %1, %0\ns_waitcnt vmcnt(0)\n.endr" ::"s"(x), "v"(0)
               : "v10", "memory");
}

KERNEL run_equal_priority(uint32_t* x) { late_loads<0>(x); }
KERNEL run_late_loads_first(uint32_t* x) { late_loads<3>(x); }
