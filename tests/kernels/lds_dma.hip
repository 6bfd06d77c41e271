// A double-buffered copy through LDS-DMA, right and with its wait weakened or removed.
//
// vmcnt counts loads, stores and LDS-DMA in issue order. When tile i is read, what may be in flight
// is the DMA of tile i + 1, the youngest: vmcnt(1). From the second tile on the store of tile i - 1
// lies between the two DMAs, so that vmcnt(2) is enough, but for the first tile it is not: a wait
// that is wrong once.
#include "gfx950.h"

namespace {

constexpr uint32_t kBytesPerLane = 16, kTileBytes = 64 * kBytesPerLane;

DEVICE void load_to_lds(const uint8_t* source, LdsPointer<uint8_t> lds) {
  __builtin_amdgcn_global_load_lds((GlobalPointer<uint8_t>)source, lds, kBytesPerLane, 0, 0);
}

enum class Wait { kExact, kTooWeak, kRemoved };

template <Wait kWait>
DEVICE void copy(const uint8_t* x, uint8_t* out, uint32_t tiles) {
  LDS static uint8_t buffer[2 * kTileBytes];
  const auto lds = (LdsPointer<uint8_t>)&buffer[0];
  const uint32_t mine = lane_id() * kBytesPerLane;
  load_to_lds(x + mine, lds);
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    // The last iteration loads the last tile again, to keep the count of what is in flight.
    const uint32_t next = tile + 1 < tiles ? tile + 1 : tile;
    load_to_lds(x + next * kTileBytes + mine, lds + (tile + 1) % 2 * kTileBytes);
    if (kWait == Wait::kExact) asm volatile("s_waitcnt vmcnt(1)" ::: "memory");
    if (kWait == Wait::kTooWeak) asm volatile("s_waitcnt vmcnt(2)" ::: "memory");
    // Inline assembly, because the compiler may put a wait of its own before a read that it knows.
    u32x4 value;
    asm volatile("ds_read_b128 %0, %1\n s_waitcnt lgkmcnt(0)"
                 : "=v"(value)
                 : "v"(lds + tile % 2 * kTileBytes + mine)
                 : "memory");
    *(u32x4*)(out + tile * kTileBytes + mine) = value;
  }
}

}  // namespace

KERNEL copy_exact_wait(const uint8_t* x, uint8_t* out, uint32_t tiles) {
  copy<Wait::kExact>(x, out, tiles);
}
KERNEL copy_weak_wait(const uint8_t* x, uint8_t* out, uint32_t tiles) {
  copy<Wait::kTooWeak>(x, out, tiles);
}
KERNEL copy_no_wait(const uint8_t* x, uint8_t* out, uint32_t tiles) {
  copy<Wait::kRemoved>(x, out, tiles);
}
