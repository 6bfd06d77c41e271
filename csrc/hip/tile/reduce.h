// Sums over lanes and workgroups, in an order that does not depend on timing.
#pragma once

#include "hip/arch/lds.h"
#include "hip/arch/sync.h"
#include "hip/arch/types.h"

namespace mha_sink::tile {

using namespace arch;

// Sum over each aligned group of kLanes lanes, in every lane of the group.
template <int kLanes>
MHA_SINK_DEVICE float sum_over_lanes(float value) {
  if constexpr (kLanes > 1) {
    value += lane_xor<kLanes / 2>(value);
    return sum_over_lanes<kLanes / 2>(value);
  }
  return value;
}

// `combine` over the lanes of an accumulator's column: those equal modulo kColumns.
template <int kColumns, class Combine>
MHA_SINK_DEVICE float combine_column(float value, Combine&& combine) {
  if constexpr (kColumns < kWaveSize) {
    value = combine(value, lane_xor<kColumns>(value));
    return combine_column<2 * kColumns>(value, combine);
  }
  return value;
}

// Sum over a workgroup of kWaves waves, in every thread. `scratch` holds kWaves floats of LDS that
// nothing else uses before the next barrier.
template <int kWaves>
MHA_SINK_DEVICE float sum_over_workgroup(float value, float* scratch) {
  value = sum_over_lanes<kWaveSize>(value);
  if (lane_id() == 0) scratch[wave_id()] = value;
  workgroup_barrier();
  float sum = 0.0f;
#pragma unroll
  for (int wave = 0; wave < kWaves; ++wave) sum += scratch[wave];
  return sum;
}

}  // namespace mha_sink::tile
