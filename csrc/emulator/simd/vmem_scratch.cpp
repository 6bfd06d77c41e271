// Scratch instructions. Each lane has its own scratch_bytes, which offsets address from 0; the
// hardware's interleaving of lanes is invisible to them.
#include "emulator/simd/vmem.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

struct ScratchSegment {
  static constexpr bool kMapped = false;
  static void resolve(const Instruction& instruction, const Wave& wave, uint32_t bytes,
                      const char* access, Lanes& lanes);
};

[[gnu::noinline]] void ScratchSegment::resolve(const Instruction& instruction, const Wave& wave,
                                               uint32_t bytes, const char* access, Lanes& lanes) {
  lanes.active = wave.exec();
  uint32_t shared = static_cast<uint32_t>(instruction.offset);
  if (instruction.src[2].kind != OperandKind::none) {
    shared += static_cast<uint32_t>(scalar(instruction, wave, instruction.src[2]));
  }
  const uint32_t* vaddr = nullptr;
  if (instruction.src[0].kind != OperandKind::none) {
    vaddr = vector_register(instruction, wave, instruction.src[0]);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t offset = shared + (vaddr == nullptr ? 0 : vaddr[lane]);
    lanes.address[lane] = reinterpret_cast<uintptr_t>(wave.scratch) +
                          uint64_t{wave.scratch_bytes} * static_cast<uint32_t>(lane) + offset;
    if ((lanes.active >> lane & 1) && uint64_t{offset} + bytes > wave.scratch_bytes) {
      throw_scratch_fault(wave, lane, offset, bytes, access);
    }
  }
}

}  // namespace

void fill_vmem_scratch(HandlerTable& table) {
  MHA_SINK_FILL_LOADS(table, scratch, ScratchSegment, load)
  MHA_SINK_FILL_STORES(table, scratch, ScratchSegment)
  table[Op::scratch_load_lds_ubyte] = load_lds<ScratchSegment, Part<uint8_t>>;
  table[Op::scratch_load_lds_sbyte] = load_lds<ScratchSegment, Part<int8_t>>;
  table[Op::scratch_load_lds_ushort] = load_lds<ScratchSegment, Part<uint16_t>>;
  table[Op::scratch_load_lds_sshort] = load_lds<ScratchSegment, Part<int16_t>>;
  table[Op::scratch_load_lds_dword] = load_lds<ScratchSegment, Dwords<1>>;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
