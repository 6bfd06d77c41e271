// The part of dKV that each slot of a token contributes: interm = dS^T q + P^T do, summed over all
// heads. See docs/kernels/sparse_mla.md.
#pragma once

#include "hip/arch/mfma.h"
#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/sparse_mla/gathered_tile.h"
#include "hip/tile/exchange_tile.h"
#include "hip/tile/packed_columns.h"
#include "hip/tile/pipeline.h"

namespace mha_sink::sparse_mla {

// kHeadBlocks_ blocks of 32 heads: 1, 2 or 4, all heads of a call.
template <Dtype kDtype_, int kHeadBlocks_>
struct DkvSlotsConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeadBlocks = kHeadBlocks_;
  static constexpr int kWaves = 4, kThreads = kWaves * kWaveSize;
  static constexpr int kHeads = kHeadBlocks * kBlockHeads;
  static constexpr int kWaveDimBlocks = kHeadDim / 32 / kWaves;

  struct HeadTiles {
    LdsTile<kBlockHeads, kHeadDim> q, dout;
  };
  struct ScoreTiles {
    ExchangeTile<kHeads> p, ds;
  };
  // q and do pass through the memory that the scores use afterwards.
  union LdsPlan {
    HeadTiles heads;
    ScoreTiles scores[2];
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

template <class Config>
struct DkvSlots {
  static constexpr Dtype kDtype = Config::kDtype;
  static constexpr int kSteps = Config::kHeads / 16;
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
  PackedBlock next[kWaveBlocks];

  MHA_SINK_DEVICE DkvSlots(const DkvSlotsParams& params, typename Config::LdsPlan& plan)
      : p(params), lds(plan) {}

  MHA_SINK_DEVICE void load_operands() {
    const Buffer q_rows = token_buffer(p.q, token, p.heads);
    const Buffer dout_rows = token_buffer(p.dout, token, p.heads);
    StagedTile<kBlockHeads, kHeadDim, Config::kThreads> staged_q, staged_dout;
    const auto stage_heads = [&](int hb) {
      staged_q.load_at(q_rows, hb * kBlockHeads * kRowBytes, kRowBytes);
      staged_dout.load_at(dout_rows, hb * kBlockHeads * kRowBytes, kRowBytes);
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
        for (int s = 0; s < 2; ++s) {
          q[i][2 * hb + s].value = lds.heads.q.load_columns(lane, 16 * s, block);
          dout[i][2 * hb + s].value = lds.heads.dout.load_columns(lane, 16 * s, block);
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
                          (first + block % Config::kHeadBlocks) * 2 * kWaveSize + lane;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
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
      tile.store(lane, block % Config::kHeadBlocks * kBlockHeads, next[i]);
    }
  }

  MHA_SINK_DEVICE void products(typename Config::ScoreTiles& tiles, Buffer interm, int slots) {
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
    const uint32_t slot = lane % 32;
#pragma unroll
    for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
      const PackedColumns packed = pack_columns<kDtype>(sum[i].ready());
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
    char* rows = static_cast<char*>(p.interm) + int64_t{token} * p.chunk.slots * kRowBytes;
    for (int block = 0; block < blocks; ++block) {
      typename Config::ScoreTiles& tiles = lds.scores[block % 2];
      store_staged(tiles);
      workgroup_barrier();
      stage(min(block + 1, blocks - 1));
      const int left = min(slots - block * kBlockSlots, kBlockSlots);
      products(tiles,
               make_buffer(rows + int64_t{block} * kBlockSlots * kRowBytes, left * kRowBytes),
               left);
    }
  }
};

}  // namespace mha_sink::sparse_mla
