// The inverted index: a stable counting sort on the device, without atomics whose order shows.
// See docs/kernels/sparse_mla.md.
#pragma once

#include "hip/arch/lds.h"
#include "hip/arch/scalar.h"
#include "hip/arch/sync.h"
#include "hip/arch/types.h"
#include "hip/sparse_mla/params.h"

namespace mha_sink::sparse_mla {

using namespace arch;

struct CountSlots {
  static MHA_SINK_DEVICE void run(const CountSlotsParams& p) {
    const int token = workgroup_id_x() * 4 + wave_id();
    if (token >= p.tokens) return;
    const int lane = lane_id();
    const int32_t* indices = p.topk_indices + int64_t{token} * p.topk;
    int32_t* compact = p.slot_index + int64_t{token} * p.topk_padded;
    uint32_t* cursor = p.cursor ? p.cursor + int64_t{token / p.segment_tokens} * p.num_kv : nullptr;
    int count = 0, last = 0;
    for (int slot0 = 0; slot0 < p.topk; slot0 += kWaveSize) {
      const int slot = slot0 + lane;
      const int index = slot < p.topk ? indices[slot] : -1;
      const bool valid = static_cast<uint32_t>(index) < static_cast<uint32_t>(p.num_kv);
      const uint64_t mask = ballot(valid);
      if (valid) {
        compact[count + lanes_before(mask)] = index;
        if (cursor) atomic_increment(cursor + index);
      }
      if (mask != 0) last = read_lane(index, 63 - __builtin_clzll(mask));
      count += __builtin_popcountll(mask);
    }
    const int padded = (count + kSlotPadding - 1) / kSlotPadding * kSlotPadding;
    for (int slot = count + lane; slot < padded; slot += kWaveSize) compact[slot] = last;
    if (lane == 0) p.slot_count[token] = count;
  }
};

struct ScanSegments {
  static constexpr int kRows = 64, kParts = 16;  // a thread sums one part of a row's segments

  struct Lds {
    uint32_t sum[kParts][kRows];
  };

  static MHA_SINK_DEVICE void run(const ScanSegmentsParams& p, Lds& lds) {
    const int column = thread_id() % kRows, part = wave_id();
    const int row = workgroup_id_x() * kRows + column;
    const int part_segments = (p.segments + kParts - 1) / kParts;
    const int begin = min(part * part_segments, p.segments);
    const int end = min(begin + part_segments, p.segments);
    uint32_t sum = 0;
    if (row < p.num_kv) {
      for (int s = begin; s < end; ++s) sum += p.cursor[int64_t{s} * p.num_kv + row];
    }
    lds.sum[part][column] = sum;
    workgroup_barrier();
    if (row >= p.num_kv) return;
    uint32_t before = 0, total = 0;
    for (int other = 0; other < kParts; ++other) {
      before += other < part ? lds.sum[other][column] : 0;
      total += lds.sum[other][column];
    }
    for (int s = begin; s < end; ++s) {
      uint32_t& count = p.cursor[int64_t{s} * p.num_kv + row];
      const uint32_t next = before + count;
      count = before;
      before = next;
    }
    if (part == 0) p.row_begin[row] = total;
  }
};

struct ScanRows {
  static constexpr int kThreads = 1024;

  struct Lds {
    uint32_t sum[kThreads];
  };

  static MHA_SINK_DEVICE void run(const ScanRowsParams& p, Lds& lds) {
    const int thread = thread_id();
    const int rows = (p.num_kv + kThreads - 1) / kThreads;
    const int begin = min(thread * rows, p.num_kv), end = min(begin + rows, p.num_kv);
    uint32_t sum = 0;
    for (int row = begin; row < end; ++row) sum += p.row_begin[row];
    lds.sum[thread] = sum;
    workgroup_barrier();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      const uint32_t add = thread >= distance ? lds.sum[thread - distance] : 0;
      workgroup_barrier();
      lds.sum[thread] += add;
      workgroup_barrier();
    }
    uint32_t before = lds.sum[thread] - sum;
    for (int row = begin; row < end; ++row) {
      const uint32_t count = p.row_begin[row];
      p.row_begin[row] = before;
      before += count;
    }
    if (thread == kThreads - 1) p.row_begin[p.num_kv] = before;
  }
};

struct FillEntries {
  // Rows that differ modulo this get different words.
  static constexpr int kWords = 2048;

  struct Lds {
    int lane[kWords];
  };

  // Lanes of equal rows take consecutive places in lane order.
  struct Place {
    uint32_t rank = 0, group = 1;
  };

  static MHA_SINK_DEVICE Place place_among_equals(int row, bool valid, Lds& lds) {
    const int lane = lane_id();
    // Where two lanes write one word, one of them reads the other's number: it is in `pending`, and
    // nobody else needs to look at equal rows. Which one does not show in the result.
    int& word = lds.lane[row & (kWords - 1)];
    if (valid) word = lane;
    workgroup_barrier();
    const bool lost = valid && word != lane;
    workgroup_barrier();
    Place place;
    for (uint64_t pending = ballot(lost); pending != 0;) {
      const int chosen = read_lane(row, __builtin_ctzll(pending));
      const uint64_t equal = ballot(row == chosen);
      if (row == chosen) {
        place.rank = lanes_before(equal);
        place.group = __builtin_popcountll(equal);
      }
      pending &= ~equal;
    }
    return place;
  }

  static MHA_SINK_DEVICE void run(const FillEntriesParams& p, Lds& lds) {
    const int segment = workgroup_id_x(), lane = lane_id();
    const int token_end = min((segment + 1) * p.segment_tokens, p.tokens);
    uint32_t* cursor = p.cursor + int64_t{segment} * p.num_kv;
    for (int token = segment * p.segment_tokens; token < token_end; ++token) {
      const int count = scalar_load(p.slots.count + token);
      const uint32_t first = static_cast<uint32_t>(token) * p.slots.topk_padded;
      const int32_t* index = p.slots.index + first;
      for (int slot0 = 0; slot0 < count; slot0 += kWaveSize) {
        const bool valid = slot0 + lane < count;
        const int row = valid ? index[slot0 + lane] : -1;
        const Place place = place_among_equals(row, valid, lds);
        if (valid) {
          const uint32_t used = cursor[row];
          p.entry[p.row_begin[row] + used + place.rank] = first + slot0 + lane;
          if (place.rank + 1 == place.group) cursor[row] = used + place.group;
        }
      }
    }
  }
};

}  // namespace mha_sink::sparse_mla
