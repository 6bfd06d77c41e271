// How vector instructions read and write registers: sources as 64 lanes, DPP, lane masks.
#pragma once

#include <cstdint>

#ifdef __AVX__
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "emulator/simd/families.h"

// A loop over lanes reads and writes the same lane of registers that are identical or disjoint, so
// it has no dependence between iterations whatever the registers are.
#ifdef __clang__
#define MHA_SINK_FOR_LANES(lane) \
  _Pragma("clang loop vectorize(assume_safety)") for (int lane = 0; lane < kLanes; ++lane)
#else
#define MHA_SINK_FOR_LANES(lane) _Pragma("GCC ivdep") for (int lane = 0; lane < kLanes; ++lane)
#endif

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

inline constexpr uint64_t kAllLanes = ~uint64_t{0};

// One source as 64 lanes; hi is the second dword of a 64-bit source.
struct Source {
  const uint32_t* lo = nullptr;
  const uint32_t* hi = nullptr;
};

// Left uninitialised on purpose: most sources are read in place.
struct Scratch {
  VectorRegister lo, hi;
};

inline uint32_t* vector_register(const Instruction& instruction, const Wave& wave,
                                 const Operand& operand, uint32_t dword = 0) {
  const uint32_t index = operand.index + dword;
  if (operand.kind == OperandKind::vgpr && index < wave.vgpr_count) return wave.vgpr[index].lane;
  if (operand.kind == OperandKind::agpr && index < wave.agpr_count) return wave.agpr[index].lane;
  unsupported(instruction, "a vector register beyond those allocated");
}

inline bool is_vector(const Operand& operand) {
  return operand.kind == OperandKind::vgpr || operand.kind == OperandKind::agpr;
}

// The value that all lanes share.
inline uint64_t scalar(const Instruction& instruction, const Wave& wave, const Operand& operand) {
  switch (operand.kind) {
    case OperandKind::constant:
      return operand.constant;
    case OperandKind::sgpr:
      if (operand.index + (operand.dwords > 1) >= 128) break;
      return operand.dwords > 1 ? wave.read64(operand.index) : wave.sgpr[operand.index];
    case OperandKind::special:
      if (operand.index == 251) return wave.vcc() == 0;
      if (operand.index == 252) return wave.exec() == 0;
      if (operand.index == 253) return wave.scc;
      break;
    default:
      break;
  }
  unsupported(instruction, "a scalar source of this kind");
}

inline const uint32_t* broadcast(uint32_t value, VectorRegister& scratch) {
  MHA_SINK_FOR_LANES(lane) scratch.lane[lane] = value;
  return scratch.lane;
}

inline const uint32_t* source_dword(const Instruction& instruction, const Wave& wave, int i,
                                    VectorRegister& scratch) {
  const Operand& operand = instruction.src[i];
  if (is_vector(operand)) return vector_register(instruction, wave, operand);
  return broadcast(static_cast<uint32_t>(scalar(instruction, wave, operand)), scratch);
}

inline Source source_qword(const Instruction& instruction, const Wave& wave, int i,
                           Scratch& scratch) {
  const Operand& operand = instruction.src[i];
  if (is_vector(operand)) {
    return {vector_register(instruction, wave, operand),
            vector_register(instruction, wave, operand, 1)};
  }
  const uint64_t value = scalar(instruction, wave, operand);
  return {broadcast(static_cast<uint32_t>(value), scratch.lo),
          broadcast(static_cast<uint32_t>(value >> 32), scratch.hi)};
}

struct LaneBits {
  uint32_t bit[32];
};
inline constexpr LaneBits kLaneBits = [] {
  LaneBits bits{};
  for (int i = 0; i < 32; ++i) bits.bit[i] = 1u << i;
  return bits;
}();

// ~0 in the lanes of `mask`, 0 elsewhere.
inline void expand(uint64_t mask, VectorRegister& lanes) {
  const uint32_t low = static_cast<uint32_t>(mask), high = static_cast<uint32_t>(mask >> 32);
  for (int i = 0; i < 32; ++i) lanes.lane[i] = (low & kLaneBits.bit[i]) != 0 ? ~0u : 0;
  for (int i = 0; i < 32; ++i) lanes.lane[32 + i] = (high & kLaneBits.bit[i]) != 0 ? ~0u : 0;
}

inline void store_masked(uint64_t mask, const uint32_t* value, uint32_t* destination) {
  VectorRegister select;
  expand(mask, select);
  MHA_SINK_FOR_LANES(lane) {
    destination[lane] =
        (value[lane] & select.lane[lane]) | (destination[lane] & ~select.lane[lane]);
  }
}

inline void store_dword(const Instruction& instruction, Wave& wave, uint64_t active,
                        const uint32_t* value, uint32_t dword = 0) {
  store_masked(active, value, vector_register(instruction, wave, instruction.dst, dword));
}

// Writes one half of each active lane and keeps the other.
inline void store_half(uint64_t active, bool high, const uint32_t* value, uint32_t* destination) {
  VectorRegister merged;
  const int shift = high ? 16 : 0;
  const uint32_t keep = high ? 0xffffu : 0xffff0000u;
  MHA_SINK_FOR_LANES(lane) {
    merged.lane[lane] = (destination[lane] & keep) | (value[lane] & 0xffffu) << shift;
  }
  store_masked(active, merged.lane, destination);
}

// The sign bit of every lane.
inline uint64_t collect(const VectorRegister& lanes) {
  uint64_t mask = 0;
#ifdef __AVX__
  for (int i = 0; i < kLanes; i += 8) {
    const __m256 group = _mm256_load_ps(reinterpret_cast<const float*>(lanes.lane + i));
    mask |= uint64_t{static_cast<uint32_t>(_mm256_movemask_ps(group))} << i;
  }
#elif defined(__SSE2__)
  for (int i = 0; i < kLanes; i += 4) {
    const __m128 group = _mm_load_ps(reinterpret_cast<const float*>(lanes.lane + i));
    mask |= uint64_t{static_cast<uint32_t>(_mm_movemask_ps(group))} << i;
  }
#else
  for (int i = 0; i < kLanes; ++i) mask |= uint64_t{lanes.lane[i] >> 31} << i;
#endif
  return mask;
}

// result[lane] = source[from(lane)], or 0 where that lane is negative (none) or inactive. Returns
// the lanes that had a source.
template <class From>
[[gnu::flatten]] uint64_t gather(const uint32_t* source, uint64_t exec, VectorRegister& result,
                                 From from) {
  VectorRegister active, index, valid;
  expand(exec, active);
  for (int lane = 0; lane < kLanes; ++lane) index.lane[lane] = static_cast<uint32_t>(from(lane));
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t inside = (index.lane[lane] >> 31) - 1;
    valid.lane[lane] = active.lane[index.lane[lane] & 63] & inside;
    result.lane[lane] = source[index.lane[lane] & 63] & valid.lane[lane];
  }
  return collect(valid);
}

// The two patterns of hot loops, when every lane is active: broadcasts within rows or quads.
inline bool gather_all_active(int control, const uint32_t* source, VectorRegister& result) {
  if (control <= 0xff) {  // quad_perm
#ifdef __AVX__
    const __m256i order =
        _mm256_setr_epi32(control & 3, control >> 2 & 3, control >> 4 & 3, control >> 6 & 3,
                          control & 3, control >> 2 & 3, control >> 4 & 3, control >> 6 & 3);
    for (int lane = 0; lane < kLanes; lane += 8) {
      const __m256 lanes = _mm256_load_ps(reinterpret_cast<const float*>(source + lane));
      _mm256_store_ps(reinterpret_cast<float*>(result.lane + lane),
                      _mm256_permutevar_ps(lanes, order));
    }
#else
    for (int quad = 0; quad < kLanes; quad += 4) {
      for (int i = 0; i < 4; ++i) {
        result.lane[quad + i] = source[quad + (control >> (2 * i) & 3)];
      }
    }
#endif
    return true;
  }
  if ((control & 0x1f0) != 0x150) return false;
  for (int row = 0; row < kLanes; row += 16) {  // row_newbcast
    const uint32_t value = source[row + (control & 15)];
    for (int i = 0; i < 16; ++i) result.lane[row + i] = value;
  }
  return true;
}

// Lane patterns of DPP16 (CDNA3 ISA, "DPP_CTRL"): within rows of 16 lanes, or across the wave.
inline uint64_t gather_dpp(const Instruction& instruction, const uint32_t* source, uint64_t exec,
                           VectorRegister& result) {
  const int control = instruction.dpp_ctrl, count = control & 15;
  const auto with = [&](auto from) { return gather(source, exec, result, from); };
  if (control <= 0xff) {  // quad_perm
    return with([=](int l) { return (l & ~3) | (control >> (2 * (l & 3)) & 3); });
  }
  switch (count == 0 && control <= 0x12f ? 0 : control & 0x1f0) {
    case 0x100:  // row_shl
      return with([=](int l) { return (l & 15) + count <= 15 ? l + count : -1; });
    case 0x110:  // row_shr
      return with([=](int l) { return (l & 15) >= count ? l - count : -1; });
    case 0x120:  // row_ror
      return with([=](int l) { return (l & ~15) | ((l - count) & 15); });
    case 0x150:  // row_newbcast
      return with([=](int l) { return (l & ~15) | count; });
    default:
      break;
  }
  switch (control) {
    case 0x130:  // wave_shl:1
      return with([](int l) { return l < 63 ? l + 1 : -1; });
    case 0x134:  // wave_rol:1
      return with([](int l) { return (l + 1) & 63; });
    case 0x138:  // wave_shr:1
      return with([](int l) { return l - 1; });
    case 0x13c:  // wave_ror:1
      return with([](int l) { return (l - 1) & 63; });
    case 0x140:  // row_mirror
      return with([](int l) { return l ^ 15; });
    case 0x141:  // row_half_mirror
      return with([](int l) { return l ^ 7; });
    case 0x142:  // row_bcast:15, each row's last lane to the next row
      return with([](int l) { return (l & ~15) - 1; });
    case 0x143:  // row_bcast:31
      return with([](int l) { return l >= 32 ? 31 : -1; });
    default:
      unsupported(instruction, "this DPP control");
  }
}

// Permutes `source` into `scratch`; returns the lanes that the instruction may write. A lane
// without an active source lane reads 0 with bound_ctrl and is not written without.
[[gnu::noinline]] inline uint64_t apply_dpp(const Instruction& instruction, const Wave& wave,
                                            const uint32_t*& source, VectorRegister& scratch) {
  if (wave.exec() == kAllLanes && instruction.row_mask == 0xf && instruction.bank_mask == 0xf &&
      gather_all_active(instruction.dpp_ctrl, source, scratch)) {
    source = scratch.lane;
    return kAllLanes;
  }
  VectorRegister result;
  const uint64_t valid = gather_dpp(instruction, source, wave.exec(), result);
  uint64_t selected = 0;
  for (int row = 0; row < 4; ++row) {
    if (!(instruction.row_mask >> row & 1)) continue;
    for (int bank = 0; bank < 4; ++bank) {
      if (instruction.bank_mask >> bank & 1) selected |= uint64_t{0xf} << (16 * row + 4 * bank);
    }
  }
  scratch = result;
  source = scratch.lane;
  return instruction.bound_ctrl ? selected : selected & valid;
}

inline void write_mask(const Instruction& instruction, Wave& wave, const Operand& operand,
                       uint64_t mask) {
  if (operand.kind != OperandKind::sgpr || operand.index + 1 >= 128) {
    unsupported(instruction, "a lane mask outside the scalar registers");
  }
  wave.write64(operand.index, mask);
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
