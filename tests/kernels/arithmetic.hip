// Scalar functions over arrays: each kernel applies one of them to x[i] and y[i].
#include "gfx950.h"

namespace {

DEVICE uint32_t index() { return workgroup_id() * 256 + thread_id(); }

}  // namespace

#define BINARY(name, Type, Result, ...)                                \
  KERNEL name(const Type* x_array, const Type* y_array, Result* out) { \
    const Type x = x_array[index()];                                   \
    [[maybe_unused]] const Type y = y_array[index()];                  \
    out[index()] = __VA_ARGS__;                                        \
  }

// IEEE division: v_div_scale, v_rcp, v_fma, v_div_fmas, v_div_fixup.
BINARY(divide_f32, float, float, x / y)
BINARY(add_f32, float, float, x + y)
BINARY(multiply_f32, float, float, x* y)
BINARY(fma_f32, float, float, __builtin_fmaf(x, y, x))
BINARY(minimum_f32, float, float, __builtin_fminf(x, y))
BINARY(maximum_f32, float, float, __builtin_fmaxf(x, y))
BINARY(exp2_f32, float, float, __builtin_amdgcn_exp2f(x))
BINARY(log2_f32, float, float, __builtin_amdgcn_logf(x))
BINARY(reciprocal_f32, float, float, __builtin_amdgcn_rcpf(x))
BINARY(reciprocal_square_root_f32, float, float, __builtin_amdgcn_rsqf(x))
BINARY(to_bf16, float, uint16_t, __builtin_bit_cast(uint16_t, (__bf16)x))
BINARY(to_f16, float, uint16_t, __builtin_bit_cast(uint16_t, (_Float16)x))
BINARY(to_i32, float, int32_t, (int32_t)x)
BINARY(round_even_f32, float, float, __builtin_rintf(x))
BINARY(floor_f32, float, float, __builtin_floorf(x))

BINARY(divide_u32, uint32_t, uint32_t, x / y)
BINARY(multiply_high_u32, uint32_t, uint32_t, (uint32_t)((uint64_t)x * y >> 32))
BINARY(shift_right_i32, int32_t, int32_t, x >> (y & 31))
BINARY(minimum_i32, int32_t, int32_t, x < y ? x : y)
BINARY(bit_field_u32, uint32_t, uint32_t, x >> (y & 15) & 0x3ff)
BINARY(add_u64, uint64_t, uint64_t, x + y)
BINARY(subtract_u64, uint64_t, uint64_t, x - y)
BINARY(multiply_u64, uint64_t, uint64_t, x* y)
BINARY(shift_left_u64, uint64_t, uint64_t, x << (y & 63))
BINARY(less_i64, int64_t, uint32_t, x < y)

// v_pk_fma_f32, v_pk_mul_f32 and v_pk_add_f32 with swapped and negated halves.
KERNEL packed_f32(const f32x2* x_array, const f32x2* y_array, f32x2* out) {
  const f32x2 x = x_array[index()], y = y_array[index()];
  f32x2 fma, multiply, add;
  asm("v_pk_fma_f32 %0, %1, %2, %1 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0]"
      : "=v"(fma)
      : "v"(x), "v"(y));
  asm("v_pk_mul_f32 %0, %1, %2 op_sel_hi:[1,0]" : "=v"(multiply) : "v"(x), "v"(y));
  asm("v_pk_add_f32 %0, %1, %2 neg_lo:[0,1] neg_hi:[0,1]" : "=v"(add) : "v"(x), "v"(y));
  out[index() * 3] = fma;
  out[index() * 3 + 1] = multiply;
  out[index() * 3 + 2] = add;
}

// v_bitop3_b32 with two truth tables, v_perm_b32 and v_alignbit_b32.
KERNEL bit_operations(const uint32_t* x_array, const uint32_t* y_array, uint32_t* out) {
  const uint32_t x = x_array[index()], y = y_array[index()], z = x * 2654435761u + y;
  uint32_t first, second;
  asm("v_bitop3_b32 %0, %1, %2, %3 bitop3:0x36" : "=v"(first) : "v"(x), "v"(y), "v"(z));
  asm("v_bitop3_b32 %0, %1, %2, %3 bitop3:0xe4" : "=v"(second) : "v"(x), "v"(y), "v"(z));
  out[index() * 4] = first;
  out[index() * 4 + 1] = second;
  out[index() * 4 + 2] = __builtin_amdgcn_perm(x, y, 0x07020c05);
  out[index() * 4 + 3] = __builtin_amdgcn_alignbit(x, y, 11);
}

// |x|, -y, and a result clamped to [0, 1].
KERNEL modifiers(const float* x_array, const float* y_array, float* out) {
  const float x = x_array[index()], y = y_array[index()];
  float absolute, negated, clamped;
  asm("v_add_f32_e64 %0, |%1|, %2" : "=v"(absolute) : "v"(x), "v"(y));
  asm("v_fma_f32 %0, %1, -%2, %1" : "=v"(negated) : "v"(x), "v"(y));
  asm("v_add_f32_e64 %0, %1, %2 clamp" : "=v"(clamped) : "v"(x), "v"(y));
  out[index() * 3] = absolute;
  out[index() * 3 + 1] = negated;
  out[index() * 3 + 2] = clamped;
}
