// The heads of one matrix instruction, 32 or 16: where they, slots and D lie in its registers.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/mfma.h"
#include "hip/arch/types.h"
#include "hip/sparse_mla/params.h"
#include "hip/tile/lds_tile.h"
#include "hip/tile/packed_columns.h"
#include "hip/tile/reduce.h"

namespace mha_sink::sparse_mla {

using namespace tile;

// All heads of a token as a buffer: heads past H read as 0 and are not written.
MHA_SINK_DEVICE Buffer token_buffer(const void* tensor, int token, int heads) {
  const char* base = static_cast<const char*>(tensor) + int64_t{token} * heads * kRowBytes;
  return make_buffer(base, static_cast<uint32_t>(heads * kRowBytes));
}

template <int kHeads>
struct HeadBlockRegisters {
  using Type = f32x16;
};
template <>
struct HeadBlockRegisters<16> {
  using Type = f32x8;
};

// Heads are columns, and a lane has one, lane % kHeads. 32 slots, or 32 columns of D, are the rows:
// one 32 x 32 accumulator, or two of 16 x 16. For 16 heads the first of two takes slots
// 0..3, 8..11, 16..19 and 24..27, so that a lane's registers hold 8 adjacent slots and its reads of
// kv, by rows and by columns, meet no bank conflict in an LdsTile.
template <int kHeads_>
struct HeadBlock {
  static constexpr int kHeads = kHeads_;
  static constexpr int kParts = 32 / kHeads;         // accumulators for 32 rows
  static constexpr int kRegisters = kHeads / 2;      // of those
  static constexpr int kDepth = kMfmaDepth<kHeads>;  // columns of D, or slots, of one product
  static constexpr int kSteps = kHeadDim / kDepth;
  static constexpr int kSlotSteps = kBlockSlots / kDepth;

  using Registers = typename HeadBlockRegisters<kHeads>::Type;
  template <Dtype kDtype>
  using Vector = VectorAccumulator<kDtype, kHeads>;
  template <Dtype kDtype>
  using Resident = ResidentAccumulator<kDtype, kHeads>;

  // Of a block of 32 slots: the slot of register r, counted over the parts.
  static constexpr MHA_SINK_DEVICE uint32_t slot(uint32_t lane, uint32_t r) {
    return kHeads == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 8 * (lane / 16) + r;
  }

  // Whether register r is a slot below `slots`.
  static constexpr MHA_SINK_DEVICE bool is_slot(uint32_t lane, int r, int slots) {
    return static_cast<int>(slot(0, r)) < slots - static_cast<int>(slot(lane, 0));
  }

  // Of one accumulator: the row of register r.
  static constexpr MHA_SINK_DEVICE uint32_t row(uint32_t lane, uint32_t r) {
    return kHeads == 32 ? slot(lane, r) : 4 * (lane / 16) + r;
  }

  // Of 32 columns of D: the column of register r, counted over the parts. 4 registers from a
  // multiple of 4 on hold adjacent ones.
  static constexpr MHA_SINK_DEVICE uint32_t dim(uint32_t lane, uint32_t r) {
    return kHeads == 32 ? slot(lane, r) : 16 * (r / 4) + row(lane, r % 4);
  }

  // The accumulators' registers, once their products are ready.
  template <class Accumulator>
  static MHA_SINK_DEVICE Registers join(Accumulator (&part)[kParts]) {
    if constexpr (kHeads == 32) {
      return part[0].ready();
    } else {
      const f32x4 low = part[0].ready(), high = part[1].ready();
      return f32x8{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
    }
  }

  // Heads head0.. and columns kDepth * step.. of D, from memory: as A or B.
  static MHA_SINK_DEVICE Operand load(Buffer token, uint32_t lane, int head0, int step) {
    return buffer_load_16_bytes(
        token, (head0 + lane % kHeads) * kRowBytes + lane / kHeads * 16 + step * kDepth * 2);
  }

  // Slots slot0..slot0+31 (of them a part) and columns kDepth * step.. of D.
  template <class Tile>
  static MHA_SINK_DEVICE Operand load_slots(Tile& kv, uint32_t lane, int slot0, int step,
                                            int part) {
    if constexpr (kHeads == 32) return kv.load_rows(lane, slot0, step);
    return kv.load_16_rows(lane, slot0, step, part);
  }

  // Columns kHeads * block.. of D and slots kDepth * step.. in the order of slot().
  template <class Tile>
  static MHA_SINK_DEVICE Operand load_columns(Tile& kv, uint32_t lane, int step, int block) {
    if constexpr (kHeads == 32) return kv.load_columns(lane, step * kDepth, block);
    return kv.load_16_columns(lane, step * kDepth, block);
  }

  // 32 columns of D, as joined, to the rows of a token.
  template <Dtype kDtype>
  static MHA_SINK_DEVICE void store(Buffer token, uint32_t lane, int head0, uint32_t dim0,
                                    Registers block) {
    const uint32_t base = (head0 + lane % kHeads) * kRowBytes + dim0 * 2;
    if constexpr (kHeads == 32) {
      const PackedColumns packed = pack_columns<kDtype>(block);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        buffer_store_16_bytes(token, base + PackedColumns::row(lane, g) * 2, packed.chunk[g]);
      }
    } else {
      const uint32_t row = 16 * (lane / 16 % 2) + 8 * (lane / 32);
      buffer_store_16_bytes(token, base + row * 2, pack_columns<kDtype>(block.lo, block.hi));
    }
  }
};

// What dq and fwd have in common: kHeads_ heads a workgroup, 16, 32 or 64.
template <Dtype kDtype_, int kHeads_>
struct TokenConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeads = kHeads_;
  static constexpr int kWaves = 4, kThreads = kWaves * kWaveSize;
  using Heads = HeadBlock<min(kHeads, 32)>;
  static constexpr int kHeadBlocks = kHeads / Heads::kHeads;

  // A wave computes the scores of one head block and one of these slot blocks, then what is summed
  // over slots for its head block, one part of D and all slot blocks.
  static constexpr int kSlotBlocks = kWaves / kHeadBlocks;
  static constexpr int kSlots = kSlotBlocks * kBlockSlots;
  static constexpr int kWaveDimBlocks = kHeadDim / 32 / kSlotBlocks;  // of 32 columns

  // Whether the next tile of slots is loaded beside the products of this one. The operands of 32
  // heads leave no registers for it.
  static constexpr bool kPrefetch = kHeads != 32;
  // Of 32 rows a wave, those that vector registers do not hold beside the operands of 16 heads.
  static constexpr int kResidentRows = kHeads == 16 ? 12 : 0;
};

}  // namespace mha_sink::sparse_mla
