// A dword that begins no gfx950 encoding, where an instruction is expected.
#include "gfx950.h"

KERNEL undefined_encoding(uint32_t* out) {
  out[thread_id()] = 1;
  asm volatile(".long 0xf8000000");  // undefined_encoding's fault
}
