// Parts of registers: what the compiler makes of bytes and halves (SDWA, integer dot products), and
// every SDWA select of one instruction.
#include "gfx950.h"

using f16x2 = _Float16 __attribute__((ext_vector_type(2)));
using i8x4 = signed char __attribute__((ext_vector_type(4)));
using u16x2 = uint16_t __attribute__((ext_vector_type(2)));

KERNEL compiled_bytes(const uint32_t* x, const uint32_t* y, uint32_t* out) {
  const uint32_t a = x[lane_id()], b = y[lane_id()];
  out[lane_id()] = (a >> 8 & 0xff) + (b >> 16 & 0xff);
  out[64 + lane_id()] = (a & 0xffff) * (b >> 16);
  out[128 + lane_id()] = (int8_t)(a >> 8) + (int16_t)b;
  out[192 + lane_id()] = (a >> 16 & 0xff) < (b & 0xff) ? a : b;
  out[256 + lane_id()] = (((a >> 24) + (b & 0xff)) & 0xff) | ((a & 0xff) ^ b >> 24) << 8;
}

KERNEL compiled_halves(const f16x2* x, const f16x2* y, _Float16* out) {
  const f16x2 a = x[lane_id()], b = y[lane_id()];
  out[lane_id()] = a[1] * b[0];
  out[64 + lane_id()] = b[1] - a[1];
}

KERNEL compiled_sums(const i8x4* x, const i8x4* y, int32_t* out, const u16x2* z) {
  const i8x4 a = x[lane_id()], b = y[lane_id()];
  int32_t dot = lane_id(), distance = 0;
  for (int i = 0; i < 4; ++i) {
    dot += a[i] * b[i];
    const int32_t difference = (uint8_t)a[i] - (uint8_t)b[i];
    distance += difference < 0 ? -difference : difference;
  }
  out[lane_id()] = dot;
  out[64 + lane_id()] = distance;
  const u16x2 c = __builtin_bit_cast(u16x2, a), d = __builtin_bit_cast(u16x2, b);
  const u16x2 sum = c * d + z[lane_id()];
  out[128 + lane_id()] = __builtin_bit_cast(int32_t, sum);
}

KERNEL integer_sums(const uint32_t* x, const uint32_t* y, uint32_t* out) {
  const uint32_t a = x[lane_id()], b = y[lane_id()], c = lane_id();
  uint32_t result;
// A dot product needs 3 wait states before its result is read.
#define SUM(name)                                                                         \
  asm volatile(name " %0, %1, %2, %3\n s_nop 2" : "=v"(result) : "v"(a), "v"(b), "v"(c)); \
  out[lane_id()] = result;                                                                \
  out += 64;
  SUM("v_sad_u8")
  SUM("v_sad_hi_u8")
  SUM("v_msad_u8")
  SUM("v_sad_u16")
  SUM("v_sad_u32")
  SUM("v_dot2_i32_i16")
  SUM("v_dot2_u32_u16")
  SUM("v_dot4_i32_i8")
  SUM("v_dot4_u32_u8")
  SUM("v_dot8_i32_i4")
  SUM("v_dot8_u32_u4")
#undef SUM
}

// Lanes of the upper half of each row are off and keep what the destination held.
KERNEL sdwa_selects(const uint32_t* x, const uint32_t* y, uint32_t* out) {
  const uint32_t a = x[lane_id()], b = y[lane_id()];
  uint32_t result = 0;
#define ADD(first, second, modifiers)                                  \
  result = ~a;                                                         \
  if (lane_id() % 16 < 8) {                                            \
    asm volatile("v_add_u32_sdwa %0, " first ", " second " " modifiers \
                 : "+v"(result)                                        \
                 : "v"(a), "v"(b));                                    \
  }                                                                    \
  out[lane_id()] = result;                                             \
  out += 64;
  ADD("%1", "%2", "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD")
  ADD("%1", "%2", "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_1")
  ADD("sext(%1)", "%2", "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:BYTE_2")
  ADD("%1", "sext(%2)", "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:WORD_1")
  ADD("%1", "%2", "dst_sel:BYTE_0 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD")
  ADD("%1", "%2", "dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:DWORD src1_sel:DWORD")
  ADD("%1", "%2", "dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD")
  ADD("%1", "%2", "dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD")
  ADD("%1", "%2", "dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:DWORD src1_sel:DWORD")
  ADD("%1", "%2", "dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:BYTE_1")
#undef ADD
}
