// Sparse MLA forward: o and lse of one token and up to 64 heads, by online softmax over the token's
// slots. See docs/kernels/sparse_mla.md.
#pragma once

#include "hip/arch/math.h"
#include "hip/arch/mfma.h"
#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/sparse_mla/gathered_tile.h"
#include "hip/tile/exchange_tile.h"
#include "hip/tile/packed_columns.h"
#include "hip/tile/pipeline.h"

namespace mha_sink::sparse_mla {

// As DqConfig: a wave computes S of one head block and one slot block, then o of its head block,
// one part of D and all slot blocks.
template <Dtype kDtype_, int kHeadBlocks_>
struct FwdConfig {
  static constexpr Dtype kDtype = kDtype_;
  static constexpr int kHeadBlocks = kHeadBlocks_;
  static constexpr int kWaves = 4, kThreads = kWaves * kWaveSize;
  static constexpr int kHeads = kHeadBlocks * kBlockHeads;
  static constexpr int kSlotBlocks = kWaves / kHeadBlocks;
  static constexpr int kSlots = kSlotBlocks * kBlockSlots;
  static constexpr int kWaveDimBlocks = kHeadDim / 32 / kSlotBlocks;
  static constexpr bool kPrefetch = kHeadBlocks > 1;

  struct LdsPlan {
    LdsTile<kSlots, kHeadDim> kv;
    u32x4 p[kHeadBlocks][kSlotBlocks][2][kWaveSize];
    float row[kHeadBlocks][kSlotBlocks][kBlockHeads];  // maxima, at the end sums
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

template <class Config>
struct Fwd {
  static constexpr Dtype kDtype = Config::kDtype;
  static constexpr int kSteps = kHeadDim / 16;

  const FwdParams& p;
  typename Config::LdsPlan& lds;
  const uint32_t lane = lane_id();
  const int token = workgroup_id_x();
  const int head_block = wave_id() % Config::kHeadBlocks;
  const int slot_block = wave_id() / Config::kHeadBlocks;
  const int head0 = workgroup_id_y() * Config::kHeads + head_block * kBlockHeads;

  ResidentOperand q[kSteps];
  GatheredTile<Config::kSlots> next;

  // o transposed: rows are D, columns are heads. Of a lane's head: what its scores, scaled and
  // times log2(e), are taken relative to, -inf before the first, and the lane's part of the sum of
  // exp2(score - base).
  ResidentAccumulator<kDtype> o[Config::kWaveDimBlocks];
  float base = -__builtin_inff(), sum = 0.0f;

  MHA_SINK_DEVICE Fwd(const FwdParams& params, typename Config::LdsPlan& plan)
      : p(params), lds(plan) {}

  // Scaled scores of the wave's block of slots (rows) times heads (columns); -inf past `slots`.
  MHA_SINK_DEVICE f32x16 scores(int slots) {
    if (slots <= 0) return f32x16(-__builtin_inff());
    VectorAccumulator<kDtype> product;
    pipelined<kSteps, 6>(
        [&](int step) { return lds.kv.load_rows(lane, slot_block * kBlockSlots, step); },
        [&](int step, const Operand& kv) { add_or_start(product, step, kv, q[step]); });
    f32x16 s = product.ready() * (p.scale * kLog2E);
    if (slots < kBlockSlots) {
#pragma unroll
      for (int r = 0; r < 16; ++r) s[r] = is_slot(lane, r, slots) ? s[r] : -__builtin_inff();
    }
    return s;
  }

  // Maximum of each head over the slots of the tile.
  MHA_SINK_DEVICE float tile_maximum(const f32x16& s) {
    float value = s[0];
#pragma unroll
    for (int r = 1; r < 16; ++r) value = __builtin_fmaxf(value, s[r]);
    value = __builtin_fmaxf(value, lane_xor<32>(value));
    lds.row[head_block][slot_block][lane % 32] = value;
    workgroup_barrier();
#pragma unroll
    for (int block = 0; block < Config::kSlotBlocks; ++block) {
      value = __builtin_fmaxf(value, lds.row[head_block][block][lane % 32]);
    }
    return value;
  }

  // Scores may exceed the base by this much, a factor of 256, before the base follows: o, in
  // accumulation registers, is rescaled a few times a row at most.
  static constexpr float kMaxExcess = 8.0f;

  MHA_SINK_DEVICE void rescale(float factor) {
#pragma unroll
    for (auto& block : o) {
      block.c = block.ready();
#pragma unroll
      for (int r = 0; r < 16; ++r) block.c[r] = multiply_resident(block.c[r], factor);
    }
  }

  MHA_SINK_DEVICE void step(const int32_t* list, int slot0, int count) {
    f32x16 s = scores(count - slot0 - slot_block * kBlockSlots);
    // Of all scores in the tile: the waves of a head move its base together.
    const float maximum = tile_maximum(s);
    if (__builtin_expect(ballot(maximum > base + kMaxExcess) != 0, false)) {
      // o is 0 while the base is -inf; a tile of -inf alone leaves it there.
      const bool moves = maximum > base + kMaxExcess;
      const float factor = moves ? exp2(base - maximum) : 1.0f;
      if (__builtin_expect(ballot(moves && base != -__builtin_inff()) != 0, false)) {
        rescale(factor);
      }
      sum *= factor;
      base = moves ? maximum : base;
    }
    const float origin = base == -__builtin_inff() ? 0.0f : base;
    PackedBlock block;
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      s[r] = exp2(s[r] - origin);
      sum += s[r];
    }
#pragma unroll
    for (int w = 0; w < 8; ++w) block.word[w] = pack<kDtype>(s[2 * w], s[2 * w + 1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      lds_write(lds_bytes(&lds.p[head_block][slot_block][i][lane]), block.operand(i));
    }
    workgroup_barrier();
    const bool more = slot0 + Config::kSlots < count;
    if constexpr (Config::kPrefetch) next.load_rows(p.kv);
    accumulate();
    if (!more) return;
    workgroup_barrier();
    if constexpr (Config::kPrefetch) {
      next.store(lane, lds.kv);
    } else {
      next.copy(p.kv, lds.kv);
    }
    next.load_indices(list, slot0 + 2 * Config::kSlots, count);
    workgroup_barrier();
  }

  // o += P kv over all slots of the tile.
  MHA_SINK_DEVICE void accumulate() {
    constexpr int kBlocks = Config::kWaveDimBlocks, kSlotSteps = Config::kSlotBlocks * 2;
    const auto load_scores = [&](int step) {
      return lds_read<Operand>(lds_bytes(&lds.p[head_block][step / 2][step % 2][lane]));
    };
    Operand scores, next_scores = load_scores(0);
    pipelined<kSlotSteps * kBlocks, 4>(
        [&](int i) {
          return lds.kv.load_columns(lane, i / kBlocks * 16, slot_block * kBlocks + i % kBlocks);
        },
        [&](int i, const Operand& kv) {
          if (i % kBlocks == 0) {
            scores = next_scores;
            if (i / kBlocks + 1 < kSlotSteps) next_scores = load_scores(i / kBlocks + 1);
          }
          o[i % kBlocks].add(kv, scores);
        });
  }

  // Adds up the parts of the sum, takes in the sink, writes lse. Returns the factor from o so far
  // to o.
  MHA_SINK_DEVICE float finish() {
    sum += lane_xor<32>(sum);
    lds.row[head_block][slot_block][lane % 32] = sum;
    workgroup_barrier();
    float total = 0.0f;
#pragma unroll
    for (int block = 0; block < Config::kSlotBlocks; ++block) {
      total += lds.row[head_block][block][lane % 32];
    }
    const int head = head0 + lane % 32;
    const bool head_exists = head < p.heads;
    // lse of a row without slots, or whose sink takes everything; exactly the sink.
    float lse = p.sink && head_exists ? p.sink[head] : -__builtin_inff();
    float factor = 0.0f;
    const float sink = lse * kLog2E;
    if (base != -__builtin_inff() && sink != __builtin_inff()) {
      const float top = __builtin_fmaxf(base, sink);
      const float weight = exp2(base - top);
      total = total * weight + exp2(sink - top);
      factor = weight * reciprocal(total);
      lse = (top + log2(total)) * kLn2;
    }
    if (slot_block == 0 && lane < 32 && head_exists) {
      p.lse[int64_t{token} * p.heads + head] = lse;
    }
    return factor;
  }

  MHA_SINK_DEVICE void run() {
    const int count = scalar_load(p.slots.count + token);
    const int32_t* list = p.slots.index + int64_t{token} * p.slots.topk_padded;
#pragma unroll
    for (auto& block : o) block.clear();
    if (count > 0) {
      next.load_indices(list, 0, count);
      if constexpr (Config::kPrefetch) next.load_rows(p.kv);
      const Buffer q_rows = token_buffer(p.q, token, p.heads);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) q[i].value = load_head_operand(q_rows, lane, head0, i);
      if constexpr (Config::kPrefetch) {
        next.store(lane, lds.kv);
      } else {
        next.copy(p.kv, lds.kv);
      }
      next.load_indices(list, Config::kSlots, count);
      workgroup_barrier();
      for (int slot0 = 0; slot0 < count; slot0 += Config::kSlots) step(list, slot0, count);
    }
    const float factor = finish();
    const Buffer out = token_buffer(p.o, token, p.heads);
#pragma unroll
    for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
      const PackedColumns packed = pack_columns<kDtype>(o[i].ready() * factor);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const uint32_t dim =
            (slot_block * Config::kWaveDimBlocks + i) * 32 + PackedColumns::row(lane, g);
        buffer_store_16_bytes(out, (head0 + lane % 32) * kRowBytes + dim * 2, packed.chunk[g]);
      }
    }
  }
};

}  // namespace mha_sink::sparse_mla
