// Sparse MLA forward: o and lse of one token and up to 64 heads, by online softmax over the token's
// slots. See docs/kernels/sparse_mla.md.
#pragma once

#include "hip/arch/math.h"
#include "hip/arch/mfma.h"
#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/sparse_mla/gathered_tile.h"
#include "hip/sparse_mla/head_block.h"
#include "hip/tile/exchange_tile.h"
#include "hip/tile/packed_columns.h"
#include "hip/tile/pipeline.h"

namespace mha_sink::sparse_mla {

template <Dtype kDtype, int kHeads>
struct FwdConfig : TokenConfig<kDtype, kHeads> {
  using Base = TokenConfig<kDtype, kHeads>;
  using Heads = typename Base::Heads;
  using Base::kHeadBlocks, Base::kSlotBlocks, Base::kSlots;

  struct LdsPlan {
    LdsTile<kSlots, kHeadDim> kv;
    u32x4 p[kHeadBlocks][kSlotBlocks][Heads::kSlotSteps][kWaveSize];
    float row[kHeadBlocks][kSlotBlocks][Heads::kHeads];  // maxima, at the end sums
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

template <class Config>
struct Fwd {
  static constexpr Dtype kDtype = Config::kDtype;
  using Heads = typename Config::Heads;
  using Scores = typename Heads::Registers;

  const FwdParams& p;
  typename Config::LdsPlan& lds;
  const uint32_t lane = lane_id();
  const int token = workgroup_id_x();
  const int head_block = wave_id() % Config::kHeadBlocks;
  const int slot_block = wave_id() / Config::kHeadBlocks;
  const int head0 = workgroup_id_y() * Config::kHeads + head_block * Heads::kHeads;
  const int column = lane_id() % Heads::kHeads;

  ResidentOperand q[Heads::kSteps];
  GatheredTile<Config::kSlots, Config::kResidentRows> next;

  // o transposed: rows are D, columns are heads. Of a lane's head: what its scores, scaled and
  // times log2(e), are taken relative to, -inf before the first, and the lane's part of the sum of
  // exp2(score - base).
  typename Heads::template Resident<kDtype> o[Config::kWaveDimBlocks][Heads::kParts];
  float base = -__builtin_inff(), sum = 0.0f;

  MHA_SINK_DEVICE Fwd(const FwdParams& params, typename Config::LdsPlan& plan)
      : p(params), lds(plan) {}

  // Scaled scores of the wave's block of slots (rows) times heads (columns); -inf past `slots`.
  MHA_SINK_DEVICE Scores scores(int slots) {
    if (slots <= 0) return Scores(-__builtin_inff());
    constexpr int kParts = Heads::kParts;
    typename Heads::template Vector<kDtype> product[kParts];
    pipelined<Heads::kSteps * kParts, 6>(
        [&](int i) {
          return Heads::load_slots(lds.kv, lane, slot_block * kBlockSlots, i / kParts, i % kParts);
        },
        [&](int i, const Operand& kv) {
          add_or_start(product[i % kParts], i / kParts, kv, q[i / kParts]);
        });
    Scores s = Heads::join(product) * (p.scale * kLog2E);
    if (slots < kBlockSlots) {
#pragma unroll
      for (int r = 0; r < Heads::kRegisters; ++r) {
        s[r] = Heads::is_slot(lane, r, slots) ? s[r] : -__builtin_inff();
      }
    }
    return s;
  }

  // Maximum of each head over the slots of the tile.
  MHA_SINK_DEVICE float tile_maximum(const Scores& s) {
    float value = s[0];
#pragma unroll
    for (int r = 1; r < Heads::kRegisters; ++r) value = __builtin_fmaxf(value, s[r]);
    value = combine_column<Heads::kHeads>(value,
                                          [](float a, float b) { return __builtin_fmaxf(a, b); });
    lds.row[head_block][slot_block][column] = value;
    workgroup_barrier();
#pragma unroll
    for (int block = 0; block < Config::kSlotBlocks; ++block) {
      value = __builtin_fmaxf(value, lds.row[head_block][block][column]);
    }
    return value;
  }

  // Scores may exceed the base by this much, a factor of 256, before the base follows: o, in
  // accumulation registers, is rescaled a few times a row at most.
  static constexpr float kMaxExcess = 8.0f;

  MHA_SINK_DEVICE void rescale(float factor) {
#pragma unroll
    for (auto& block : o) {
#pragma unroll
      for (auto& part : block) {
        part.c = part.ready();
#pragma unroll
        for (int r = 0; r < Heads::kRegisters / Heads::kParts; ++r) {
          part.c[r] = multiply_resident(part.c[r], factor);
        }
      }
    }
  }

  MHA_SINK_DEVICE void step(const int32_t* list, int slot0, int count) {
    Scores s = scores(count - slot0 - slot_block * kBlockSlots);
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
    PackedBlock<Heads::kHeads> block;
#pragma unroll
    for (int r = 0; r < Heads::kRegisters; ++r) {
      s[r] = exp2(s[r] - origin);
      sum += s[r];
    }
#pragma unroll
    for (int w = 0; w < block.kWords; ++w) block.word[w] = pack<kDtype>(s[2 * w], s[2 * w + 1]);
#pragma unroll
    for (int i = 0; i < block.kOperands; ++i) {
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
    constexpr int kParts = Heads::kParts, kBlocks = Config::kWaveDimBlocks * kParts;
    constexpr int kBlockSteps = Heads::kSlotSteps, kSlotSteps = Config::kSlotBlocks * kBlockSteps;
    const auto load_scores = [&](int step) {
      return lds_read<Operand>(
          lds_bytes(&lds.p[head_block][step / kBlockSteps][step % kBlockSteps][lane]));
    };
    Operand scores, next_scores = load_scores(0);
    pipelined<kSlotSteps * kBlocks, 4>(
        [&](int i) {
          return Heads::load_columns(lds.kv, lane, i / kBlocks, slot_block * kBlocks + i % kBlocks);
        },
        [&](int i, const Operand& kv) {
          if (i % kBlocks == 0) {
            scores = next_scores;
            if (i / kBlocks + 1 < kSlotSteps) next_scores = load_scores(i / kBlocks + 1);
          }
          o[i % kBlocks / kParts][i % kParts].add(kv, scores);
        });
  }

  // Adds up the parts of the sum, takes in the sink, writes lse. Returns the factor from o so far
  // to o.
  MHA_SINK_DEVICE float finish() {
    sum = combine_column<Heads::kHeads>(sum, [](float a, float b) { return a + b; });
    lds.row[head_block][slot_block][column] = sum;
    workgroup_barrier();
    float total = 0.0f;
#pragma unroll
    for (int block = 0; block < Config::kSlotBlocks; ++block) {
      total += lds.row[head_block][block][column];
    }
    const int head = head0 + column;
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
    if (slot_block == 0 && lane < Heads::kHeads && head_exists) {
      p.lse[int64_t{token} * p.heads + head] = lse;
    }
    return factor;
  }

  MHA_SINK_DEVICE void run() {
    const int count = scalar_load(p.slots.count + token);
    const int32_t* list = p.slots.index + int64_t{token} * p.slots.topk_padded;
#pragma unroll
    for (auto& block : o) {
#pragma unroll
      for (auto& part : block) part.clear();
    }
    if (count > 0) {
      next.load_indices(list, 0, count);
      if constexpr (Config::kPrefetch) next.load_rows(p.kv);
      const Buffer q_rows = token_buffer(p.q, token, p.heads);
#pragma unroll
      for (int i = 0; i < Heads::kSteps; ++i) q[i].value = Heads::load(q_rows, lane, head0, i);
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
    // What finish() may have kept is divergent to the compiler: the descriptor would get a loop.
    const auto& late = reloaded_params<FwdParams>();
    const Buffer out = token_buffer(late.o, token, late.heads);
#pragma unroll
    for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
      const uint32_t dim0 = (slot_block * Config::kWaveDimBlocks + i) * 32;
      Heads::template store<kDtype>(out, lane, head0, dim0, Heads::join(o[i]) * factor);
    }
  }
};

}  // namespace mha_sink::sparse_mla
