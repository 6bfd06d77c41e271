// The part of dKV that each slot of a token contributes: interm = dS^T q + P^T do, summed over all
// heads. See docs/kernels/sparse_mla.md.
#pragma once

#include "hip/arch/mfma.h"
#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/sparse_mla/head_block.h"
#include "hip/sparse_mla/slot_gradient.h"
#include "hip/tile/exchange_tile.h"
#include "hip/tile/packed_columns.h"
#include "hip/tile/pipeline.h"

namespace mha_sink::sparse_mla {

// kHeads_: all heads of a call, 16, 32, 64 or 128. They are the depth of 32 x 32 products.
template <Dtype kDtype_, int kHeads_>
struct DkvSlotsConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeads = kHeads_;
  static constexpr int kWaves = 4, kThreads = kWaves * kWaveSize;
  // As dq made P and dS.
  static constexpr int kBlockHeads = min(kHeads, 32), kHeadBlocks = kHeads / kBlockHeads;
  static constexpr int kWaveDimBlocks = kHeadDim / 32 / kWaves;

  struct HeadTiles {
    LdsTile<kBlockHeads, kHeadDim> q, dout;
  };
  struct ScoreTiles {
    ExchangeTile<kHeads> p, ds;
  };
  struct LdsPlan {
    // q and do pass through the memory that the scores use afterwards.
    union {
      HeadTiles heads;
      ScoreTiles scores[2];
    };
    float largest[kWaves][kBlockSlots];  // of a slot, in the wave's part of D
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

template <class Config>
struct DkvSlots {
  static constexpr Dtype kDtype = Config::kDtype;
  static constexpr int kBlockSteps = Config::kBlockHeads / 16;
  static constexpr int kSteps = kBlockSteps * Config::kHeadBlocks;
  using Block = PackedBlock<Config::kBlockHeads>;
  // Packed blocks of P and dS of one block of slots, spread over the waves.
  static constexpr int kBlocks = 2 * Config::kHeadBlocks;
  static constexpr int kWaveBlocks = (kBlocks + Config::kWaves - 1) / Config::kWaves;

  const DkvSlotsParams& p;
  typename Config::LdsPlan& lds;
  const uint32_t lane = lane_id();
  const int wave = wave_id();
  const int token = workgroup_id_x();

  // The wave's quarter of D (rows) times all heads (depth), in registers throughout.
  ResidentOperand q[Config::kWaveDimBlocks][kSteps], dout[Config::kWaveDimBlocks][kSteps];
  Block next[kWaveBlocks];

  MHA_SINK_DEVICE DkvSlots(const DkvSlotsParams& params, typename Config::LdsPlan& plan)
      : p(params), lds(plan) {}

  MHA_SINK_DEVICE void load_operands() {
    const Buffer q_rows = token_buffer(p.q, token, p.heads);
    const Buffer dout_rows = token_buffer(p.dout, token, p.heads);
    StagedTile<Config::kBlockHeads, kHeadDim, Config::kThreads> staged_q, staged_dout;
    const auto stage_heads = [&](int hb) {
      staged_q.load_at(q_rows, hb * Config::kBlockHeads * kRowBytes, kRowBytes);
      staged_dout.load_at(dout_rows, hb * Config::kBlockHeads * kRowBytes, kRowBytes);
    };
    stage_heads(0);
#pragma unroll
    for (int hb = 0; hb < Config::kHeadBlocks; ++hb) {
      if (hb > 0) workgroup_barrier();
      staged_q.store(lds.heads.q);
      staged_dout.store(lds.heads.dout);
      workgroup_barrier();
      if (hb + 1 < Config::kHeadBlocks) stage_heads(hb + 1);
#pragma unroll
      for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
        const int block = wave * Config::kWaveDimBlocks + i;
#pragma unroll
        for (int s = 0; s < kBlockSteps; ++s) {
          const int step = kBlockSteps * hb + s;
          q[i][step].value = lds.heads.q.load_columns(lane, 16 * s, block);
          dout[i][step].value = lds.heads.dout.load_columns(lane, 16 * s, block);
        }
      }
    }
  }

  // Block `wave + i * kWaves` of P (the first half) and dS (the second).
  MHA_SINK_DEVICE void stage(int slot_block) {
    const int64_t chunk_blocks = (p.chunk.slots + kBlockSlots - 1) / kBlockSlots;
    const int64_t first = (token * chunk_blocks + slot_block) * Config::kHeadBlocks;
#pragma unroll
    for (int i = 0; i < kWaveBlocks; ++i) {
      const int block = wave + i * Config::kWaves;
      if (kBlocks % Config::kWaves != 0 && block >= kBlocks) break;
      const void* blocks = block < Config::kHeadBlocks ? p.p : p.ds;
      const u32x4* base = static_cast<const u32x4*>(blocks) +
                          (first + block % Config::kHeadBlocks) * Block::kOperands * kWaveSize +
                          lane;
#pragma unroll
      for (int s = 0; s < Block::kOperands; ++s) {
        const u32x4 words = base[s * kWaveSize];
#pragma unroll
        for (int w = 0; w < 4; ++w) next[i].word[4 * s + w] = words[w];
      }
    }
  }

  MHA_SINK_DEVICE void store_staged(typename Config::ScoreTiles& tiles) {
#pragma unroll
    for (int i = 0; i < kWaveBlocks; ++i) {
      const int block = wave + i * Config::kWaves;
      if (kBlocks % Config::kWaves != 0 && block >= kBlocks) break;
      auto& tile = block < Config::kHeadBlocks ? tiles.p : tiles.ds;
      tile.store(lane, block % Config::kHeadBlocks * Config::kBlockHeads, next[i]);
    }
  }

  // The slot's scale, from all of D.
  MHA_SINK_DEVICE float slot_scale(const VectorAccumulator<kDtype> (&sum)[Config::kWaveDimBlocks]) {
    static_assert(Config::kWaveDimBlocks == 4);
    float part[4] = {};
#pragma unroll
    for (int r = 0; r < 16; r += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        part[i] = largest_magnitude(part[i], sum[i].c[r], sum[i].c[r + 1]);
      }
    }
    float largest = largest_magnitude(largest_magnitude(part[0], part[1], part[2]), part[3], 0.0f);
    // Lanes l and l + 32 write one place: both have the larger of their halves.
    lds.largest[wave][lane % 32] =
        combine_column<32>(largest, [](float a, float b) { return largest_magnitude(a, b, b); });
    workgroup_barrier();
    largest = 0.0f;
#pragma unroll
    for (int w = 0; w < Config::kWaves; w += 2) {
      largest =
          largest_magnitude(largest, lds.largest[w][lane % 32], lds.largest[w + 1][lane % 32]);
    }
    return gradient_scale(largest);
  }

  MHA_SINK_DEVICE void products(typename Config::ScoreTiles& tiles, int slot0, int slots) {
    VectorAccumulator<kDtype> sum[Config::kWaveDimBlocks];
    struct Operands {
      Operand ds, p;
    };
    pipelined<kSteps, 2>(
        [&](int step) {
          return Operands{tiles.ds.load(lane, 16 * step), tiles.p.load(lane, 16 * step)};
        },
        [&](int step, const Operands& operands) {
#pragma unroll
          for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
            add_or_start(sum[i], step, q[i][step], operands.ds);
          }
#pragma unroll
          for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
            sum[i].add(dout[i][step], operands.p);
          }
        });
#pragma unroll
    for (auto& block : sum) block.c = block.ready();
    const float scale = slot_scale(sum), factor = inverse_scale(scale);
    const int64_t first = int64_t{token} * p.chunk.slots + slot0;
    const Buffer interm = make_buffer(p.interm + first * kHeadDim, slots * kRowBytes);
    const uint32_t slot = lane % 32;
    if (wave == 0 && lane < static_cast<uint32_t>(slots)) p.interm_scale[first + lane] = scale;
#pragma unroll
    for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
      const PackedColumns packed = pack_columns_by(
          sum[i].c, [=](float low, float high) { return pack_int16(low, high, factor); });
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const uint32_t dim = (wave * Config::kWaveDimBlocks + i) * 32 + PackedColumns::row(lane, g);
        if (slot < static_cast<uint32_t>(slots)) {
          buffer_store_16_bytes(interm, slot * kRowBytes + dim * 2, packed.chunk[g]);
        }
      }
    }
  }

  MHA_SINK_DEVICE void run() {
    const int count = scalar_load(p.slot_count + token);
    const int slots = min(count - p.chunk.slot0, p.chunk.slots);
    if (slots <= 0) return;
    stage(0);
    load_operands();
    workgroup_barrier();
    const int blocks = (slots + kBlockSlots - 1) / kBlockSlots;
    for (int block = 0; block < blocks; ++block) {
      typename Config::ScoreTiles& tiles = lds.scores[block % 2];
      store_staged(tiles);
      workgroup_barrier();
      stage(min(block + 1, blocks - 1));
      const int left = min(slots - block * kBlockSlots, kBlockSlots);
      products(tiles, block * kBlockSlots, left);
    }
  }
};

}  // namespace mha_sink::sparse_mla
