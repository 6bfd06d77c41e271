// Buffer instructions on raw buffers: descriptors without stride, swizzle or thread id.
#include "emulator/simd/vmem.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

struct Buffer {
  static constexpr bool kMapped = true;
  static void resolve(const Instruction& instruction, const Wave& wave, uint32_t bytes,
                      const char* access, Lanes& lanes);
};

// A component is in range when voffset + offset + soffset + its bytes <= num_records. The sum does
// not wrap at 32 bits: LLVM notes (SIISelLowering, splitBufferOffsets) that hardware treats a
// voffset that is negative as 32 bits as out of range whatever is added to it.
[[gnu::noinline]] void Buffer::resolve(const Instruction& instruction, const Wave& wave, uint32_t,
                                       const char*, Lanes& lanes) {
  const Operand& resource = instruction.src[2];
  if (resource.kind != OperandKind::sgpr || resource.index + 4 > kM0) {
    unsupported(instruction, "four scalar registers are needed for the buffer descriptor");
  }
  const uint32_t* words = wave.sgpr + resource.index;
  if (words[1] >> 16 != 0) {
    throw_descriptor(instruction, wave,
                     "only raw buffers can be emulated: stride and swizzle must be 0");
  }
  if (instruction.idxen) {
    throw_descriptor(instruction, wave, "a buffer index (idxen) cannot be emulated");
  }
  if (words[3] >> 30 != 0 || (words[3] >> 23 & 1) != 0) {
    throw_descriptor(instruction, wave,
                     "only buffer descriptors of type 0 without thread id can be emulated");
  }
  const uint64_t base = words[0] | uint64_t{words[1]} << 32;
  const uint64_t shared = base + static_cast<uint32_t>(instruction.offset) +
                          static_cast<uint32_t>(scalar(instruction, wave, instruction.soffset));
  lanes.active = wave.exec();
  lanes.limit = base + words[2];
  uint32_t lowest = 0, highest = 0;
  if (instruction.offen) {
    const uint32_t* voffset = vector_register(instruction, wave, instruction.src[0]);
    lowest = ~0u;
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes.address[lane] = shared + voffset[lane];
      lowest = voffset[lane] < lowest ? voffset[lane] : lowest;
      highest = voffset[lane] > highest ? voffset[lane] : highest;
    }
  } else {
    for (int lane = 0; lane < kLanes; ++lane) lanes.address[lane] = shared;
  }
  lanes.lowest = shared + lowest;
  lanes.highest = shared + highest;
}

template <typename Mode, typename Access>
void load_either(const Instruction& instruction, Wave& wave) {
  instruction.lds ? load_lds<Mode, Access>(instruction, wave)
                  : load<Mode, Access>(instruction, wave);
}

// Cache maintenance: the emulated caches are the host's, always coherent. Not counted in vmcnt.
void maintain_cache(const Instruction&, Wave&) {}

}  // namespace

void fill_vmem_buffer(HandlerTable& table) {
  MHA_SINK_FILL_LOADS(table, buffer, Buffer, load_either)
  MHA_SINK_FILL_STORES(table, buffer, Buffer)
  MHA_SINK_FILL_ATOMICS(table, buffer, Buffer)
  table[Op::buffer_wbl2] = maintain_cache;
  table[Op::buffer_inv] = maintain_cache;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
