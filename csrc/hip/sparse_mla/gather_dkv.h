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
  static constexpr int kUnroll = 8;             // rows of interm in flight
  static constexpr uint32_t kWaveEntries = 16;  // at least, before another wave takes part

  struct Lds {
    f32x4 sum[kWaves - 1][2][kWaveSize];
  };

  // A lane owns 8 columns.
  struct Sum {
    f32x4 low = 0, high = 0;

    MHA_SINK_DEVICE void add(u32x4 row, float scale) {
      low = __builtin_elementwise_fma(unpack(row.x, row.y), f32x4(scale), low);
      high = __builtin_elementwise_fma(unpack(row.z, row.w), f32x4(scale), high);
    }
    static MHA_SINK_DEVICE f32x4 unpack(uint32_t a, uint32_t b) {
      return {unpack_low_int16(a), unpack_high_int16(a), unpack_low_int16(b), unpack_high_int16(b)};
    }
    MHA_SINK_DEVICE u32x4 packed() const {
      return {pack<kDtype>(low.x, low.y), pack<kDtype>(low.z, low.w), pack<kDtype>(high.x, high.y),
              pack<kDtype>(high.z, high.w)};
    }
  };

  static MHA_SINK_DEVICE void run(const GatherDkvParams& p, Lds& lds) {
    // The last rows first: a pool of compressed rows, which most tokens select, lies behind the
    // tokens' own rows and takes longest.
    const int row = p.num_kv - 1 - workgroup_id_x();
    const int wave = wave_id(), lane = lane_id();
    const uint32_t begin = scalar_load(p.row_begin + row);
    const uint32_t entries = scalar_load(p.row_begin + row + 1) - begin;
    // Waves with entries: a short row is not worth an exchange.
    const int waves = max(1, min((entries + kWaveEntries - 1) / kWaveEntries, uint32_t{kWaves}));
    const uint32_t wave_entries = (entries + waves - 1) / waves;
    const uint32_t wave_begin = min(wave * wave_entries, entries);
    const uint32_t wave_end = min(wave_begin + wave_entries, entries);
    if (waves == 1 && wave > 0) return;
    Sum sum;
    if (wave < waves) sum = sum_entries(p, begin + wave_begin, begin + wave_end);
    if (waves > 1) {
      if (wave > 0) {
        lds.sum[wave - 1][0][lane] = sum.low;
        lds.sum[wave - 1][1][lane] = sum.high;
      }
      workgroup_barrier();
      if (wave > 0) return;
      for (int other = 1; other < waves; ++other) {
        sum.low += lds.sum[other - 1][0][lane];
        sum.high += lds.sum[other - 1][1][lane];
      }
    }
    const int64_t column = int64_t{row} * kHeadDim + lane * 8;
    if (p.dkv_acc) {
      f32x4* acc = reinterpret_cast<f32x4*>(p.dkv_acc + column);
      if (!p.chunk.first) sum.low += acc[0], sum.high += acc[1];
      if (!p.chunk.last) acc[0] = sum.low, acc[1] = sum.high;
    }
    if (!p.chunk.last) return;
    *reinterpret_cast<u32x4*>(static_cast<uint16_t*>(p.dkv) + column) = sum.packed();
  }

 private:
  static MHA_SINK_DEVICE uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }

  // The rows of interm of up to 64 entries: their addresses and scales, which lanes 0..count-1
  // hold.
  struct Rows {
    int low, high, scale_bits;
    int count;

    MHA_SINK_DEVICE u32x4 load(int i, uint32_t lane_offset) const {
      const uint64_t address = uint64_t{static_cast<uint32_t>(read_lane(high, i))} << 32 |
                               static_cast<uint32_t>(read_lane(low, i));
      return load_16_bytes(address, lane_offset);
    }
    MHA_SINK_DEVICE float scale(int i) const {
      return __builtin_bit_cast(float, read_lane(scale_bits, i));
    }
  };

  static MHA_SINK_DEVICE Rows find_rows(const GatherDkvParams& p, uint32_t first, uint32_t end) {
    const int lane = lane_id();
    bool valid = first + lane < end;
    uint64_t address = 0;
    float scale = 0.0f;
    if (valid) {
      const uint32_t entry = p.entry[first + lane];
      const uint32_t token = entry / p.topk_padded;
      const uint32_t slot = entry - token * p.topk_padded - p.chunk.slot0;
      valid = slot < static_cast<uint32_t>(p.chunk.slots);  // else of another chunk
      const uint64_t row = uint64_t{token} * p.chunk.slots + slot;
      address = reinterpret_cast<uint64_t>(p.interm) + row * kRowBytes;
      if (valid) scale = p.interm_scale[row];
    }
    // To the front, in their order.
    const uint64_t mask = ballot(valid);
    const int count = __builtin_popcountll(mask);
    const int target = valid ? lanes_before(mask) : count + lanes_before(~mask);
    return {send_to_lane(target, static_cast<int>(address)),
            send_to_lane(target, static_cast<int>(address >> 32)),
            send_to_lane(target, __builtin_bit_cast(int, scale)), count};
  }

  static MHA_SINK_DEVICE Sum sum_entries(const GatherDkvParams& p, uint32_t begin, uint32_t end) {
    Sum sum;
    for (uint32_t first = begin; first < end; first += kWaveSize) {
      const Rows rows = find_rows(p, first, end);
      uint32_t lane_offset = lane_id() * 16;
      int i = 0;
      for (; i + kUnroll <= rows.count; i += kUnroll) {
        u32x4 part[kUnroll];
        opaque(lane_offset);
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) part[k] = rows.load(i + k, lane_offset);
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) sum.add(part[k], rows.scale(i + k));
      }
      if (i == rows.count) continue;
      u32x4 part[kUnroll];
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        part[k] = rows.load(arch::min(i + k, rows.count - 1), lane_offset);
      }
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        if (i + k < rows.count) sum.add(part[k], rows.scale(i + k));
      }
    }
    return sum;
  }
};

}  // namespace mha_sink::sparse_mla
