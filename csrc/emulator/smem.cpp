// Scalar memory: loads by address and by buffer descriptor, time, cache control.
#include <chrono>
#include <cstring>
#include <string>

#include "emulator/error.h"
#include "emulator/memory_map.h"
#include "emulator/salu.h"

namespace mha_sink::emulator {
namespace {

uint32_t scalar_offset(const Instruction& i, const Wave& wave) {
  return i.soffset.kind == OperandKind::sgpr ? wave.sgpr[i.soffset.index] : 0;
}

void load_dwords(const Instruction& i, Wave& wave, uint64_t address, unsigned dwords) {
  const MemoryMap& memory = *wave.workgroup->memory;
  size_t bytes = size_t{4} * dwords;
  if (!memory.readable(address, bytes)) {
    throw EmulationError(to_string(i) + " reads " + std::to_string(bytes) + " bytes at " +
                         memory.describe(address));
  }
  std::memcpy(&wave.sgpr[i.dst.index], reinterpret_cast<const void*>(address), bytes);
}

// Hardware ignores the two low bits of the address.
void load(const Instruction& i, Wave& wave) {
  uint64_t address =
      wave.read64(i.src[0].index) + static_cast<int64_t>(i.offset) + scalar_offset(i, wave);
  load_dwords(i, wave, address & ~uint64_t{3}, i.dst.dwords);
}

// Buffer descriptor: base in bits 47:0, stride in bits 61:48, records (bytes where the stride is 0)
// in word 2. Dwords past the end read as zero.
void buffer_load(const Instruction& i, Wave& wave) {
  const uint32_t* descriptor = &wave.sgpr[i.src[0].index];
  uint64_t base = descriptor[0] | uint64_t{descriptor[1] & 0xffff} << 32;
  uint64_t stride = descriptor[1] >> 16 & 0x3fff, records = descriptor[2];
  uint64_t size = stride ? stride * records : records;
  uint64_t offset =
      (static_cast<uint64_t>(int64_t{i.offset}) + scalar_offset(i, wave)) & ~uint64_t{3};
  unsigned inside = 0;
  while (inside < i.dst.dwords && offset < size && size - offset >= 4 * (inside + 1)) ++inside;
  for (unsigned d = inside; d < i.dst.dwords; ++d) wave.sgpr[i.dst.index + d] = 0;
  if (inside) load_dwords(i, wave, base + offset, inside);
}

void read_time(const Instruction& i, Wave& wave) {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  wave.write64(i.dst.index, static_cast<uint64_t>(now.count()));
}

void nothing(const Instruction&, Wave&) {}

}  // namespace

void fill_smem(HandlerTable& t) {
  for (Op op : {Op::s_load_dword, Op::s_load_dwordx2, Op::s_load_dwordx4, Op::s_load_dwordx8,
                Op::s_load_dwordx16}) {
    t[op] = load;
  }
  for (Op op : {Op::s_buffer_load_dword, Op::s_buffer_load_dwordx2, Op::s_buffer_load_dwordx4,
                Op::s_buffer_load_dwordx8, Op::s_buffer_load_dwordx16}) {
    t[op] = buffer_load;
  }
  t[Op::s_memtime] = read_time;
  t[Op::s_memrealtime] = read_time;
  for (Op op : {Op::s_dcache_inv, Op::s_dcache_wb, Op::s_dcache_inv_vol, Op::s_dcache_wb_vol}) {
    t[op] = nothing;
  }
}

}  // namespace mha_sink::emulator
