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

// pack(low, high): two elements in 32 bits.
template <class Pack>
MHA_SINK_DEVICE PackedColumns pack_columns_by(f32x16 block, Pack&& pack) {
  PackedColumns packed;
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      word[w] = pack(block[8 * g + 2 * w], block[8 * g + 2 * w + 1]);
    }
    swap_halves(word[0], word[2]);
    swap_halves(word[1], word[3]);
    packed.chunk[g] = u32x4{word[0], word[1], word[2], word[3]};
  }
  return packed;
}

template <Dtype kDtype>
MHA_SINK_DEVICE PackedColumns pack_columns(f32x16 block) {
  return pack_columns_by(block, [](float low, float high) { return pack<kDtype>(low, high); });
}

// Two 16 x 16 accumulators, of rows 0..15 and 16..31: lane l gets rows
// 16 * (l / 16 % 2) + 8 * (l / 32)..+7 of column l % 16.
template <Dtype kDtype>
MHA_SINK_DEVICE u32x4 pack_columns(f32x4 low, f32x4 high) {
  uint32_t low_word[2] = {pack<kDtype>(low[0], low[1]), pack<kDtype>(low[2], low[3])};
  uint32_t high_word[2] = {pack<kDtype>(high[0], high[1]), pack<kDtype>(high[2], high[3])};
#pragma unroll
  for (int w = 0; w < 2; ++w) swap_odd_rows(low_word[w], high_word[w]);
  return {low_word[0], low_word[1], high_word[0], high_word[1]};
}

}  // namespace mha_sink::tile
