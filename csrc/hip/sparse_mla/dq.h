// Delta, S, P, dP, dS and dQ of sparse MLA: a workgroup takes one token and up to 64 heads and
// walks over the token's slots. See docs/kernels/sparse_mla.md.
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
struct DqConfig : TokenConfig<kDtype, kHeads> {
  using Base = TokenConfig<kDtype, kHeads>;
  using Heads = typename Base::Heads;
  using Base::kHeadBlocks, Base::kSlotBlocks, Base::kSlots;

  // Where the tile of slots leaves no room for dO in LDS, it is in registers.
  static constexpr bool kGradientInLds = kHeadBlocks > 1;

  struct LdsPlan {
    LdsTile<kSlots, kHeadDim> kv;
    LdsTile<kGradientInLds ? kHeads : 0, kHeadDim> dout;
    u32x4 ds[kHeadBlocks][kSlotBlocks][Heads::kSlotSteps][kWaveSize];
    float delta[kHeadBlocks][kSlotBlocks][Heads::kHeads];
  };
  static_assert(sizeof(LdsPlan) <= 160 * 1024);
};

template <class Config>
struct Dq {
  static constexpr Dtype kDtype = Config::kDtype;
  using Heads = typename Config::Heads;
  using Block = PackedBlock<Heads::kHeads>;
  static constexpr int kSteps = Heads::kSteps;

  const DqParams& p;
  typename Config::LdsPlan& lds;
  uint32_t lane = lane_id();
  const int token = workgroup_id_x();
  const int head_block = wave_id() % Config::kHeadBlocks;
  const int slot_block = wave_id() / Config::kHeadBlocks;
  const int head0 = workgroup_id_y() * Config::kHeads + head_block * Heads::kHeads;
  const int head = head0 + lane_id() % Heads::kHeads;

  ResidentOperand q[kSteps];
  // dO, unless it is in LDS: as much in accumulation registers as they have room for.
  static constexpr int kResidentSteps = Config::kGradientInLds ? 0 : 16;
  ResidentOperand resident_dout[max(kResidentSteps, 1)];
  Operand dout[Config::kGradientInLds ? 1 : max(kSteps - kResidentSteps, 1)];
  float row_lse, row_delta;
  GatheredTile<Config::kSlots, Config::kResidentRows> next;

  // dQ transposed: rows are D, columns are heads.
  typename Heads::template Resident<kDtype> dq[Config::kWaveDimBlocks][Heads::kParts];

  MHA_SINK_DEVICE Dq(const DqParams& params, typename Config::LdsPlan& plan)
      : p(params), lds(plan) {}

  // Steps of D over which a wave sums o * do: waves that share the heads share D where do is in
  // LDS.
  static constexpr int kRowSumSteps =
      Config::kGradientInLds ? kSteps / Config::kSlotBlocks : kSteps;

  MHA_SINK_DEVICE Operand load_o(int i) {
    const int step = Config::kGradientInLds ? slot_block * kRowSumSteps + i : i;
    return Heads::load(token_buffer(p.o, token, p.heads), lane, head0, step);
  }

  // rowsum(o * do) of each lane's head: the diagonal of o do^T.
  template <class LoadO>
  MHA_SINK_DEVICE float row_sums(LoadO&& o) {
    typename Heads::template Vector<kDtype> product;
#pragma unroll
    for (int i = 0; i < kRowSumSteps; ++i) {
      if constexpr (Config::kGradientInLds) {
        const int step = slot_block * kRowSumSteps + i;
        add_or_start(product, i, o(i), lds.dout.load_rows(lane, head_block * Heads::kHeads, step));
      } else if (i < kResidentSteps) {
        add_or_start(product, i, o(i), resident_dout[i]);
      } else {
        product.add(o(i), dout[i - kResidentSteps]);
      }
    }
    const auto block = product.ready();
    const uint32_t column = lane % Heads::kHeads;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t r = 0; r < Heads::kRegisters / Heads::kParts; ++r) {
      sum = Heads::row(lane, r) == column ? block[r] : sum;
    }
    sum = combine_column<Heads::kHeads>(sum, [](float a, float b) { return a + b; });
    if constexpr (Config::kGradientInLds) {
      lds.delta[head_block][slot_block][column] = sum;
      workgroup_barrier();
      sum = 0.0f;
#pragma unroll
      for (int part = 0; part < Config::kSlotBlocks; ++part) {
        sum += lds.delta[head_block][part][column];
      }
    }
    return sum;
  }

  // Of each lane's head, from [T, H]; 0 past the last head. A buffer, since a load under a
  // condition of the lane makes the compiler take all that follows for divergent: each descriptor
  // would get a loop of its own.
  MHA_SINK_DEVICE float load_row(const float* rows) {
    const Buffer buffer = make_buffer(rows + int64_t{token} * p.heads, p.heads * 4);
    return buffer_load_f32(buffer, head * 4);
  }

  // row_lse and row_delta, from lse and its gradient. dO is where scores() reads it.
  template <class LoadO>
  MHA_SINK_DEVICE void make_row_constants(float lse, float dlse, LoadO&& o) {
    const bool exists = head < p.heads;
    float delta;
    if (p.chunk.first) {
      delta = row_sums(o) - dlse;
      if (p.delta && exists && slot_block == 0 && lane < Heads::kHeads) {
        p.delta[int64_t{token} * p.heads + head] = delta;
      }
    } else {
      delta = load_row(p.delta);
    }
    // A row that sees nothing, or nothing beside its sink, has P = dS = 0 whatever delta is.
    const bool sees_slots = exists && __builtin_fabsf(lse) != __builtin_inff();
    row_lse = sees_slots ? -lse * kLog2E : -__builtin_inff();
    row_delta = sees_slots ? delta : 0.0f;
  }

  // P and dS of the wave's block of slots (rows) times heads (columns). `slots` of them exist. dS
  // twice: dQ is scaled at its end, dKV cannot be, since it has P do as well.
  MHA_SINK_DEVICE void scores(int slots, Block& p_block, Block& ds_block, Block& scaled_block) {
    typename Heads::template Vector<kDtype> s_product[Heads::kParts], dp_product[Heads::kParts];
    struct Operands {
      Operand kv, dout;
    };
    pipelined<kSteps * Heads::kParts, 4>(
        [&](int i) {
          const int step = i / Heads::kParts;
          Operands operands;
          operands.kv =
              Heads::load_slots(lds.kv, lane, slot_block * kBlockSlots, step, i % Heads::kParts);
          if constexpr (Config::kGradientInLds) {
            operands.dout = lds.dout.load_rows(lane, head_block * Heads::kHeads, step);
          }
          return operands;
        },
        [&](int i, const Operands& operands) {
          const int step = i / Heads::kParts, part = i % Heads::kParts;
          // One read of kv feeds both products.
          add_or_start(s_product[part], step, operands.kv, q[step]);
          if constexpr (Config::kGradientInLds) {
            add_or_start(dp_product[part], step, operands.kv, operands.dout);
          } else if (step < kResidentSteps) {
            add_or_start(dp_product[part], step, operands.kv, resident_dout[step]);
          } else {
            dp_product[part].add(operands.kv, dout[step - kResidentSteps]);
          }
        });
    using Scores = typename Heads::Registers;
    Scores s = Heads::join(s_product), dp = Heads::join(dp_product);
    s = __builtin_elementwise_fma(s, Scores(p.scale * kLog2E), Scores(row_lse));
#pragma unroll
    for (int r = 0; r < Heads::kRegisters; ++r) s[r] = exp2(s[r]);
    if (slots < kBlockSlots) {
#pragma unroll
      for (int r = 0; r < Heads::kRegisters; ++r) {
        s[r] = Heads::is_slot(lane, r, slots) ? s[r] : 0.0f;
      }
    }
    dp = s * (dp - Scores(row_delta));
    const Scores scaled = dp * p.scale;
#pragma unroll
    for (int w = 0; w < Block::kWords; ++w) {
      p_block.word[w] = pack<kDtype>(s[2 * w], s[2 * w + 1]);
      ds_block.word[w] = pack<kDtype>(dp[2 * w], dp[2 * w + 1]);
      scaled_block.word[w] = pack<kDtype>(scaled[2 * w], scaled[2 * w + 1]);
    }
  }

  MHA_SINK_DEVICE void store_block(void* blocks, int slot_block_of_chunk, const Block& block) {
    const int64_t chunk_blocks = (p.chunk.slots + kBlockSlots - 1) / kBlockSlots;
    const int64_t index =
        (token * chunk_blocks + slot_block_of_chunk) * (p.heads_padded / Heads::kHeads) +
        head0 / Heads::kHeads;
    u32x4* base = static_cast<u32x4*>(blocks) + index * Block::kOperands * kWaveSize;
#pragma unroll
    for (int s = 0; s < Block::kOperands; ++s) base[s * kWaveSize + lane] = block.operand(s);
  }

  // dq += dS kv over all slots of the tile.
  MHA_SINK_DEVICE void accumulate() {
    constexpr int kParts = Heads::kParts, kBlocks = Config::kWaveDimBlocks * kParts;
    constexpr int kBlockSteps = Heads::kSlotSteps, kSlotSteps = Config::kSlotBlocks * kBlockSteps;
    Operand ds[kSlotSteps];
#pragma unroll
    for (int step = 0; step < kSlotSteps; ++step) {
      ds[step] = lds_read<Operand>(
          lds_bytes(&lds.ds[head_block][step / kBlockSteps][step % kBlockSteps][lane]));
    }
    pipelined<kSlotSteps * kBlocks, 6>(
        [&](int i) {
          return Heads::load_columns(lds.kv, lane, i / kBlocks, slot_block * kBlocks + i % kBlocks);
        },
        [&](int i, const Operand& kv) {
          dq[i % kBlocks / kParts][i % kParts].add(kv, ds[i / kBlocks]);
        });
  }

  MHA_SINK_DEVICE void store_dq() {
    const Buffer out = token_buffer(p.dq, token, p.heads);
    float* acc = p.dq_acc ? p.dq_acc + (int64_t{token} * p.heads + head) * kHeadDim : nullptr;
#pragma unroll
    for (int i = 0; i < Config::kWaveDimBlocks; ++i) {
      typename Heads::Registers block = Heads::join(dq[i]) * p.scale;
      const uint32_t dim0 = (slot_block * Config::kWaveDimBlocks + i) * 32;
      if (acc && head < p.heads) {
#pragma unroll
        for (int g = 0; g < Heads::kRegisters / 4; ++g) {
          f32x4& sum = *reinterpret_cast<f32x4*>(acc + dim0 + Heads::dim(lane, 4 * g));
          f32x4 part = {block[4 * g], block[4 * g + 1], block[4 * g + 2], block[4 * g + 3]};
          if (!p.chunk.first) part += sum;
          if (!p.chunk.last) sum = part;
#pragma unroll
          for (int r = 0; r < 4; ++r) block[4 * g + r] = part[r];
        }
      }
      if (!p.chunk.last) continue;
      Heads::template store<kDtype>(out, lane, head0, dim0, block);
    }
  }

  MHA_SINK_DEVICE void load_q() {
    const Buffer rows = token_buffer(p.q, token, p.heads);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) q[i].value = Heads::load(rows, lane, head0, i);
  }

  MHA_SINK_DEVICE void run() {
    const int count = scalar_load(p.slots.count + token);
    const int end = min(count, p.chunk.slot0 + p.chunk.slots);
    const int32_t* list = p.slots.index + int64_t{token} * p.slots.topk_padded;
#pragma unroll
    for (auto& block : dq) {
#pragma unroll
      for (auto& part : block) part.clear();
    }
    if (p.chunk.slot0 < end) next.load_indices(list, p.chunk.slot0, count);
    const float lse = load_row(p.lse), dlse = p.dlse ? load_row(p.dlse) : 0.0f;
    const Buffer gradient = token_buffer(p.dout, token, p.heads);
    if constexpr (Config::kGradientInLds) {
      // All on their way before the first is waited for.
      StagedTile<Config::kHeads, kHeadDim, Config::kThreads> staged;
      staged.load_at(gradient, workgroup_id_y() * Config::kHeads * kRowBytes, kRowBytes);
      Operand o[kRowSumSteps];
      if (p.chunk.first) {
#pragma unroll
        for (int i = 0; i < kRowSumSteps; ++i) o[i] = load_o(i);
      }
      if (p.chunk.slot0 < end) {
        next.load_rows(p.kv);
        load_q();
      }
      staged.store(lds.dout);
      if (p.chunk.slot0 < end) next.store(lane, lds.kv);
      workgroup_barrier();
      make_row_constants(lse, dlse, [&](int i) { return o[i]; });
    } else {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const Operand operand = Heads::load(gradient, lane, head0, i);
        if (i < kResidentSteps) {
          resident_dout[i].value = operand;
        } else {
          dout[i - kResidentSteps] = operand;
        }
      }
      if (p.chunk.slot0 < end) {
        load_q();
        next.copy(p.kv, lds.kv);
      }
      workgroup_barrier();
      make_row_constants(lse, dlse, [&](int i) { return load_o(i); });
    }
    if (p.chunk.slot0 < end) next.load_indices(list, p.chunk.slot0 + Config::kSlots, count);
#pragma unroll
    for (ResidentOperand& operand : q) settle(operand);
    for (int slot0 = p.chunk.slot0; slot0 < end; slot0 += Config::kSlots) {
      step(list, slot0, end, count);
    }
    store_dq();
  }

  MHA_SINK_DEVICE void step(const int32_t* list, int slot0, int end, int count) {
    // Without room for the offsets of a step, they are computed in each: clang 20 would spill 32.
    if constexpr (!Config::kPrefetch || __clang_major__ <= 20) opaque(lane);
    Block p_block, ds_block, scaled_block;
    const int block0 = slot0 + slot_block * kBlockSlots;
    if (block0 < end) {
      scores(end - block0, p_block, ds_block, scaled_block);
    } else {
#pragma unroll
      for (int w = 0; w < Block::kWords; ++w) ds_block.word[w] = 0;
    }
#pragma unroll
    for (int s = 0; s < Block::kOperands; ++s) {
      lds_write(lds_bytes(&lds.ds[head_block][slot_block][s][lane]), ds_block.operand(s));
    }
    workgroup_barrier();
    const bool more = slot0 + Config::kSlots < end;
    if constexpr (Config::kPrefetch) next.load_rows(p.kv);
    if (block0 < end) {
      const int chunk_block = (block0 - p.chunk.slot0) / kBlockSlots;
      store_block(p.p, chunk_block, p_block);
      store_block(p.ds, chunk_block, scaled_block);
    }
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
};

}  // namespace mha_sink::sparse_mla
