// dQ, dK and dV of dense attention: KV-stationary, five GEMMs a tile pair.
// The memory plan, register budget and pipeline are explained in docs/kernels/dq_dk_dv.md.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/math.h"
#include "hip/arch/mfma.h"
#include "hip/arch/sync.h"
#include "hip/mha/mask.h"
#include "hip/mha/params.h"
#include "hip/mha/sequence.h"
#include "hip/mha/tensor.h"
#include "hip/tile/exchange_tile.h"
#include "hip/tile/lds_tile.h"
#include "hip/tile/store_transposed.h"

namespace mha_sink::mha {

using namespace tile;

// kHeadDimQ and kHeadDimV are multiples of 32; head dims of a call may be smaller, in steps of 8.
template <Dtype kDtype_, int kHeadDimQ_, int kHeadDimV_ = kHeadDimQ_>
struct DqDkDvConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeadDimQ = kHeadDimQ_, kHeadDimV = kHeadDimV_;
  static constexpr int kLargerHeadDim = kHeadDimQ > kHeadDimV ? kHeadDimQ : kHeadDimV;
  static constexpr int kWaves = 4;
  static constexpr int kThreads = kWaves * kWaveSize;

  static constexpr int kKeys = keys_per_workgroup(kLargerHeadDim);
  static constexpr int kWaveKeys = kKeys / kWaves;
  static constexpr int kKeyBlocks = kWaveKeys / 32;

  // 32 rows where 64 would not leave room in the LDS.
  static constexpr int kQueries = kLargerHeadDim == 128 || kLargerHeadDim == 256 ? 32 : 64;
  static constexpr int kQueryBlocks = kQueries / 32;
  static_assert(kRowPadding % kQueries == 0, "the row constants are padded to tiles");

  static constexpr int kDimBlocksQ = kHeadDimQ / 32, kDimBlocksV = kHeadDimV / 32;
  // 32 x 32 blocks of the dQ tile that a wave computes, over all keys of the workgroup.
  static constexpr int kDqBlocks = kQueryBlocks * kDimBlocksQ;
  static constexpr int kWaveDqBlocks = (kDqBlocks + kWaves - 1) / kWaves;

  using KeyTile = LdsTile<kKeys, kHeadDimQ>;
  using ValueTile = LdsTile<kKeys, kHeadDimV>;
  using QueryTile = LdsTile<kQueries, kHeadDimQ>;
  using GradientTile = LdsTile<kQueries, kHeadDimV>;

  // V stays in registers where the LDS has no room for it beside K, Q, dO and dS.
  static constexpr bool kValuesInLds = kLargerHeadDim < 256;
  static constexpr int kBuffers = kLargerHeadDim <= 64 ? 2 : 1;  // of the query tile
  // Whether blocks of the same queries keep the 32 broadcast row constants in registers.
  static constexpr bool kShareRowBroadcasts = kLargerHeadDim <= 64;

  // Whether dQ of a tile waits in registers for the next one's loads to go ahead of its atomics. Of
  // three blocks a wave, 48 registers more would cost moves of accumulators.
  static constexpr bool kDelayDq = kWaveDqBlocks <= 2;

  // Whether addresses are computed for each phase of a step, and strides loaded for each tile,
  // where keeping them would spill.
  static constexpr bool kRecomputeAddresses = kLargerHeadDim == 256;
  static constexpr bool kReloadStrides = kLargerHeadDim == 96 || kLargerHeadDim >= 192;

  struct LdsPlan {
    KeyTile k;
    LdsTile<kValuesInLds ? kKeys : 0, kHeadDimV> v;
    QueryTile q[kBuffers];
    GradientTile dout[kBuffers];
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
  static constexpr int kQueries = Config::kQueries;
  using Product = VectorAccumulator<kDtype>;

  const DqDkDvParams& p;
  typename Config::LdsPlan& lds;
  const SequenceTile sequence;
  const int seqlen_q = sequence.rows.seqlen_q, seqlen_k = sequence.rows.seqlen_k;
  const Mask mask;
  const int wave = wave_id();
  uint32_t lane = lane_id();
  const int kv_head = workgroup_id_x();
  // Of the sequence, in head 0.
  const uint16_t* const first_q = row_pointer(p.q, sequence.batch, sequence.rows.first_query, 0);
  const uint16_t* const first_dout =
      row_pointer(p.dout, sequence.batch, sequence.rows.first_query, 0);
  const int64_t first_constants = sequence.padded_row(p.rows, 0);
  const int key0 = sequence.tile * Config::kKeys;
  const int wave_key0 = key0 + wave * Config::kWaveKeys;

  // Transposed: rows are hdim, columns are keys.
  ResidentAccumulator<kDtype> dk[Config::kKeyBlocks][Config::kDimBlocksQ];
  ResidentAccumulator<kDtype> dv[Config::kKeyBlocks][Config::kDimBlocksV];

  // The wave's rows of V as MFMA operands, unless V is in LDS.
  Operand v[Config::kValuesInLds ? 1 : Config::kKeyBlocks]
           [Config::kValuesInLds ? 1 : Config::kHeadDimV / 16];

  // The next query tile on its way to LDS.
  StagedTile<kQueries, Config::kHeadDimQ, Config::kThreads> staged_q;
  StagedTile<kQueries, Config::kHeadDimV, Config::kThreads> staged_dout;

  // Row constants of a query tile, in the order that row_broadcast needs: lane 16 * n + r holds
  // that of the query which register r of an accumulator holds in the lanes of its half.
  struct RowRegisters {
    float lse[Config::kQueryBlocks], delta[Config::kQueryBlocks];
  };
  RowRegisters rows, next_rows;

  MHA_SINK_DEVICE DqDkDv(const DqDkDvParams& params, typename Config::LdsPlan& plan)
      : p(params),
        lds(plan),
        sequence(params.batch, Config::kKeys, workgroup_id_y(), workgroup_id_z(), false),
        mask(params.window, sequence.rows) {}

  template <class Tensor16>
  MHA_SINK_DEVICE Buffer key_buffer(const Tensor16& tensor, int key, int rows, int hdim) const {
    return row_buffer(tensor, sequence.batch, sequence.rows.first_key + key, kv_head, rows, hdim);
  }

  // In parts, to bound the registers in flight.
  template <int kColumns>
  MHA_SINK_DEVICE void load_keys(const ConstTensor& tensor, int hdim,
                                 LdsTile<Config::kKeys, kColumns>& tile) {
    constexpr int kPart = 64;
#pragma unroll 1
    for (int row0 = 0; row0 < Config::kKeys; row0 += kPart) {
      const int part_rows = min(seqlen_k - key0 - row0, kPart);
      StagedTile<kPart, kColumns, Config::kThreads> part;
      part.load(key_buffer(tensor, key0 + row0, part_rows, hdim), row_bytes(tensor), hdim);
      part.store(tile, row0);
    }
  }

  MHA_SINK_DEVICE void load_values() {
    if constexpr (Config::kValuesInLds) {
      load_keys(p.v, p.hdim_v, lds.v);
      return;
    }
    const int rows = min(seqlen_k - key0, Config::kKeys);
    const Buffer v_rows = key_buffer(p.v, key0, rows, p.hdim_v);
#pragma unroll
    for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
      const int row = wave * Config::kWaveKeys + kb * 32 + lane % 32;
#pragma unroll
      for (int step = 0; step < Config::kHeadDimV / 16; ++step) {
        const int column = 16 * step + 8 * (lane / 32);
        const uint32_t offset = row * row_bytes(p.v) + column * 2;
        v[kb][step] = buffer_load_16_bytes(v_rows, column < p.hdim_v ? offset : kOutOfRange);
      }
    }
  }

  MHA_SINK_DEVICE const auto& loop_params() const {
    if constexpr (Config::kReloadStrides) {
      return reloaded_params<DqDkDvParams>();
    } else {
      return p;
    }
  }

  MHA_SINK_DEVICE void stage(const QueryCursor& at) {
    const auto& p = loop_params();
    const int query0 = at.tile * kQueries;
    const int rows = min(seqlen_q - query0, kQueries);
    const auto first_row = [&](const auto& tensor, const uint16_t* first) {
      return first + at.head * tensor.nhead_stride + query0 * tensor.seqlen_stride;
    };
    staged_q.load(row_buffer(p.q, first_row(p.q, first_q), rows, p.hdim_q), row_bytes(p.q),
                  p.hdim_q);
    staged_dout.load(row_buffer(p.dout, first_row(p.dout, first_dout), rows, p.hdim_v),
                     row_bytes(p.dout), p.hdim_v);
    const int64_t first = first_constants + at.head * p.rows.nhead_stride + query0;
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
      const int r = lane % 16;
      const int query = qb * 32 + 8 * (r / 4) + 4 * (lane / 32) + r % 4;
      next_rows.lse[qb] = p.rows.lse[first + query];
      next_rows.delta[qb] = p.rows.delta[first + query];
    }
  }

  // Here the compiler waits for what `stage` requested.
  MHA_SINK_DEVICE void await_staged() {
    staged_q.await();
    staged_dout.await();
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
      opaque(next_rows.lse[qb]);
      opaque(next_rows.delta[qb]);
    }
  }

  MHA_SINK_DEVICE void store_staged(int buffer) {
    staged_q.store(lds.q[buffer]);
    staged_dout.store(lds.dout[buffer]);
    rows = next_rows;
  }

  MHA_SINK_DEVICE bool wants_dq() const { return p.dq_acc.data != nullptr; }

  MHA_SINK_DEVICE void begin_phase() {
    if constexpr (Config::kRecomputeAddresses) opaque(lane);
  }

  // S: 32 queries times 32 of the wave's keys, over hdim.
  MHA_SINK_DEVICE Product query_key_product(int buffer, int qb, int kb) {
    const int key_row = wave * Config::kWaveKeys + kb * 32;
    Product s;
    s.start(lds.q[buffer].load_rows(lane, qb * 32, 0), lds.k.load_rows(lane, key_row, 0));
#pragma unroll
    for (int step = 1; step < Config::kHeadDimQ / 16; ++step) {
      s.add(lds.q[buffer].load_rows(lane, qb * 32, step), lds.k.load_rows(lane, key_row, step));
    }
    return s;
  }

  // dP likewise.
  MHA_SINK_DEVICE Product gradient_value_product(int buffer, int qb, int kb) {
    Product dp;
    dp.start(lds.dout[buffer].load_rows(lane, qb * 32, 0), value_operand(kb, 0));
#pragma unroll
    for (int step = 1; step < Config::kHeadDimV / 16; ++step) {
      dp.add(lds.dout[buffer].load_rows(lane, qb * 32, step), value_operand(kb, step));
    }
    return dp;
  }

  MHA_SINK_DEVICE Operand value_operand(int kb, int step) {
    if constexpr (Config::kValuesInLds) {
      return lds.v.load_rows(lane, wave * Config::kWaveKeys + kb * 32, step);
    } else {
      return v[kb][step];
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
  MHA_SINK_DEVICE void scores(int buffer, int query0, int qb, int kb, PackedBlock<>& p_block,
                              PackedBlock<>& ds_block) {
    const int block_query0 = query0 + qb * 32, block_key0 = wave_key0 + kb * 32;
    BlockMask visible = BlockMask::full;
    if constexpr (kMasked) visible = mask.template classify<32, 32>(block_query0, block_key0);
    if (visible == BlockMask::none) {
#pragma unroll
      for (int w = 0; w < 8; ++w) p_block.word[w] = ds_block.word[w] = 0;
      return;
    }
    Product s_product = query_key_product(buffer, qb, kb);
    Product dp_product = gradient_value_product(buffer, qb, kb);
    f32x16 s = s_product.ready(), dp = dp_product.ready();
    RowRegisters constants = rows;
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
      const Mask::Range range = mask.queries_of(block_key0 + lane % 32);
#pragma unroll
      for (int r = 0; r < 16; ++r) {
        const bool sees = range.contains(block_query0 + 4 * (lane / 32) + 8 * (r / 4) + r % 4);
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

  // dQ of a tile, the wave's blocks, on its way to where it is added.
  struct DqTile {
    f32x16 block[Config::kDelayDq ? Config::kWaveDqBlocks : 1];
    Buffer rows;
  };

  // Of no rows: atomics on it are dropped. So are all without dq_acc; a branch around them would
  // make every wait for loads one for the atomics too, since paths with and without them meet.
  MHA_SINK_DEVICE DqTile no_dq() const {
    DqTile tile;
#pragma unroll
    for (f32x16& block : tile.block) block = f32x16(0.0f);
    tile.rows = make_buffer(p.dq_acc.data, 0);
    return tile;
  }

  // Calls function(i, block) for the wave's blocks of a dQ tile.
  template <class Function>
  MHA_SINK_DEVICE void for_dq_blocks(Function&& function) const {
#pragma unroll
    for (int i = 0; i < Config::kWaveDqBlocks; ++i) {
      const int block = wave + i * Config::kWaves;
      if (Config::kDqBlocks % Config::kWaves != 0 && block >= Config::kDqBlocks) break;
      function(i, block);
    }
  }

  // dS K for the wave's blocks of the tile, over all keys of the workgroup; added unless that waits
  // for the next tile's loads.
  MHA_SINK_DEVICE void accumulate_dq(const QueryCursor& at, DqTile& tile) {
    const int query0 = at.tile * kQueries;
    const int rows = min(seqlen_q - query0, kQueries);
    // Rows past the sequence's end lie past the buffer's: their zeros are not added.
    tile.rows =
        make_buffer(sequence.accumulator(p.dq_acc, at.head, p.hdim_q) + int64_t{query0} * p.hdim_q,
                    rows * p.hdim_q * 4);
    for_dq_blocks([&](int i, int block) {
      const int qb = block / Config::kDimBlocksQ, db = block % Config::kDimBlocksQ;
      Product product;
      product.start(lds.ds[qb].load(lane, 0), lds.k.load_columns(lane, 0, db));
#pragma unroll
      for (int key = 16; key < Config::kKeys; key += 16) {
        product.add(lds.ds[qb].load(lane, key), lds.k.load_columns(lane, key, db));
      }
      if constexpr (Config::kDelayDq) {
        tile.block[i] = product.ready();
      } else {
        add_dq_block(tile.rows, block, product.ready());
      }
    });
  }

  MHA_SINK_DEVICE void add_delayed_dq(const DqTile& tile) {
    if constexpr (Config::kDelayDq) {
      for_dq_blocks([&](int i, int block) { add_dq_block(tile.rows, block, tile.block[i]); });
    }
  }

  MHA_SINK_DEVICE void add_dq_block(Buffer rows, int block, const f32x16& dq) {
    const int qb = block / Config::kDimBlocksQ, db = block % Config::kDimBlocksQ;
    const uint32_t eight_rows = 8 * p.hdim_q * 4;
    const int column = db * 32 + lane % 32;
    const uint32_t row = qb * 32 + 4 * (lane / 32);
    uint32_t lane_offset[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lane_offset[i] = column < p.hdim_q ? ((row + i) * p.hdim_q + column) * 4 : kOutOfRange;
      opaque(lane_offset[i]);  // or 16 offsets would stay in registers
    }
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      buffer_atomic_add(rows, lane_offset[r % 4], r / 4 * eight_rows, dq[r]);
    }
  }

  // P and dS of the wave's part of a tile pair, dS also to LDS.
  template <bool kMasked>
  MHA_SINK_DEVICE void all_scores(
      int buffer, int query0, PackedBlock<> (&p_block)[Config::kQueryBlocks][Config::kKeyBlocks],
      PackedBlock<> (&ds_block)[Config::kQueryBlocks][Config::kKeyBlocks]) {
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
#pragma unroll
      for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
        scores<kMasked>(buffer, query0, qb, kb, p_block[qb][kb], ds_block[qb][kb]);
        if (wants_dq()) {
          lds.ds[qb].store(lane, wave * Config::kWaveKeys + kb * 32, ds_block[qb][kb]);
        }
      }
    }
  }

  MHA_SINK_DEVICE void step(const QueryCursor& at, const QueryCursor& next, int buffer,
                            DqTile& dq) {
    PackedBlock<> p_block[Config::kQueryBlocks][Config::kKeyBlocks];
    PackedBlock<> ds_block[Config::kQueryBlocks][Config::kKeyBlocks];
    const int query0 = at.tile * kQueries;
    begin_phase();
    if (mask.template classify<kQueries, Config::kWaveKeys>(query0, wave_key0) == BlockMask::full) {
      all_scores<false>(buffer, query0, p_block, ds_block);
    } else {
      all_scores<true>(buffer, query0, p_block, ds_block);
    }
    workgroup_barrier();
    // Not earlier: the registers of the next tile would be live beside those of S and dP.
    stage(next);
    // Of the tile before, behind the loads of the next: memory answers in order, so that waiting
    // for those loads would be waiting for atomics that were issued before them.
    add_delayed_dq(dq);
    begin_phase();
#pragma unroll
    for (int qb = 0; qb < Config::kQueryBlocks; ++qb) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int db = 0; db < Config::kDimBlocksV; ++db) {
          const Operand dout = lds.dout[buffer].load_columns(lane, qb * 32 + 16 * s, db);
#pragma unroll
          for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
            dv[kb][db].add(dout, p_block[qb][kb].operand(s));
          }
        }
#pragma unroll
        for (int db = 0; db < Config::kDimBlocksQ; ++db) {
          const Operand q = lds.q[buffer].load_columns(lane, qb * 32 + 16 * s, db);
#pragma unroll
          for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
            dk[kb][db].add(q, ds_block[qb][kb].operand(s));
          }
        }
      }
    }
  }

  template <class Tensor16, int kDimBlocks>
  MHA_SINK_DEVICE void store_keys(
      const Tensor16& tensor, int hdim, float factor,
      ResidentAccumulator<kDtype> (&blocks)[Config::kKeyBlocks][kDimBlocks]) {
    const int rows = min(seqlen_k - key0, Config::kKeys);
    store_transposed(key_buffer(tensor, key0, rows, hdim), row_bytes(tensor), rows, hdim,
                     wave * Config::kWaveKeys, lane, factor, blocks);
  }

  MHA_SINK_DEVICE void run() {
    if (sequence.tile < 0 || key0 >= seqlen_k) return;
    load_keys(p.k, p.hdim_q, lds.k);
    load_values();
#pragma unroll
    for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
#pragma unroll
      for (auto& block : dk[kb]) block.clear();
#pragma unroll
      for (auto& block : dv[kb]) block.clear();
    }
    const int key_end = min(key0 + Config::kKeys, seqlen_k);
    const int group = p.nhead_q / p.nhead_k;
    const int tile_begin = mask.first_query(key0) / kQueries;
    const int query_end = mask.end_query(key_end, seqlen_q);
    const int tile_end = max(tile_begin, (query_end + kQueries - 1) / kQueries);
    const int items = group * (tile_end - tile_begin);
    if (items > 0) {
      QueryCursor at{kv_head * group, (kv_head + 1) * group, tile_begin, tile_begin, tile_end};
      stage(at);
      await_staged();
      store_staged(0);
      workgroup_barrier();
      DqTile dq = no_dq();
      for (int item = 0; item < items; ++item) {
        QueryCursor next = at;
        next.advance();
        step(at, next, item % Config::kBuffers, dq);
        if (wants_dq()) {
          begin_phase();
          accumulate_dq(at, dq);
          await_staged();  // in both branches: behind them it would be for such atomics too
        } else {
          await_staged();
        }
        at = next;
        // With two buffers all waves left the one to be written before the barrier in step.
        if constexpr (Config::kBuffers == 1) workgroup_barrier();
        store_staged((item + 1) % Config::kBuffers);
        workgroup_barrier();
      }
      add_delayed_dq(dq);
    }
    const auto& params = reloaded_params<DqDkDvParams>();
    store_keys(params.dk, params.hdim_q, params.scale, dk);
    store_keys(params.dv, params.hdim_v, 1.0f, dv);
  }
};

}  // namespace mha_sink::mha
