// dKV of each row of kv: the sum of what the slots that selected it contribute, through the
// inverted index. One writer a row and one order of additions, so the same bits on every run.
#pragma once

#include "hip/arch/math.h"
#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/sparse_mla/params.h"

namespace mha_sink::sparse_mla {

using namespace arch;

template <Dtype kDtype>
struct GatherDkv {
  static constexpr int kWaves = 8, kThreads = kWaves * kWaveSize;
  static constexpr int kUnroll = 8;

  struct Lds {
    f32x4 sum[kWaves][2][kWaveSize];
  };

  // A lane owns 8 columns.
  struct Sum {
    f32x4 low = 0, high = 0;

    MHA_SINK_DEVICE void add(u32x4 packed) {
      low += f32x4{unpack_low<kDtype>(packed.x), unpack_high<kDtype>(packed.x),
                   unpack_low<kDtype>(packed.y), unpack_high<kDtype>(packed.y)};
      high += f32x4{unpack_low<kDtype>(packed.z), unpack_high<kDtype>(packed.z),
                    unpack_low<kDtype>(packed.w), unpack_high<kDtype>(packed.w)};
    }
  };

  static MHA_SINK_DEVICE void run(const GatherDkvParams& p, Lds& lds) {
    // The last rows first: a pool of compressed rows, which most tokens select, lies behind the
    // tokens' own rows and takes longest.
    const int row = p.num_kv - 1 - workgroup_id_x();
    const uint32_t begin = scalar_load(p.row_begin + row);
    const uint32_t entries = scalar_load(p.row_begin + row + 1) - begin;
    const uint32_t wave_entries = (entries + kWaves - 1) / kWaves;
    const uint32_t wave_begin = min_u32(wave_id() * wave_entries, entries);
    const uint32_t wave_end = min_u32(wave_begin + wave_entries, entries);
    const Sum sum = sum_entries(p, begin + wave_begin, begin + wave_end);
    const int lane = lane_id();
    lds.sum[wave_id()][0][lane] = sum.low;
    lds.sum[wave_id()][1][lane] = sum.high;
    workgroup_barrier();
    if (wave_id() > 1) return;
    // Waves 0 and 1 take 4 of each lane's 8 columns.
    const int half = wave_id();
    f32x4 total = lds.sum[0][half][lane];
#pragma unroll
    for (int wave = 1; wave < kWaves; ++wave) total += lds.sum[wave][half][lane];
    const int64_t column = int64_t{row} * kHeadDim + lane * 8 + half * 4;
    if (p.dkv_acc) {
      f32x4& acc = *reinterpret_cast<f32x4*>(p.dkv_acc + column);
      if (!p.chunk.first) total += acc;
      if (!p.chunk.last) acc = total;
    }
    if (!p.chunk.last) return;
    *reinterpret_cast<u32x2*>(static_cast<uint16_t*>(p.dkv) + column) =
        u32x2{pack<kDtype>(total.x, total.y), pack<kDtype>(total.z, total.w)};
  }

 private:
  static MHA_SINK_DEVICE uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

  static MHA_SINK_DEVICE Sum sum_entries(const GatherDkvParams& p, uint32_t begin, uint32_t end) {
    const int lane = lane_id();
    const char* interm = static_cast<const char*>(p.interm) + lane * 16;
    Sum sum;
    for (uint32_t first = begin; first < end; first += kWaveSize) {
      // Each lane finds the row of interm of one entry; -1: of another chunk.
      int64_t place = -1;
      if (first + lane < end) {
        const uint32_t entry = p.entry[first + lane];
        const uint32_t token = entry / p.topk_padded;
        const uint32_t slot = entry - token * p.topk_padded - p.chunk.slot0;
        if (slot < static_cast<uint32_t>(p.chunk.slots)) {
          place = int64_t{token} * p.chunk.slots + slot;
        }
      }
      const int low = static_cast<int>(place), high = static_cast<int>(place >> 32);
      uint64_t pending = ballot(place >= 0);
      while (pending != 0) {
        u32x4 rows[kUnroll];
        int loaded = 0;
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
          rows[i] = u32x4(0);
          if (pending == 0) continue;
          const int source = __builtin_ctzll(pending);
          pending &= pending - 1;
          const uint64_t from = uint64_t{static_cast<uint32_t>(read_lane(high, source))} << 32 |
                                static_cast<uint32_t>(read_lane(low, source));
          rows[i] = *reinterpret_cast<const u32x4*>(interm + from * kRowBytes);
          ++loaded;
        }
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
          if (i < loaded) sum.add(rows[i]);
        }
      }
    }
    return sum;
  }
};

}  // namespace mha_sink::sparse_mla
