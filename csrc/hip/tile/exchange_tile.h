// A 16-bit matrix that waves write from packed accumulators and read back transposed.
#pragma once

#include "hip/arch/lds.h"
#include "hip/arch/mfma.h"
#include "hip/arch/types.h"

namespace mha_sink::tile {

using namespace arch;

// 32 rows x kColumns columns of accumulators, rounded to 16 bits: the MFMA operands of depth 32.
// Word w of lane l holds of column l % kColumns
//  * kColumns 32: rows 8 * (w / 2) + 4 * (l / 32) + 2 * (w % 2) + 0..1, a 32 x 32 accumulator;
//  * kColumns 16: rows 8 * (l / 16) + 2 * w + 0..1, two 16 x 16 accumulators.
template <int kColumns = 32>
struct PackedBlock {
  static constexpr int kWords = kColumns / 4, kOperands = kWords / 4;
  uint32_t word[kWords];

  MHA_SINK_DEVICE Operand operand(int step) const {
    return {word[4 * step], word[4 * step + 1], word[4 * step + 2], word[4 * step + 3]};
  }
};

// kColumns columns of 32 rows each, column-major: 64 bytes a column as 8 chunks of 8 bytes, chunk c
// of column j at position c ^ (j / 2 % 8). ds_write_b64 sees 32 banks and 16 lanes a phase: 16
// adjacent columns of one chunk land in 16 different slots. ds_read_b64_tr_b16 reads 4 whole
// columns a phase, which the permutation inside a column does not disturb.
template <int kColumns>
struct ExchangeTile {
  static constexpr int kColumnBytes = 64;
  char bytes[kColumns * kColumnBytes];

  static constexpr MHA_SINK_DEVICE uint32_t offset(uint32_t column, uint32_t chunk) {
    return column * kColumnBytes + (chunk ^ (column / 2 % 8)) * 8;
  }

  // Writes columns column0.. (a multiple of kBlockColumns).
  template <int kBlockColumns>
  MHA_SINK_DEVICE void store(uint32_t lane, int column0, const PackedBlock<kBlockColumns>& block) {
    const LdsBytes base = lds_bytes(bytes) + column0 * kColumnBytes;
#pragma unroll
    for (int g = 0; g < block.kWords / 2; ++g) {
      const u32x2 words = {block.word[2 * g], block.word[2 * g + 1]};
      const uint32_t chunk = kBlockColumns == 32 ? 2 * g + lane / 32 : 2 * (lane / 16) + g;
      lds_write(base + offset(lane % kBlockColumns, chunk), words);
    }
  }

  // MFMA operand whose rows are the 32 rows and whose depth is columns column0..+15, a multiple of
  // 16, in the slot order of LdsTile::load_columns.
  MHA_SINK_DEVICE Operand load(uint32_t lane, int column0) {
    const uint32_t in_group = lane % 16;
    const uint32_t column = 4 * (lane / 32) + in_group / 4;
    const uint32_t chunk = 4 * (lane / 16 % 2) + in_group % 4;
    const LdsBytes base = lds_bytes(bytes) + column0 * kColumnBytes;
    const u32x2 first = lds_read_transposed(base + offset(column, chunk));
    const u32x2 second = lds_read_transposed(base + offset(column + 8, chunk));
    return Operand{first.x, first.y, second.x, second.y};
  }
};

}  // namespace mha_sink::tile
