// Arithmetic on 4-bit floats: gfx950 has it, the emulator does not.
#include "gfx950.h"

KERNEL unsupported_instruction(uint32_t* out) {
  uint32_t result = 0;
  asm volatile("v_cvt_scalef32_pk_fp4_f32 %0, %1, %1, 1.0"  // unsupported_instruction's fault
               : "+v"(result)
               : "v"(1.0f));
  out[thread_id()] = result;
}
