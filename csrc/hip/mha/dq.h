// dQ of dense attention without atomics: query-stationary, three GEMMs a tile pair.
// docs/kernels/dq.md explains when it runs and what it costs.
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
struct DqConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeadDimQ = kHeadDimQ_, kHeadDimV = kHeadDimV_;
  static constexpr int kLargerHeadDim = kHeadDimQ > kHeadDimV ? kHeadDimQ : kHeadDimV;
  static constexpr int kWaves = 4;
  static constexpr int kThreads = kWaves * kWaveSize;

  static constexpr int kQueries = queries_per_workgroup(kLargerHeadDim);
  static constexpr int kWaveQueries = kQueries / kWaves;
  static constexpr int kQueryBlocks = kWaveQueries / 32;
  // 32 keys where the registers of a larger tile under way would leave fewer than 16 free.
  static constexpr int kKeys = kLargerHeadDim == 128 ? 32 : 64;
  static constexpr int kKeyBlocks = kKeys / 32;
  static constexpr int kDimBlocksQ = kHeadDimQ / 32;
  static constexpr int kStepsQ = kHeadDimQ / 16, kStepsV = kHeadDimV / 16;

  // Whether LDS addresses are computed for each block, where keeping them would spill.
  static constexpr bool kRecomputeAddresses = kLargerHeadDim >= 128;

  static constexpr int kBuffers = 2;
  struct LdsPlan {
    LdsTile<kKeys, kHeadDimQ> k[kBuffers];
    LdsTile<kKeys, kHeadDimV> v[kBuffers];
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

template <class Config>
struct Dq {
  static constexpr Dtype kDtype = Config::kDtype;
  static constexpr int kQueryBlocks = Config::kQueryBlocks;

  const DqParams& p;
  typename Config::LdsPlan& lds;
  const SequenceTile sequence;
  const Mask mask;
  uint32_t lane = lane_id();
  const int head = workgroup_id_x();
  const int query0 = sequence.tile * Config::kQueries;
  const int wave_query0 = query0 + wave_id() * Config::kWaveQueries;
  // The sequence's first keys in the head's KV head.
  const int kv_head = head / (p.nhead_q / p.nhead_k);
  const uint16_t* const first_k =
      row_pointer(p.k, sequence.batch, sequence.rows.first_key, kv_head);
  const uint16_t* const first_v =
      row_pointer(p.v, sequence.batch, sequence.rows.first_key, kv_head);

  // Transposed: rows are hdim, columns are queries.
  ResidentAccumulator<kDtype> dq[kQueryBlocks][Config::kDimBlocksQ];

  // The wave's rows of Q and dO as MFMA operands; lane l holds queries l % 32.
  ResidentOperand q[kQueryBlocks][Config::kStepsQ], dout[kQueryBlocks][Config::kStepsV];
  float lse[kQueryBlocks], delta[kQueryBlocks];  // as RowConstants, of those queries

  // The next tile of keys on its way to LDS.
  StagedTile<Config::kKeys, Config::kHeadDimQ, Config::kThreads> staged_k;
  StagedTile<Config::kKeys, Config::kHeadDimV, Config::kThreads> staged_v;

  MHA_SINK_DEVICE Dq(const DqParams& params, typename Config::LdsPlan& plan)
      : p(params),
        lds(plan),
        sequence(params.batch, Config::kQueries, workgroup_id_y(), workgroup_id_z(), true),
        mask(params.window, sequence.rows) {}

  template <int kSteps>
  MHA_SINK_DEVICE void load_queries(const ConstTensor& tensor, int hdim,
                                    ResidentOperand (&operands)[kQueryBlocks][kSteps]) {
    const int rows = min(sequence.rows.seqlen_q - wave_query0, Config::kWaveQueries);
    const Buffer buffer = row_buffer(tensor, sequence.batch,
                                     sequence.rows.first_query + wave_query0, head, rows, hdim);
#pragma unroll
    for (int qb = 0; qb < kQueryBlocks; ++qb) {
      const uint32_t row_offset = (qb * 32 + lane % 32) * row_bytes(tensor);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int column = 16 * step + 8 * (lane / 32);
        operands[qb][step].value =
            buffer_load_16_bytes(buffer, column < hdim ? row_offset + column * 2 : kOutOfRange);
      }
    }
  }

  MHA_SINK_DEVICE void load_row_constants() {
    const int64_t first = sequence.padded_row(p.rows, head);
#pragma unroll
    for (int qb = 0; qb < kQueryBlocks; ++qb) {
      const int query = wave_query0 + qb * 32 + lane % 32;
      const bool exists = query < sequence.rows.seqlen_q;
      lse[qb] = exists ? p.rows.lse[first + query] : -__builtin_inff();
      delta[qb] = exists ? p.rows.delta[first + query] : 0.0f;
    }
  }

  MHA_SINK_DEVICE void stage(int key0) {
    const int rows = min(sequence.rows.seqlen_k - key0, Config::kKeys);
    staged_k.load(row_buffer(p.k, first_k + key0 * p.k.seqlen_stride, rows, p.hdim_q),
                  row_bytes(p.k), p.hdim_q);
    staged_v.load(row_buffer(p.v, first_v + key0 * p.v.seqlen_stride, rows, p.hdim_v),
                  row_bytes(p.v), p.hdim_v);
  }

  MHA_SINK_DEVICE void store_staged(int buffer) {
    staged_k.store(lds.k[buffer]);
    staged_v.store(lds.v[buffer]);
  }

  // X^T Y, 32 keys times each block of 32 queries, over hdim.
  template <int kColumns, int kSteps>
  MHA_SINK_DEVICE void products(LdsTile<Config::kKeys, kColumns>& keys, int kb,
                                const ResidentOperand (&queries)[kQueryBlocks][kSteps],
                                VectorAccumulator<kDtype> (&product)[kQueryBlocks]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Operand rows = keys.load_rows(lane, kb * 32, step);
#pragma unroll
      for (int qb = 0; qb < kQueryBlocks; ++qb) {
        if (step == 0) {
          product[qb].start(rows, queries[qb][0]);
        } else {
          product[qb].add(rows, queries[qb][step]);
        }
      }
    }
  }

  // dS^T of one 32 x 32 block; registers are keys, lanes are queries.
  MHA_SINK_DEVICE PackedBlock<> score_gradients(f32x16 s, f32x16 dp, int qb, int block_key0,
                                                BlockMask visible) {
    s = __builtin_elementwise_fma(s, f32x16(p.scale * kLog2E), f32x16(lse[qb]));
#pragma unroll
    for (int r = 0; r < 16; ++r) s[r] = exp2(s[r]);
    f32x16 ds = s * (dp - f32x16(delta[qb]));
    if (visible == BlockMask::partial) {
      const Mask::Range range = mask.keys_of(wave_query0 + qb * 32 + lane % 32);
#pragma unroll
      for (int r = 0; r < 16; ++r) {
        const bool seen = range.contains(block_key0 + 4 * (lane / 32) + 8 * (r / 4) + r % 4);
        ds[r] = seen ? ds[r] : 0.0f;
      }
    }
    PackedBlock<> block;
#pragma unroll
    for (int w = 0; w < 8; ++w) block.word[w] = pack<kDtype>(ds[2 * w], ds[2 * w + 1]);
    return block;
  }

  MHA_SINK_DEVICE void step(int key0, int buffer) {
#pragma unroll
    for (int kb = 0; kb < Config::kKeyBlocks; ++kb) {
      const int block_key0 = key0 + kb * 32;
      if constexpr (Config::kRecomputeAddresses) opaque(lane);
      const BlockMask visible =
          mask.template classify<Config::kWaveQueries, 32>(wave_query0, block_key0);
      PackedBlock<> ds[kQueryBlocks];
      if (visible == BlockMask::none) {
#pragma unroll
        for (PackedBlock<>& block : ds) {
#pragma unroll
          for (uint32_t& word : block.word) word = 0;
        }
      } else {
        VectorAccumulator<kDtype> s[kQueryBlocks], dp[kQueryBlocks];
        products(lds.k[buffer], kb, q, s);
        products(lds.v[buffer], kb, dout, dp);
#pragma unroll
        for (int qb = 0; qb < kQueryBlocks; ++qb) {
          ds[qb] = score_gradients(s[qb].ready(), dp[qb].ready(), qb, block_key0, visible);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Operand gradients[kQueryBlocks];
#pragma unroll
        for (int qb = 0; qb < kQueryBlocks; ++qb) {
          gradients[qb] = ds[qb].operand(half);
          settle(gradients[qb]);
        }
#pragma unroll
        for (int db = 0; db < Config::kDimBlocksQ; ++db) {
          const Operand k = lds.k[buffer].load_columns(lane, kb * 32 + 16 * half, db);
#pragma unroll
          for (int qb = 0; qb < kQueryBlocks; ++qb) dq[qb][db].add(k, gradients[qb]);
        }
      }
    }
  }

  MHA_SINK_DEVICE void run() {
    const int seqlen_q = sequence.rows.seqlen_q;
    if (sequence.tile < 0 || query0 >= seqlen_q) return;
    load_queries(p.q, p.hdim_q, q);
    load_queries(p.dout, p.hdim_v, dout);
    load_row_constants();
#pragma unroll
    for (auto& blocks : dq) {
#pragma unroll
      for (auto& block : blocks) block.clear();
    }
    const int query_end = min(query0 + Config::kQueries, seqlen_q);
    const int key_end = mask.end_key(query_end);
    const int first_key = mask.first_key(query0) / Config::kKeys * Config::kKeys;
    if (first_key < key_end) {
      stage(first_key);
      store_staged(0);
      workgroup_barrier();
      int buffer = 0;
      for (int key0 = first_key; key0 < key_end; key0 += Config::kKeys) {
        const int next_key0 = key0 + Config::kKeys;
        // Past the last tile every row is out of range.
        stage(min(next_key0, sequence.rows.seqlen_k));
        step(key0, buffer);
        buffer ^= 1;
        // All waves left this buffer before the last barrier.
        store_staged(buffer);
        workgroup_barrier();
      }
    }
    const auto& params = reloaded_params<DqParams>();
    const int rows = min(seqlen_q - wave_query0, Config::kWaveQueries);
    const Buffer out =
        row_buffer(params.dq, sequence.batch, sequence.rows.first_query + wave_query0, head, rows,
                   params.hdim_q);
    store_transposed(out, row_bytes(params.dq), rows, params.hdim_q, 0, lane, params.scale, dq);
  }
};

}  // namespace mha_sink::mha
