// Architectural state of one wave64 and of the workgroup it belongs to.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "emulator/error.h"
#include "emulator/instruction.h"
#include "emulator/memory_map.h"

namespace mha_sink::emulator {

inline constexpr int kLanes = 64;

// Scalar register numbers of the ISA.
inline constexpr int kVcc = 106, kM0 = 124, kExec = 126;

// Registers and LDS hold this before anything is written: NaN as fp32, bf16 and fp16.
inline constexpr uint32_t kPoison = 0xffc1ffc1u;
// `data` begins at a dword of what it is part of.
void fill_poison(void* data, size_t bytes);

struct alignas(64) VectorRegister {
  uint32_t lane[kLanes];
};

// What LDS-DMA fetched and not yet delivered: it lands at the s_waitcnt vmcnt that covers it.
struct PendingVmem {
  struct Piece {
    uint32_t lds_address, bytes, data_offset;
  };
  std::vector<Piece> pieces;  // empty: an ordinary load, store or atomic, already performed
  std::vector<uint8_t> data;
};

struct FloatMode {
  uint8_t round = 0;       // rsrc1 FLOAT_MODE bits 0..3; only 0 (nearest even) is executable
  bool flush_f32 = false;  // denormals of fp32 flushed, sources and results
  bool flush_f16_f64 = false;
  bool dx10_clamp = true;
  bool ieee = true;
};

struct Workgroup {
  uint32_t id[3] = {0, 0, 0};
  std::vector<uint8_t> lds;
  const MemoryMap* memory = nullptr;
};

class Wave {
 public:
  alignas(64) VectorRegister* vgpr = nullptr;  // v0..; vgpr_count of them
  VectorRegister* agpr = nullptr;              // a0..; agpr_count of them
  uint32_t vgpr_count = 0, agpr_count = 0;
  uint32_t sgpr[128] = {};  // vcc, m0 and exec live at their ISA numbers
  bool scc = false;
  uint32_t pc = 0;     // index of the next instruction in the program
  bool ended = false;  // s_endpgm
  bool at_barrier = false;
  FloatMode mode;
  Workgroup* workgroup = nullptr;
  int index = 0;               // wave number in the workgroup
  uint8_t* scratch = nullptr;  // 64 lanes of scratch_bytes each
  uint32_t scratch_bytes = 0;
  std::deque<PendingVmem> vmem;  // oldest first

  uint64_t exec() const { return read64(kExec); }
  uint64_t vcc() const { return read64(kVcc); }
  uint64_t read64(int index) const { return sgpr[index] | uint64_t{sgpr[index + 1]} << 32; }
  void write64(int index, uint64_t value) {
    sgpr[index] = static_cast<uint32_t>(value);
    sgpr[index + 1] = static_cast<uint32_t>(value >> 32);
  }

  // Every load, store and atomic on global memory counts in vmcnt, in order.
  void issue_vmem();
  // LDS-DMA of `lane_bytes` for each lane of the mask, lane l to lds_address + l * lane_bytes from
  // data + l * lane_bytes. The destination is poison until wait_vmem delivers the data.
  void issue_lds_dma(uint64_t lds_address, uint32_t lane_bytes, const uint8_t* data,
                     uint64_t lanes);
  // s_waitcnt vmcnt(n): delivers LDS-DMA data until at most n operations are outstanding.
  void wait_vmem(size_t outstanding);
};

// Handlers of every instruction family, by Op. A family fills its own entries.
struct HandlerTable {
  Handler handler[static_cast<size_t>(Op::count)] = {};
  Handler sdwa = nullptr;  // of every instruction in its SDWA form: it calls the plain handler
  Handler& operator[](Op op) { return handler[static_cast<size_t>(op)]; }
};

// The table for this processor: vectorised families compiled for x86-64-v4, v3 or baseline.
const HandlerTable& handlers();

}  // namespace mha_sink::emulator
