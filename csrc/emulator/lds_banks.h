// How many clocks of the LDS an access takes, bank conflicts included.
#pragma once

#include <cstdint>

#include "emulator/memory_access.h"

namespace mha_sink::emulator {

struct LdsClocks {
  uint32_t clocks = 0;  // as addressed
  uint32_t least = 0;   // had no two lanes of a phase met in a bank
};

// An access is served in phases, each a fixed set of lanes and a clock at least. In a phase a bank,
// 4 bytes wide, gives one dword a clock to any number of lanes. Measured on MI355X by HipKittens
// (analysis/paper_experiments/phases): reads of 8 and 16 bytes have 64 banks and 2 and 4 phases,
// those of 16 bytes the lanes {0-3,12-15,20-27}, {4-11,16-19,28-31} and the same 32 higher; writes
// and reads of 12 bytes 32 banks, writes of 8 bytes 4 phases of 16 lanes. Assumed, not measured:
// that the other phases take consecutive lanes, as many as fill the banks (12 bytes: 8 lanes); that
// transposed reads are as any of 8 bytes; that atomics are as writes.
LdsClocks lds_clocks(AccessKind kind, uint32_t bytes, uint64_t lanes,
                     const uint64_t (&address)[kLanes]);

}  // namespace mha_sink::emulator
