// LDS reads and writes. Addresses are pointers into a kernel's LDS plan.
#pragma once

#include "hip/arch/types.h"

namespace mha_sink::arch {

using LdsBytes = __attribute__((address_space(3))) char*;

template <class T>
MHA_SINK_DEVICE LdsBytes lds_bytes(T* shared) {
  return (LdsBytes)shared;
}

// ds_read_b128.
template <class T>
MHA_SINK_DEVICE T lds_read(LdsBytes address) {
  return *(__attribute__((address_space(3))) T*)address;
}

// ds_write_b32, b64 or b128 by the size of T.
template <class T>
MHA_SINK_DEVICE void lds_write(LdsBytes address, T value) {
  *(__attribute__((address_space(3))) T*)address = value;
}

// ds_read_b64_tr_b16: in each group of 16 lanes, lane i addresses 4 elements, columns 4 * (i % 4)
// and up, of row i / 4; lane q receives column q of the 4 rows. EXEC must be all ones.
MHA_SINK_DEVICE u32x2 lds_read_transposed(LdsBytes address) {
  using Vector = short __attribute__((vector_size(8)));
  return __builtin_bit_cast(u32x2, __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                                       (__attribute__((address_space(3))) Vector*)address));
}

}  // namespace mha_sink::arch
