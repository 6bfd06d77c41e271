// Products whose A stays in accumulation registers, which leaves the vector registers to what VALU
// instructions use. ResidentOperand of arch/mfma.h is the same for B.
#pragma once

#include "hip/arch/mfma.h"

namespace mha_sink::arch {

// The rules of arch/mfma.h hold. `a` is resident.
template <Dtype kDtype>
MHA_SINK_DEVICE void start_with_resident_rows(VectorAccumulator<kDtype>& sum, Operand a,
                                              Operand b) {
  if constexpr (kDtype == Dtype::bf16) {
    asm("v_mfma_f32_32x32x16_bf16 %0, %1, %2, 0" : "=&v"(sum.c) : "a"(a), "v"(b));
  } else {
    asm("v_mfma_f32_32x32x16_f16 %0, %1, %2, 0" : "=&v"(sum.c) : "a"(a), "v"(b));
  }
}

template <Dtype kDtype>
MHA_SINK_DEVICE void add_with_resident_rows(VectorAccumulator<kDtype>& sum, Operand a, Operand b) {
  if constexpr (kDtype == Dtype::bf16) {
    asm("v_mfma_f32_32x32x16_bf16 %0, %1, %2, %0" : "+v"(sum.c) : "a"(a), "v"(b));
  } else {
    asm("v_mfma_f32_32x32x16_f16 %0, %1, %2, %0" : "+v"(sum.c) : "a"(a), "v"(b));
  }
}

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
