// Rows of the tensors in params.h.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/mha/params.h"

namespace mha_sink::mha {

using namespace arch;

// First element of a row; elements are 16 bits wide whatever their type.
template <class Tensor16>
MHA_SINK_DEVICE uint16_t* row_pointer(const Tensor16& tensor, int batch, int row, int head) {
  return static_cast<uint16_t*>(const_cast<void*>(static_cast<const void*>(tensor.data))) +
         batch * tensor.batch_stride + row * tensor.seqlen_stride + head * tensor.nhead_stride;
}

// `rows` rows from `first` on as a buffer: rows past them read as 0 (unless rows overlap in memory,
// where they repeat data of rows that exist).
template <class Tensor16>
MHA_SINK_DEVICE Buffer row_buffer(const Tensor16& tensor, const uint16_t* first, int rows,
                                  int hdim) {
  const int row_stride = static_cast<int>(tensor.seqlen_stride);  // below kMaxRowStride
  return make_buffer(first, rows > 0 ? ((rows - 1) * row_stride + hdim) * 2 : 0);
}
template <class Tensor16>
MHA_SINK_DEVICE Buffer row_buffer(const Tensor16& tensor, int batch, int row0, int head, int rows,
                                  int hdim) {
  return row_buffer(tensor, row_pointer(tensor, batch, row0, head), rows, hdim);
}

// Bytes between the rows of such a buffer; kMaxRowStride keeps offsets within a tile in 32 bits.
template <class Tensor16>
MHA_SINK_DEVICE int row_bytes(const Tensor16& tensor) {
  return static_cast<int>(tensor.seqlen_stride) * 2;
}

// Lanes that share a row in a row kernel, 16 bytes each.
template <class Kernel, class... Args>
MHA_SINK_DEVICE void with_row_lanes(int hdim, Args&... args) {
  if (hdim <= 64) {
    Kernel::template run<8>(args...);
  } else if (hdim <= 128) {
    Kernel::template run<16>(args...);
  } else {
    Kernel::template run<32>(args...);
  }
}

}  // namespace mha_sink::mha
