#include "emulator/lds_banks.h"

#include <algorithm>

namespace mha_sink::emulator {
namespace {

// Lanes {0-3,12-15,20-27}, the others of the first 32, and both sets 32 lanes higher.
constexpr uint64_t kRead16[4] = {0x0ff0f00full, 0xf00f0ff0ull, 0x0ff0f00full << 32,
                                 0xf00f0ff0ull << 32};

struct Phases {
  uint32_t banks, count;

  uint64_t lanes(uint32_t bytes, uint32_t phase) const {
    if (banks == 64 && bytes == 16) return kRead16[phase];
    const uint32_t width = kLanes / count;
    const uint64_t ones = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    return ones << phase * width;
  }
};

Phases phases(AccessKind kind, uint32_t bytes) {
  if (kind == AccessKind::load && bytes != 12) return {64, bytes <= 4 ? 1u : bytes / 4};
  if (bytes <= 4) return {32, 2};
  return {32, bytes == 8 ? 4u : 8u};
}

// The most distinct dwords that one bank has to give.
uint32_t worst_bank(uint32_t banks, uint32_t bytes, uint64_t lanes,
                    const uint64_t (&address)[kLanes]) {
  constexpr uint32_t kMostDwords = 128;  // of a phase: 64 lanes, each across two dwords
  uint64_t dwords[64][kMostDwords];
  uint32_t used[64] = {}, worst = 1;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    for (uint64_t d = address[lane] / 4; d <= (address[lane] + bytes - 1) / 4; ++d) {
      const uint32_t bank = d % banks;
      uint64_t* const begin = dwords[bank];
      uint64_t* const end = begin + used[bank];
      if (std::find(begin, end, d) != end) continue;
      *end = d;
      worst = std::max(worst, ++used[bank]);
    }
  }
  return worst;
}

}  // namespace

LdsClocks lds_clocks(AccessKind kind, uint32_t bytes, uint64_t lanes,
                     const uint64_t (&address)[kLanes]) {
  const Phases served = phases(kind, bytes);
  LdsClocks result;
  for (uint32_t phase = 0; phase < served.count; ++phase) {
    const uint64_t of_phase = lanes & served.lanes(bytes, phase);
    result.clocks += worst_bank(served.banks, bytes, of_phase, address);
  }
  result.least = served.count;
  return result;
}

}  // namespace mha_sink::emulator
