// Vector types of registers, the attributes that HIP's own headers would define, and thread ids.
#pragma once

#include <cstdint>

#define MHA_SINK_KERNEL extern "C" __attribute__((global))
#define MHA_SINK_DEVICE inline __attribute__((device, always_inline))
#define MHA_SINK_LDS __attribute__((shared))

namespace mha_sink::arch {

// 16-bit element types. Moving and swizzling need not know which one; only conversions and MFMAs
// do.
enum class Dtype { bf16, fp16 };

using f32x2 = float __attribute__((ext_vector_type(2)));
using f32x4 = float __attribute__((ext_vector_type(4)));
using f32x8 = float __attribute__((ext_vector_type(8)));
using f32x16 = float __attribute__((ext_vector_type(16)));
using u32x2 = uint32_t __attribute__((ext_vector_type(2)));
using u32x4 = uint32_t __attribute__((ext_vector_type(4)));

inline constexpr int kWaveSize = 64;

MHA_SINK_DEVICE int thread_id() { return __builtin_amdgcn_workitem_id_x(); }
MHA_SINK_DEVICE int lane_id() { return thread_id() % kWaveSize; }

// The compiler cannot know that thread_id() / 64 is the same in all lanes of a wave; without the
// readfirstlane every descriptor that depends on it would get a waterfall loop.
MHA_SINK_DEVICE int wave_id() { return __builtin_amdgcn_readfirstlane(thread_id() / kWaveSize); }

MHA_SINK_DEVICE int workgroup_id_x() { return __builtin_amdgcn_workgroup_id_x(); }
MHA_SINK_DEVICE int workgroup_id_y() { return __builtin_amdgcn_workgroup_id_y(); }
MHA_SINK_DEVICE int workgroup_id_z() { return __builtin_amdgcn_workgroup_id_z(); }

// Hides where a value comes from: what is derived from it is computed anew instead of being kept in
// registers from an earlier use.
template <class T>
MHA_SINK_DEVICE void opaque(T& value) {
  asm volatile("" : "+v"(value));
}

// The kernel's parameter struct, loaded anew at every use of the reference: for parameters that are
// needed once, after a loop whose scalar registers are scarce.
template <class Params>
MHA_SINK_DEVICE const __attribute__((address_space(4))) Params& reloaded_params() {
  auto address = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(address));
  return *(const __attribute__((address_space(4))) Params*)address;
}

constexpr MHA_SINK_DEVICE int min(int a, int b) { return a < b ? a : b; }
constexpr MHA_SINK_DEVICE int max(int a, int b) { return a > b ? a : b; }

}  // namespace mha_sink::arch
