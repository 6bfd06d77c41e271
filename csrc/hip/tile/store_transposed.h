// Accumulators to rows of a tensor in global memory.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/math.h"
#include "hip/arch/mfma.h"

namespace mha_sink::tile {

using namespace arch;

// Block [i][j] holds columns 32 * j.. of rows row0 + 32 * i.., transposed: a lane has 4 adjacent
// columns of one row in 4 registers. Rows from `rows` and columns from `columns` on are left out;
// columns is a multiple of 8.
template <Dtype kDtype, int kRowBlocks, int kColumnBlocks>
MHA_SINK_DEVICE void store_transposed(
    Buffer buffer, int row_bytes, int rows, int columns, int row0, uint32_t lane, float factor,
    ResidentAccumulator<kDtype> (&blocks)[kRowBlocks][kColumnBlocks]) {
#pragma unroll
  for (int i = 0; i < kRowBlocks; ++i) {
    const int row = row0 + i * 32 + lane % 32;
#pragma unroll
    for (int j = 0; j < kColumnBlocks; ++j) {
      const f32x16 block = blocks[i][j].ready() * factor;
#pragma unroll
      for (int r = 0; r < 16; r += 4) {
        const int column = j * 32 + 2 * r + 4 * (lane / 32);
        const uint32_t offset = row * row_bytes + column * 2;
        buffer_store_8_bytes(
            buffer, row < rows && column < columns ? offset : kOutOfRange,
            u32x2{pack<kDtype>(block[r], block[r + 1]), pack<kDtype>(block[r + 2], block[r + 3])});
      }
    }
  }
}

}  // namespace mha_sink::tile
