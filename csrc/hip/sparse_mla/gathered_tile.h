// Rows of kv that a token selects.
#pragma once

#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/arch/types.h"
#include "hip/sparse_mla/params.h"
#include "hip/tile/lds_tile.h"

namespace mha_sink::sparse_mla {

using namespace tile;

using i32x8 = int32_t __attribute__((ext_vector_type(8)));

// kRows selected rows of kv on their way from memory to LDS. A wave takes kRows / 4 adjacent slots,
// one row of 64 chunks an instruction, so that a row's address is scalar; the slots' indices are
// loaded one tile ahead of their rows. Of a wave's rows the first kResidentRows wait in
// accumulation registers.
template <int kRows, int kResidentRows = 0>
struct GatheredTile {
  static constexpr int kWaveRows = kRows / 4;
  static constexpr int kGroups = kWaveRows / 8;
  static_assert(kGroups * 8 == kWaveRows);

  i32x8 index[kGroups];
  u32x4 chunk[kWaveRows];

  // Of the slots from slot0 on. Slots past the last valid one repeat valid rows.
  MHA_SINK_DEVICE void load_indices(const int32_t* list, int slot0, int count) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int group0 = min(slot0 + wave_id() * kWaveRows + g * 8, (count - 1) / 8 * 8);
      index[g] = scalar_load(reinterpret_cast<const i32x8*>(list + group0));
    }
  }

  MHA_SINK_DEVICE void load_rows(const void* kv) { load_part<0, kWaveRows>(kv); }
  MHA_SINK_DEVICE void store(uint32_t lane, LdsTile<kRows, kHeadDim>& tile) {
    store_part<0, kWaveRows>(lane, tile);
  }

  // Both, 16 rows at a time: fewer registers, but the latency of memory shows.
  template <int i0 = 0>
  MHA_SINK_DEVICE void copy(const void* kv, LdsTile<kRows, kHeadDim>& tile) {
    constexpr int kPart = kWaveRows < 16 ? kWaveRows : 16;
    uint32_t lane = lane_id();
    opaque(lane);  // offsets are computed anew: keeping them costs a register a row
    load_part<i0, kPart>(kv);
    store_part<i0, kPart>(lane, tile);
    scheduling_barrier();
    if constexpr (i0 + kPart < kWaveRows) copy<i0 + kPart>(kv, tile);
  }

 private:
  template <int i0, int n>
  MHA_SINK_DEVICE void load_part(const void* kv) {
    const char* lane_base = static_cast<const char*>(kv) + lane_id() * 16;
#pragma unroll
    for (int i = i0; i < i0 + n; ++i) {
      const uint64_t row = static_cast<uint32_t>(index[i / 8][i % 8]);
      chunk[i] = *reinterpret_cast<const u32x4*>(lane_base + row * kRowBytes);
    }
  }

  template <int i0, int n>
  MHA_SINK_DEVICE void store_part(uint32_t lane, LdsTile<kRows, kHeadDim>& tile) {
#pragma unroll
    for (int i = i0; i < i0 + n; ++i) {
      const uint32_t row = wave_id() * kWaveRows + i;
      if (i < kResidentRows) settle_resident(chunk[i]);
      lds_write(lds_bytes(tile.bytes) + LdsTile<kRows, kHeadDim>::offset(row, 0, lane), chunk[i]);
    }
  }
};

}  // namespace mha_sink::sparse_mla
