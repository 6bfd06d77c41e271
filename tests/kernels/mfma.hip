// Every dense 16-bit matrix shape, with its operands in each register file that it allows. Each
// lane loads and stores its registers as they stand: the layout of the matrices is the test's
// affair.
#include "gfx950.h"

// d = a * b + c. AB and CD: "v" or "a", the files of A and B, and of C and D.
#define MFMA(instruction, suffix, AB, CD, Input, Accumulator)                                \
  KERNEL mfma_##instruction##_##suffix(const Input* a, const Input* b, const Accumulator* c, \
                                       Accumulator* d) {                                     \
    const uint32_t lane = lane_id();                                                         \
    Accumulator result;                                                                      \
    asm volatile("v_mfma_f32_" #instruction " %0, %1, %2, %3\n s_nop 15\n s_nop 15"          \
                 : "=&" CD(result)                                                           \
                 : AB(a[lane]), AB(b[lane]), CD(c[lane]));                                   \
    d[lane] = result;                                                                        \
  }

#define MFMA_FILES(instruction, Input, Accumulator)   \
  MFMA(instruction, vv, "v", "v", Input, Accumulator) \
  MFMA(instruction, av, "a", "v", Input, Accumulator) \
  MFMA(instruction, va, "v", "a", Input, Accumulator) \
  MFMA(instruction, aa, "a", "a", Input, Accumulator)

MFMA_FILES(32x32x16_bf16, u16x8, f32x16)
MFMA_FILES(32x32x16_f16, u16x8, f32x16)
MFMA_FILES(16x16x32_bf16, u16x8, f32x4)
MFMA_FILES(16x16x32_f16, u16x8, f32x4)
MFMA_FILES(32x32x8_bf16, u16x4, f32x16)
MFMA_FILES(32x32x8_f16, u16x4, f32x16)
MFMA_FILES(16x16x16_bf16, u16x4, f32x4)
MFMA_FILES(16x16x16_f16, u16x4, f32x4)

// D in v[40:43], C in v[42:45]: hardware reads all of C before it writes a result of 4 registers.
KERNEL mfma_overlap(const u16x8* a, const u16x8* b, const f32x4* c, f32x4* d) {
  const uint32_t lane = lane_id();
  float d0, d1, d2, d3;
  asm volatile(
      "v_mov_b32 v42, %6\n v_mov_b32 v43, %7\n v_mov_b32 v44, %8\n v_mov_b32 v45, %9\n s_nop 1\n"
      "v_mfma_f32_16x16x32_bf16 v[40:43], %4, %5, v[42:45]\n s_nop 15\n"
      "v_mov_b32 %0, v40\n v_mov_b32 %1, v41\n v_mov_b32 %2, v42\n v_mov_b32 %3, v43"
      : "=&v"(d0), "=&v"(d1), "=&v"(d2), "=&v"(d3)
      : "v"(a[lane]), "v"(b[lane]), "v"(c[lane][0]), "v"(c[lane][1]), "v"(c[lane][2]),
        "v"(c[lane][3])
      : "v40", "v41", "v42", "v43", "v44", "v45");
  d[lane] = f32x4{d0, d1, d2, d3};
}

// C as an inline constant, and C and D the same registers: a chain of `steps` products.
KERNEL mfma_chain(const u16x8* a, const u16x8* b, f32x16* d, uint32_t steps) {
  using bf16x8 = __bf16 __attribute__((ext_vector_type(8)));
  f32x16 sum = {};
  for (uint32_t step = 0; step < steps; ++step) {
    sum = __builtin_amdgcn_mfma_f32_32x32x16_bf16(
        __builtin_bit_cast(bf16x8, a[step * 64 + lane_id()]),
        __builtin_bit_cast(bf16x8, b[step * 64 + lane_id()]), sum, 0, 0, 0);
  }
  d[lane_id()] = sum;
}

// Independent chains as in a dense kernel's main loop, for measuring speed.
KERNEL mfma_throughput(float* out, uint32_t steps) {
  using bf16x8 = __bf16 __attribute__((ext_vector_type(8)));
  f32x16 sum[4] = {};
  bf16x8 a, b;
  for (int i = 0; i < 8; ++i) a[i] = b[i] = (__bf16)(float)(lane_id() + i);
  for (uint32_t step = 0; step < steps; ++step) {
    for (int i = 0; i < 4; ++i) {
      sum[i] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, sum[i], 0, 0, 0);
    }
  }
  float total = 0;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 16; ++j) total += sum[i][j];
  }
  out[workgroup_id() * 64 + lane_id()] = total;
}
