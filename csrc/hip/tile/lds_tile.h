// 16-bit matrices in LDS, swizzled so that reading them by rows and by columns is free of bank
// conflicts, and their transfer from global memory.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/lds.h"
#include "hip/arch/mfma.h"
#include "hip/arch/types.h"

namespace mha_sink::tile {

using namespace arch;

// kRows rows of kColumns 16-bit elements. A row is kept as chunks of 16 bytes; chunk c of row r
// lies at position c ^ swizzle(r). LDS has 64 banks of 4 bytes: 16 chunks a clock.
//  * By rows (ds_read_b128), the lanes of a phase read the same chunk of 16 rows that differ modulo
//    16: they must hit 16 different slots.
//  * By columns (ds_read_b64_tr_b16), a phase reads 4 adjacent rows of 4 adjacent chunks, aligned:
//    the rows must hit different groups of 4 slots.
// Where a row begins, modulo 16 slots, already depends on some bits of the row; swizzle adds the
// others, bits 0..1 to the high and bits 2..3 to the low chunk bits.
template <int kRows, int kColumns>
struct LdsTile {
  static_assert(kColumns % 32 == 0);
  static_assert(kRows % 16 == 0);
  static constexpr int kRowBytes = kColumns * 2;

  char bytes[kRows * kRowBytes];

  // swizzle moves chunks within aligned groups of this many.
  static constexpr uint32_t kGroup = kColumns % 128 == 0 ? 16 : kColumns % 64 == 0 ? 8 : 4;

  static constexpr MHA_SINK_DEVICE uint32_t swizzle(uint32_t row) {
    if constexpr (kGroup == 16) return (row & 3) << 2 | ((row >> 2) & 3);
    if constexpr (kGroup == 8) return (row & 2) << 1 | ((row >> 2) & 3);  // begins at 8 * row
    return (row >> 2) & 3;  // begins at 4 * row or 12 * row
  }

  // Of chunk fixed + lane_part, which lie in one group. The group's part is a constant where fixed
  // is one: it becomes the instruction's offset, and few lane offsets serve all chunks of a row.
  static constexpr MHA_SINK_DEVICE uint32_t offset(uint32_t row, uint32_t fixed,
                                                   uint32_t lane_part) {
    return row * kRowBytes + fixed / kGroup * kGroup * 16 +
           ((fixed % kGroup + lane_part) ^ swizzle(row)) * 16;
  }

  // MFMA operand whose rows (or columns) are rows row0..row0+31 of the tile and whose depth is
  // columns 16 * step..+15. row0 is a multiple of 32.
  MHA_SINK_DEVICE Operand load_rows(uint32_t lane, int row0, int step) {
    const uint32_t lane_offset = offset(lane % 32, 2 * step, lane / 32);
    return lds_read<Operand>(lds_bytes(bytes) + lane_offset + row0 * kRowBytes);
  }

  // Operand of an MFMA with 16 rows, of which two make rows row0..row0+31: rows 8 * i + 4 * part +
  // 0..3, i below 4, and columns 32 * step..+31 as depth. row0 is a multiple of 32.
  MHA_SINK_DEVICE Operand load_16_rows(uint32_t lane, int row0, int step, int part) {
    const uint32_t row = 8 * (lane % 16 / 4) + lane % 4;
    const uint32_t lane_offset = offset(row + 4 * part, 4 * step, lane / 16);
    return lds_read<Operand>(lds_bytes(bytes) + lane_offset + row0 * kRowBytes);
  }

  // Operand of an MFMA with 16 rows, which are columns 16 * block..+15; its depth is rows
  // row0..row0+31 in their order. row0 is a multiple of 32.
  MHA_SINK_DEVICE Operand load_16_columns(uint32_t lane, int row0, int block) {
    const uint32_t in_group = lane % 16;
    const uint32_t row = 8 * (lane / 16) + in_group / 4;
    const uint32_t column = 4 * (in_group % 4);
    const uint32_t half_chunk = column % 8 * 2;
    const LdsBytes base = lds_bytes(bytes) + row0 * kRowBytes;
    const u32x2 first = lds_read_transposed(base + offset(row, 2 * block, column / 8) + half_chunk);
    const u32x2 second =
        lds_read_transposed(base + offset(row + 4, 2 * block, column / 8) + half_chunk);
    return Operand{first.x, first.y, second.x, second.y};
  }

  // MFMA operand whose rows (or columns) are columns 32 * block..+31 of the tile and whose depth is
  // rows row0..row0+15, row0 a multiple of 16. Slot j of lane half h holds row
  // row0 + 8 * (j / 4) + 4 * h + j % 4: the order in which an accumulator's registers hold rows, so
  // that the other operand can be a packed accumulator as it is.
  MHA_SINK_DEVICE Operand load_columns(uint32_t lane, int row0, int block) {
    const uint32_t in_group = lane % 16;
    const uint32_t row = 4 * (lane / 32) + in_group / 4;
    const uint32_t column = 16 * (lane / 16 % 2) + 4 * (in_group % 4);
    const uint32_t half_chunk = column % 8 * 2;
    const uint32_t low = offset(row, 4 * block, column / 8) + half_chunk;
    const uint32_t high = offset(row + 8, 4 * block, column / 8) + half_chunk;
    const LdsBytes base = lds_bytes(bytes) + row0 * kRowBytes;
    const u32x2 first = lds_read_transposed(base + low);
    const u32x2 second = lds_read_transposed(base + high);
    return Operand{first.x, first.y, second.x, second.y};
  }
};

// kRows rows on their way from global memory to LDS, in the registers of kThreads threads.
template <int kRows, int kColumns, int kThreads>
struct StagedTile {
  static constexpr int kRowChunks = kColumns / 8;
  static constexpr int kPerThread = kRows * kRowChunks / kThreads;
  static_assert(kPerThread * kThreads == kRows * kRowChunks);

  u32x4 chunk[kPerThread];

  // Whole rows from byte `offset` of a buffer on.
  MHA_SINK_DEVICE void load_at(Buffer buffer, uint32_t offset, int row_bytes) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const uint32_t index = thread_id() + i * kThreads;
      const uint32_t row = index / kRowChunks, c = index % kRowChunks;
      chunk[i] = buffer_load_16_bytes(buffer, offset + row * row_bytes + c * 16);
    }
  }

  // Columns from `columns` on, a multiple of 8, become 0.
  MHA_SINK_DEVICE void load(Buffer rows, int row_bytes, int columns) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const uint32_t index = thread_id() + i * kThreads;
      const int row = index / kRowChunks, c = index % kRowChunks;
      const uint32_t offset = row * row_bytes + c * 16;
      chunk[i] = buffer_load_16_bytes(rows, c * 8 < columns ? offset : kOutOfRange);
    }
  }

  // The rows have arrived where this returns: the compiler waits for them here, not at their use.
  MHA_SINK_DEVICE void await() {
#pragma unroll
    for (u32x4& part : chunk) opaque(part);
  }

  // To rows row0..row0+kRows-1 of the tile; row0 is a multiple of 16, so that swizzle(row0) is 0.
  template <int kTileRows>
  MHA_SINK_DEVICE void store(LdsTile<kTileRows, kColumns>& tile, int row0 = 0) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const uint32_t index = thread_id() + i * kThreads;
      const uint32_t row = index / kRowChunks, c = index % kRowChunks;
      const uint32_t offset = LdsTile<kTileRows, kColumns>::offset(row, 0, c);
      lds_write(lds_bytes(tile.bytes) + offset + row0 * kColumns * 2, chunk[i]);
    }
  }
};

}  // namespace mha_sink::tile
