// Accumulators rounded to 16 bits for memory: long runs of a column's rows in each lane.
#pragma once

#include "hip/arch/math.h"
#include "hip/arch/sync.h"
#include "hip/arch/types.h"

namespace mha_sink::tile {

using namespace arch;

// A 32 x 32 accumulator as two chunks of 16 bytes a lane: chunk g of lane l holds rows
// 16 * g + 8 * (l / 32)..+7 of column l % 32. The registers of a lane hold 4 adjacent rows; the
// other half of the wave has the next 4.
struct PackedColumns {
  u32x4 chunk[2];

  static constexpr MHA_SINK_DEVICE uint32_t row(uint32_t lane, int g) {
    return 16 * g + 8 * (lane / 32);
  }
};

template <Dtype kDtype>
MHA_SINK_DEVICE PackedColumns pack_columns(f32x16 block) {
  PackedColumns packed;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      word[w] = pack<kDtype>(block[8 * g + 2 * w], block[8 * g + 2 * w + 1]);
    }
    swap_halves(word[0], word[2]);
    swap_halves(word[1], word[3]);
    packed.chunk[g] = u32x4{word[0], word[1], word[2], word[3]};
  }
  return packed;
}

}  // namespace mha_sink::tile
