// Matrix instructions. Only the full-rate 16-bit shapes of gfx950 are wrapped: 16x16x16 and
// 32x32x8 take as many passes as shapes of twice the depth.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

// kRows 32: v_mfma_f32_32x32x16_bf16 and _f16: 8 passes (32 clocks). Lane l of A holds row l % 32
// and depth 8 * (l / 32) + 0..7, B likewise for its column; register r of C and D holds row
// 8 * (r / 4) + 4 * (l / 32) + r % 4 of column l % 32.
//
// kRows 16: v_mfma_f32_16x16x32_bf16 and _f16, 4 passes. Lane l of A holds row l % 16 and depth
// 8 * (l / 16) + 0..7; register r of C and D holds row 4 * (l / 16) + r of column l % 16.
//
// The instruction is written as asm because only asm pins the register file of C and D. Left to
// itself, clang 22 splits the 256 accumulator registers of dq_dk_dv between both files and copies
// them around every MFMA (and, with any of them pinned, moves all others to accumulation
// registers). The compiler's hazard recogniser does not look into asm, hence the rules
//  * A and B come from memory, whose wait separates them from the MFMA, or from a VALU instruction
//    before a barrier or settle(): a VALU write and an MFMA that reads it must be 2 wait states
//    apart;
//  * ready() stands between the last MFMA on C and any other use of it: clang 22 puts 12 wait
//    states there, 8 after an MFMA of 4 passes.
#define MHA_SINK_MFMA(operands, ...)                           \
  do {                                                         \
    if constexpr (kRows == 32 && kDtype == Dtype::bf16) {      \
      asm("v_mfma_f32_32x32x16_bf16 " operands : __VA_ARGS__); \
    } else if constexpr (kRows == 32) {                        \
      asm("v_mfma_f32_32x32x16_f16 " operands : __VA_ARGS__);  \
    } else if constexpr (kDtype == Dtype::bf16) {              \
      asm("v_mfma_f32_16x16x32_bf16 " operands : __VA_ARGS__); \
    } else {                                                   \
      asm("v_mfma_f32_16x16x32_f16 " operands : __VA_ARGS__);  \
    }                                                          \
  } while (false)

// What one instruction contracts over.
template <int kRows>
inline constexpr int kMfmaDepth = 512 / kRows;

template <int kRows>
struct AccumulatorRegisters {
  static_assert(kRows == 32);
  using Type = f32x16;
};
template <>
struct AccumulatorRegisters<16> {
  using Type = f32x4;
};

// 8 elements of a row of A or column of B.
using Operand = u32x4;

// One that lives through a whole loop, in accumulation registers: as A or B it costs no move.
struct ResidentOperand {
  Operand value;
};

// Puts a value that comes from memory into accumulation registers: the load writes them itself.
MHA_SINK_DEVICE void settle_resident(u32x4& value) { asm volatile("" : "+a"(value)); }

// Puts it there. Where an operand comes out of a branch, clang 20 would keep it in VGPRs and move
// it for every MFMA.
MHA_SINK_DEVICE void settle(ResidentOperand& operand) { settle_resident(operand.value); }

// Between VALU instructions that made an operand and the MFMAs that read it, where no barrier does.
MHA_SINK_DEVICE void settle(Operand& operand) { asm volatile("s_nop 1" : "+v"(operand)); }

// A kRows x kRows fp32 accumulator in VGPRs: a product that VALU instructions read next.
template <Dtype kDtype, int kRows = 32>
struct VectorAccumulator {
  typename AccumulatorRegisters<kRows>::Type c;

  MHA_SINK_DEVICE void start(Operand a, Operand b) {
    MHA_SINK_MFMA("%0, %1, %2, 0", "=&v"(c) : "v"(a), "v"(b));
  }
  MHA_SINK_DEVICE void add(Operand a, Operand b) {
    MHA_SINK_MFMA("%0, %1, %2, %0", "+v"(c) : "v"(a), "v"(b));
  }
  MHA_SINK_DEVICE void start(Operand a, ResidentOperand b) {
    MHA_SINK_MFMA("%0, %1, %2, 0", "=&v"(c) : "v"(a), "a"(b.value));
  }
  MHA_SINK_DEVICE void add(Operand a, ResidentOperand b) {
    MHA_SINK_MFMA("%0, %1, %2, %0", "+v"(c) : "v"(a), "a"(b.value));
  }
  MHA_SINK_DEVICE void start(ResidentOperand a, Operand b) {
    MHA_SINK_MFMA("%0, %1, %2, 0", "=&v"(c) : "a"(a.value), "v"(b));
  }
  MHA_SINK_DEVICE void add(ResidentOperand a, Operand b) {
    MHA_SINK_MFMA("%0, %1, %2, %0", "+v"(c) : "a"(a.value), "v"(b));
  }
  MHA_SINK_DEVICE auto ready() {
    if constexpr (kRows == 32) {
      asm volatile("s_nop 11" : "+v"(c));
    } else {
      asm volatile("s_nop 7" : "+v"(c));
    }
    return c;
  }
};

// A kRows x kRows fp32 accumulator in accumulation registers: one that lives through a whole loop.
template <Dtype kDtype, int kRows = 32>
struct ResidentAccumulator {
  typename AccumulatorRegisters<kRows>::Type c;

  // 0 as a product: a loop phi stays in accumulation registers only if every definition does.
  // Volatile, or equal products would become one, copied with no wait after it.
  MHA_SINK_DEVICE void clear() {
    const Operand zeros = Operand(0);
    if constexpr (kRows == 32) {
      asm volatile("s_nop 1\n\tv_mfma_f32_32x32x16_bf16 %0, %1, %1, 0" : "=a"(c) : "v"(zeros));
    } else {
      asm volatile("s_nop 1\n\tv_mfma_f32_16x16x32_bf16 %0, %1, %1, 0" : "=a"(c) : "v"(zeros));
    }
  }
  MHA_SINK_DEVICE void add(Operand a, Operand b) {
    MHA_SINK_MFMA("%0, %1, %2, %0", "+a"(c) : "v"(a), "v"(b));
  }
  MHA_SINK_DEVICE auto ready() {
    if constexpr (kRows == 32) {
      asm volatile("s_nop 11" : "+a"(c));
    } else {
      asm volatile("s_nop 7" : "+a"(c));
    }
    return c;
  }
};

#undef MHA_SINK_MFMA

// An element of a ResidentAccumulator after ready(), times a factor: it stays in its register.
MHA_SINK_DEVICE float multiply_resident(float element, float factor) {
  float moved;
  asm volatile(
      "v_accvgpr_read_b32 %1, %0\n\t"
      "v_mul_f32 %1, %1, %2\n\t"
      "v_accvgpr_write_b32 %0, %1"
      : "+a"(element), "=&v"(moved)
      : "v"(factor));
  return element;
}

}  // namespace mha_sink::arch
