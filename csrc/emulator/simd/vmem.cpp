// Global and flat instructions. The emulator's flat address space has no LDS or scratch aperture,
// so flat behaves as global and an aperture address faults.
#include "emulator/simd/vmem.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

struct Global {
  static constexpr bool kMapped = true;
  static void resolve(const Instruction& instruction, const Wave& wave, uint32_t bytes,
                      const char* access, Lanes& lanes);
};

// Out of line: the handlers share one copy.
[[gnu::noinline]] void Global::resolve(const Instruction& instruction, const Wave& wave, uint32_t,
                                       const char*, Lanes& lanes) {
  lanes.active = wave.exec();
  const uint64_t offset = static_cast<uint64_t>(int64_t{instruction.offset});
  const uint32_t* vaddr = vector_register(instruction, wave, instruction.src[0]);
  if (instruction.src[2].kind != OperandKind::none) {
    const uint64_t base = scalar(instruction, wave, instruction.src[2]) + offset;
    uint32_t lowest = ~0u, highest = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes.address[lane] = base + vaddr[lane];
      lowest = vaddr[lane] < lowest ? vaddr[lane] : lowest;
      highest = vaddr[lane] > highest ? vaddr[lane] : highest;
    }
    lanes.lowest = base + lowest;
    lanes.highest = base + highest;
    return;
  }
  const uint32_t* high = vector_register(instruction, wave, instruction.src[0], 1);
  // Signed: AVX2 compares signed 64-bit integers only, and no user address has the top bit.
  int64_t lowest = INT64_MAX, highest = INT64_MIN;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t address = (vaddr[lane] | uint64_t{high[lane]} << 32) + offset;
    lanes.address[lane] = address;
    const int64_t value = static_cast<int64_t>(address);
    lowest = value < lowest ? value : lowest;
    highest = value > highest ? value : highest;
  }
  lanes.lowest = static_cast<uint64_t>(lowest);
  lanes.highest = static_cast<uint64_t>(highest);
}

}  // namespace

void fill_vmem(HandlerTable& table) {
  MHA_SINK_FILL_LOADS(table, global, Global, load)
  MHA_SINK_FILL_STORES(table, global, Global)
  MHA_SINK_FILL_ATOMICS(table, global, Global)
  MHA_SINK_FILL_LOADS(table, flat, Global, load)
  MHA_SINK_FILL_STORES(table, flat, Global)
  MHA_SINK_FILL_ATOMICS(table, flat, Global)
  table[Op::global_load_lds_ubyte] = load_lds<Global, Part<uint8_t>>;
  table[Op::global_load_lds_sbyte] = load_lds<Global, Part<int8_t>>;
  table[Op::global_load_lds_ushort] = load_lds<Global, Part<uint16_t>>;
  table[Op::global_load_lds_sshort] = load_lds<Global, Part<int16_t>>;
  table[Op::global_load_lds_dword] = load_lds<Global, Dwords<1>>;
  table[Op::global_load_lds_dwordx3] = load_lds<Global, Dwords<3>>;
  table[Op::global_load_lds_dwordx4] = load_lds<Global, Dwords<4>>;
  fill_vmem_buffer(table);
  fill_vmem_scratch(table);
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
