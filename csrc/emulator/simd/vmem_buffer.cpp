// Buffer instructions on raw and on indexed buffers: descriptors without swizzle or thread id.
#include "emulator/simd/vmem.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

struct Buffer {
  static constexpr bool kMapped = true;
  static void resolve(const Instruction& instruction, const Wave& wave, uint32_t bytes,
                      const char* access, Lanes& lanes);
};

// V#: base in bits 47:0, stride in 61:48, swizzle in 63:62, num_records in word 2.
struct Descriptor {
  uint64_t base;
  uint32_t stride, records;
};

Descriptor read_descriptor(const Instruction& instruction, const Wave& wave) {
  const Operand& resource = instruction.src[2];
  if (resource.kind != OperandKind::sgpr || resource.index + 4 > kM0) {
    unsupported(instruction, "four scalar registers are needed for the buffer descriptor");
  }
  const uint32_t* words = wave.sgpr + resource.index;
  if (words[1] >> 30 != 0) {
    throw_descriptor(instruction, wave, "swizzled buffers cannot be emulated");
  }
  const uint32_t stride = words[1] >> 16;
  if (instruction.idxen && stride == 0) {
    throw_descriptor(instruction, wave, "a buffer index (idxen) needs a stride to be emulated");
  }
  if (words[3] >> 30 != 0 || (words[3] >> 23 & 1) != 0) {
    throw_descriptor(instruction, wave,
                     "only buffer descriptors of type 0 without thread id can be emulated");
  }
  return {words[0] | uint64_t{words[1] & 0xffff} << 32, stride, words[2]};
}

// Indexed buffers: the index alone is checked, against num_records in units of the stride. aiter's
// kernels rely on both: they read several records from one index and add offsets beyond a stride.
void resolve_indexed(const Instruction& instruction, const Wave& wave, const Descriptor& buffer,
                     uint64_t shared, Lanes& lanes) {
  const uint32_t* index = vector_register(instruction, wave, instruction.src[0]);
  const uint32_t* voffset =
      instruction.offen ? vector_register(instruction, wave, instruction.src[0], 1) : nullptr;
  lanes.limit = ~uint64_t{0};
  lanes.lowest = ~uint64_t{0};
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t offset = voffset != nullptr ? voffset[lane] : 0;
    const uint64_t inside = shared + uint64_t{index[lane]} * buffer.stride + offset;
    const uint64_t address = index[lane] < buffer.records ? inside : lanes.limit;
    lanes.address[lane] = address;
    lanes.lowest = address < lanes.lowest ? address : lanes.lowest;
    lanes.highest = address > lanes.highest ? address : lanes.highest;
  }
}

// Without an index the stride does nothing: a component is in range when voffset + offset + soffset
// + its bytes <= num_records.
// The sum does not wrap at 32 bits: LLVM notes (SIISelLowering, splitBufferOffsets) that hardware
// treats a voffset that is negative as 32 bits as out of range whatever is added to it.
void resolve_raw(const Instruction& instruction, const Wave& wave, const Descriptor& buffer,
                 uint64_t shared, Lanes& lanes) {
  lanes.limit = buffer.base + buffer.records;
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

[[gnu::noinline]] void Buffer::resolve(const Instruction& instruction, const Wave& wave, uint32_t,
                                       const char*, Lanes& lanes) {
  const Descriptor buffer = read_descriptor(instruction, wave);
  const uint64_t shared = buffer.base + static_cast<uint32_t>(instruction.offset) +
                          static_cast<uint32_t>(scalar(instruction, wave, instruction.soffset));
  lanes.active = wave.exec();
  if (instruction.idxen) return resolve_indexed(instruction, wave, buffer, shared, lanes);
  resolve_raw(instruction, wave, buffer, shared, lanes);
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
