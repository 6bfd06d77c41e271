// dQ, dK and dV of dense attention: KV-stationary, five GEMMs a tile pair.
// The memory plan, register budget and pipeline are explained in docs/kernels/dq_dk_dv.md.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/math.h"
#include "hip/arch/mfma.h"
#include "hip/arch/sync.h"
#include "hip/mha/mask.h"
#include "hip/mha/params.h"
#include "hip/mha/tensor.h"
#include "hip/tile/exchange_tile.h"
#include "hip/tile/lds_tile.h"

namespace mha_sink::mha {

using namespace tile;

template <Dtype kDtype_, int kHeadDim_>
struct DqDkDvConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kWaves = 4;
  static constexpr int kThreads = kWaves * kWaveSize;
  static constexpr int kKeys = kKeysPerWorkgroup;
  static constexpr int kWaveKeys = kKeys / kWaves;
  // The 32 x 32 blocks of a dQ tile are one a wave: 4 along hdim at 128, 2 x 2 at 64.
  static constexpr int kQueries = kWaves * 32 * 32 / kHeadDim;
  static constexpr int kQueryBlocks = kQueries / 32;
  static constexpr int kKeyBlocks = kWaveKeys / 32;
  static constexpr int kDimBlocks = kHeadDim / 32;
  static constexpr int kDimSteps = kHeadDim / 16;
  static_assert(kRowPadding % kQueries == 0, "dq_acc and the row constants are padded to tiles");

  using KeyTile = LdsTile<kKeys, kHeadDim>;
  using QueryTile = LdsTile<kQueries, kHeadDim>;
  using StagedQueries = StagedTile<kQueries, kHeadDim, kThreads>;

  // At hdim 128 the plan takes all of the LDS, with one buffer for the query tile.
  static constexpr int kBuffers = kHeadDim == 64 ? 2 : 1;

  // Whether blocks of the same queries keep the 32 broadcast row constants in registers.
  static constexpr bool kShareRowBroadcasts = kHeadDim == 64;

  struct LdsPlan {
    KeyTile k, v;
    QueryTile q[kBuffers], dout[kBuffers];
    ExchangeTile<kKeys> ds[kQueryBlocks];
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

// The (query head, query tile) pairs that a workgroup visits, in order; stays at the last one.
struct QueryCursor {
  int head, head_end, tile, tile_begin, tile_end;

  MHA_SINK_DEVICE void advance() {
    const bool wrap = tile + 1 == tile_end;
    if (wrap && head + 1 == head_end) return;
    head += wrap;
    tile = wrap ? tile_begin : tile + 1;
  }
};

template <class Config>
struct DqDkDv {
  static constexpr Dtype kDtype = Config::kDtype;
  static constexpr int kHeadDim = Config::kHeadDim;
  static constexpr int kQueries = Config::kQueries;
  using Product = VectorAccumulator<kDtype>;

  const DqDkDvParams& p;
  typename Config::LdsPlan& lds;
  const Mask mask;
  const int wave = wave_id();
  const int lane = lane_id();
  const int half = lane / 32;
  const int batch = workgroup_id_z();
  const int kv_head = workgroup_id_x();
  const int key0 = workgroup_id_y() * Config::kKeys;
  const int wave_key0 = key0 + wave * Config::kWaveKeys;

  // Transposed: rows are hdim, columns are keys.
  ResidentAccumulator<kDtype> dk[Config::kKeyBlocks][Config::kDimBlocks];
  ResidentAccumulator<kDtype> dv[Config::kKeyBlocks][Config::kDimBlocks];

  // The next query tile on its way to LDS.
  typename Config::StagedQueries staged_q, staged_dout;

  // Row constants of a query tile, in the order that row_broadcast needs: lane 16 * n + r holds
  // that of the query which register r of an accumulator holds in the lanes of its half.
  struct RowConstants {
    float lse[Config::kQueryBlocks], delta[Config::kQueryBlocks];
  };
  RowConstants rows, next_rows;

  MHA_SINK_DEVICE DqDkDv(const DqDkDvParams& params, typename Config::LdsPlan& plan)
      : p(params), lds(plan), mask(params) {}

  // In parts, to bound the registers in flight.
  MHA_SINK_DEVICE void load_keys(const ConstTensor& tensor, typename Config::KeyTile& tile) {
    constexpr int kPart = 64;
#pragma unroll 1
    for (int row0 = 0; row0 < Config::kKeys; row0 += kPart) {
      const int part_rows = min(p.seqlen_k - key0 - row0, kPart);
      StagedTile<kPart, kHeadDim, Config::kThreads> part;
      part.load(row_buffer(tensor, batch, key0 + row0, kv_head, part_rows, kHeadDim),
                row_bytes(tensor));
      part.store(tile, row0);
    }
  }

  MHA_SINK_DEVICE void stage(const QueryCursor& at) {
    const int query0 = at.tile * kQueries;
    const int rows = min(p.seqlen_q - query0, kQueries);
    staged_q.load(row_buffer(p.q, batch, query0, at.head, rows, kHeadDim), row_bytes(p.q));
    staged_dout.load(row_buffer(p.dout, batch, query0, at.head, rows, kHeadDim), row_bytes(p.dout));
    const int64_t first = row_index(at);
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
      const int r = lane % 16;
      const int query = qb * 32 + 8 * (r / 4) + 4 * half + r % 4;
      next_rows.lse[qb] = p.row_lse[first + query];
      next_rows.delta[qb] = p.row_delta[first + query];
    }
  }

  MHA_SINK_DEVICE void store_staged(int buffer) {
    staged_q.store(lds.q[buffer]);
    staged_dout.store(lds.dout[buffer]);
    rows = next_rows;
  }

  // Row of [batch, nhead_q, seqlen_q_padded] where a query tile begins.
  MHA_SINK_DEVICE int64_t row_index(const QueryCursor& at) const {
    return (int64_t{batch} * p.nhead_q + at.head) * p.seqlen_q_padded + at.tile * kQueries;
  }

  // 32 rows of a times 32 rows of b, over hdim.
  MHA_SINK_DEVICE static void product_of_rows(Product& product, typename Config::QueryTile& a,
                                              int a_row, typename Config::KeyTile& b, int b_row) {
    product.start(a.load_rows(a_row, 0), b.load_rows(b_row, 0));
#pragma unroll
    for (int step = 1; step < Config::kDimSteps; ++step) {
      product.add(a.load_rows(a_row, step), b.load_rows(b_row, step));
    }
  }

  // The value of each register's row, register by register: a DPP control is a constant.
  template <int r = 0>
  MHA_SINK_DEVICE static void broadcast_rows(float constants, f32x16& rows) {
    rows[r] = row_broadcast<r>(constants);
    if constexpr (r < 15) broadcast_rows<r + 1>(constants, rows);
  }

  // P and dS of one 32 x 32 block; registers are queries, lanes are keys.
  template <bool kMasked>
  MHA_SINK_DEVICE void scores(int buffer, int query0, int qb, int kb, PackedBlock& p_block,
                              PackedBlock& ds_block) {
    const int block_query0 = query0 + qb * 32, block_key0 = wave_key0 + kb * 32;
    BlockMask visible = BlockMask::full;
    if constexpr (kMasked) visible = mask.template classify<32, 32>(block_query0, block_key0);
    if (visible == BlockMask::none) {
#pragma unroll
      for (int w = 0; w < 8; ++w) p_block.word[w] = ds_block.word[w] = 0;
      return;
    }
    const int wave_row = wave * Config::kWaveKeys + kb * 32;
    Product s_product, dp_product;
    product_of_rows(s_product, lds.q[buffer], qb * 32, lds.k, wave_row);
    product_of_rows(dp_product, lds.dout[buffer], qb * 32, lds.v, wave_row);
    f32x16 s = s_product.ready(), dp = dp_product.ready();
    RowConstants constants = rows;
    if constexpr (!Config::kShareRowBroadcasts) {
      opaque(constants.lse[qb]);
      opaque(constants.delta[qb]);
    }
    f32x16 lse, delta;
    broadcast_rows(constants.lse[qb], lse);
    broadcast_rows(constants.delta[qb], delta);
    s = __builtin_elementwise_fma(s, f32x16(p.scale * kLog2E), lse);
#pragma unroll
    for (int r = 0; r < 16; ++r) s[r] = exp2(s[r]);
    dp = s * (dp - delta);
    if (visible == BlockMask::partial) {
      const Mask::KeyRange range = mask.queries_of(block_key0 + lane % 32);
#pragma unroll
      for (int r = 0; r < 16; ++r) {
        const bool sees = range.visible(block_query0 + 4 * half + 8 * (r / 4) + r % 4);
        s[r] = sees ? s[r] : 0.0f;
        dp[r] = sees ? dp[r] : 0.0f;
      }
    }
#pragma unroll
    for (int w = 0; w < 8; ++w) {
      p_block.word[w] = pack<kDtype>(s[2 * w], s[2 * w + 1]);
      ds_block.word[w] = pack<kDtype>(dp[2 * w], dp[2 * w + 1]);
    }
  }

  // dq_acc += dS K for the wave's 32 x 32 block of the tile, over all keys of the workgroup.
  MHA_SINK_DEVICE void accumulate_dq(const QueryCursor& at) {
    const int qb = wave / Config::kDimBlocks, db = wave % Config::kDimBlocks;
    Product product;
    product.start(lds.ds[qb].load(0), lds.k.load_columns(0, db));
#pragma unroll
    for (int key = 16; key < Config::kKeys; key += 16) {
      product.add(lds.ds[qb].load(key), lds.k.load_columns(key, db));
    }
    const f32x16 dq = product.ready();
    float* tile = p.dq_acc + (row_index(at) + qb * 32) * kHeadDim;
    const uint32_t lane_offset = 4 * half * kHeadDim + db * 32 + lane % 32;
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      atomic_add(tile + lane_offset + (8 * (r / 4) + r % 4) * kHeadDim, dq[r]);
    }
  }

  // P and dS of the wave's part of a tile pair, dS also to LDS.
  template <bool kMasked>
  MHA_SINK_DEVICE void all_scores(
      int buffer, int query0, PackedBlock (&p_block)[Config::kQueryBlocks][Config::kKeyBlocks],
      PackedBlock (&ds_block)[Config::kQueryBlocks][Config::kKeyBlocks]) {
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
#pragma unroll
      for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
        scores<kMasked>(buffer, query0, qb, kb, p_block[qb][kb], ds_block[qb][kb]);
        lds.ds[qb].store(wave * Config::kWaveKeys + kb * 32, ds_block[qb][kb]);
      }
    }
  }

  MHA_SINK_DEVICE void step(const QueryCursor& at, const QueryCursor& next, int buffer) {
    PackedBlock p_block[Config::kQueryBlocks][Config::kKeyBlocks];
    PackedBlock ds_block[Config::kQueryBlocks][Config::kKeyBlocks];
    const int query0 = at.tile * kQueries;
    if (mask.template classify<kQueries, Config::kWaveKeys>(query0, wave_key0) == BlockMask::full) {
      all_scores<false>(buffer, query0, p_block, ds_block);
    } else {
      all_scores<true>(buffer, query0, p_block, ds_block);
    }
    workgroup_barrier();
    // Not earlier: the registers of the next tile would be live beside those of S and dP.
    stage(next);
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int db = 0; db < Config::kDimBlocks; ++db) {
          const Operand dout = lds.dout[buffer].load_columns(qb * 32 + 16 * s, db);
          const Operand q = lds.q[buffer].load_columns(qb * 32 + 16 * s, db);
#pragma unroll
          for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
            dv[kb][db].add(dout, p_block[qb][kb].operand(s));
            dk[kb][db].add(q, ds_block[qb][kb].operand(s));
          }
        }
      }
    }
    accumulate_dq(at);
  }

  MHA_SINK_DEVICE void store_results() {
    const int rows = min(p.seqlen_k - key0, Config::kKeys);
    const Buffer dk_rows = row_buffer(p.dk, batch, key0, kv_head, rows, kHeadDim);
    const Buffer dv_rows = row_buffer(p.dv, batch, key0, kv_head, rows, kHeadDim);
#pragma unroll
    for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
      const int row = wave * Config::kWaveKeys + kb * 32 + lane % 32;
      if (row >= rows) continue;
#pragma unroll
      for (int db = 0; db < Config::kDimBlocks; ++db) {
        const f32x16 dk_block = dk[kb][db].ready() * p.scale, dv_block = dv[kb][db].ready();
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const uint32_t column_bytes = (db * 32 + 8 * g + 4 * half) * 2;
          const int r = 4 * g;
          buffer_store_8_bytes(dk_rows, row * row_bytes(p.dk) + column_bytes,
                               u32x2{pack<kDtype>(dk_block[r], dk_block[r + 1]),
                                     pack<kDtype>(dk_block[r + 2], dk_block[r + 3])});
          buffer_store_8_bytes(dv_rows, row * row_bytes(p.dv) + column_bytes,
                               u32x2{pack<kDtype>(dv_block[r], dv_block[r + 1]),
                                     pack<kDtype>(dv_block[r + 2], dv_block[r + 3])});
        }
      }
    }
  }

  MHA_SINK_DEVICE void run() {
    load_keys(p.k, lds.k);
    load_keys(p.v, lds.v);
#pragma unroll
    for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
#pragma unroll
      for (int db = 0; db < Config::kDimBlocks; ++db) {
        dk[kb][db].clear();
        dv[kb][db].clear();
      }
    }
    const int key_end = min(key0 + Config::kKeys, p.seqlen_k);
    const int group = p.nhead_q / p.nhead_k;
    const int tile_begin = mask.first_query(key0) / kQueries;
    const int query_end = mask.end_query(key_end, p.seqlen_q);
    const int tile_end = max(tile_begin, (query_end + kQueries - 1) / kQueries);
    const int items = group * (tile_end - tile_begin);
    if (items > 0) {
      QueryCursor at{kv_head * group, (kv_head + 1) * group, tile_begin, tile_begin, tile_end};
      stage(at);
      store_staged(0);
      workgroup_barrier();
      for (int item = 0; item < items; ++item) {
        QueryCursor next = at;
        next.advance();
        step(at, next, item % Config::kBuffers);
        at = next;
        // With two buffers all waves left the one to be written before the barrier in step.
        if constexpr (Config::kBuffers == 1) workgroup_barrier();
        store_staged((item + 1) % Config::kBuffers);
        workgroup_barrier();
      }
    }
    store_results();
  }
};

}  // namespace mha_sink::mha
