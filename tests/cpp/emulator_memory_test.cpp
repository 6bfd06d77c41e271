// LDS, global, buffer and scratch instructions of the emulator, and LDS-DMA, one hand-built
// instruction at a time, at every vector level that this processor has.
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "emulator/memory_map.h"
#include "emulator/simd/families.h"
#include "emulator/thread_pool.h"
#include "emulator/wave.h"

namespace mha_sink::test {
namespace {

using namespace emulator;

constexpr uint64_t kAll = ~uint64_t{0};
constexpr uint32_t kUnwritten = 0x55555555u;

Operand vector_operand(uint16_t index, uint8_t dwords = 1) {
  return {OperandKind::vgpr, dwords, index, 0};
}
Operand scalar_operand(uint16_t index, uint8_t dwords) {
  return {OperandKind::sgpr, dwords, index, 0};
}

// One wave in a workgroup, and the memory it may touch.
struct Machine {
  HandlerTable table;
  std::vector<VectorRegister> registers;
  Workgroup workgroup;
  std::unique_ptr<MemoryMap> memory;
  std::vector<uint8_t> scratch;
  Wave wave;

  Machine(SimdLevel level, size_t lds_bytes, std::vector<MemoryRange> ranges = {})
      : table(handlers_for(level)), registers(64), memory(std::make_unique<MemoryMap>(ranges)) {
    for (VectorRegister& each : registers) std::fill_n(each.lane, kLanes, kUnwritten);
    workgroup.lds.resize(lds_bytes);
    workgroup.memory = memory.get();
    wave.vgpr = registers.data();
    wave.vgpr_count = 32;
    wave.agpr = registers.data() + 32;
    wave.agpr_count = 32;
    wave.workgroup = &workgroup;
    wave.write64(kExec, kAll);
  }

  void run(const Instruction& instruction) {
    const Handler handler = table[instruction.op];
    if (handler == nullptr) throw EmulationError("no handler");
    handler(instruction, wave);
  }

  uint32_t* v(int index) { return registers[index].lane; }

  uint32_t lds_dword(size_t address) const {
    uint32_t value;
    std::memcpy(&value, workgroup.lds.data() + address, sizeof(value));
    return value;
  }

  void set_address(int index, uint64_t base, uint64_t stride) {
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      v(index)[lane] = static_cast<uint32_t>(base + lane * stride);
      v(index + 1)[lane] = static_cast<uint32_t>((base + lane * stride) >> 32);
    }
  }

  // s[8:11]: a raw buffer.
  void set_buffer(const void* data, uint32_t num_records) {
    wave.write64(8, reinterpret_cast<uintptr_t>(data));
    wave.sgpr[10] = num_records;
    wave.sgpr[11] = 0x20000;
  }
};

Instruction ds(Op op, Operand dst, Operand data0 = {}, Operand data1 = {}, int32_t offset = 0) {
  Instruction i;
  i.op = op;
  i.format = Format::ds;
  i.dst = dst;
  i.src[0] = vector_operand(0);
  i.src[1] = data0;
  i.src[2] = data1;
  i.offset = offset;
  return i;
}

// vaddr v[0:1].
Instruction global(Op op, Operand dst, Operand data = {}, int32_t offset = 0) {
  Instruction i;
  i.op = op;
  i.format = Format::flat;
  i.dst = dst;
  i.src[0] = vector_operand(0, 2);
  i.src[1] = data;
  i.offset = offset;
  return i;
}

// voffset v0, descriptor s[8:11].
Instruction buffer(Op op, Operand dst, Operand data = {}, int32_t offset = 0,
                   uint64_t soffset = 0) {
  Instruction i;
  i.op = op;
  i.format = Format::mubuf;
  i.dst = dst;
  i.src[0] = vector_operand(0);
  i.src[1] = data;
  i.src[2] = scalar_operand(8, 4);
  i.soffset = {OperandKind::constant, 1, 0, soffset};
  i.offen = true;
  i.offset = offset;
  return i;
}

MemoryRange range_of(const std::vector<uint8_t>& bytes, const char* name, bool writable = true) {
  return {reinterpret_cast<uintptr_t>(bytes.data()), bytes.size(), writable, name};
}

std::vector<uint8_t> counting_bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256 * 13);
  return bytes;
}

template <typename T>
T read_as(const std::vector<uint8_t>& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

void memory_map() {
  std::vector<MemoryRange> ranges = {{0x1000, 0x100, true, "a"},
                                     {0x1100, 0x100, false, "b"},
                                     {0x1080, 0x40, true, "view"},
                                     {0x3000, 0x10, true, "c"},
                                     {0x5000, 0, true, "empty"}};
  const MemoryMap map(ranges);
  expect(map.readable(0x10f8, 16), "an access may straddle touching ranges");
  expect(!map.writable(0x10f8, 16), "a write may not straddle into a read-only range");
  expect(map.writable(0x10f0, 16), "a view inside a range does not cut it short");
  expect(!map.readable(0x11f8, 16) && !map.readable(0xfff, 1) && !map.readable(0x2000, 1),
         "outside of the ranges");
  expect(!map.readable(0x5000, 1), "an empty range allows nothing");
  expect(!map.readable(~uintptr_t{0} - 4, 16), "an access that wraps around");
  expect(map.describe(0x300c + 12).find("8 bytes past the end of c") != std::string::npos,
         "describe names the nearest buffer: " + map.describe(0x300c + 12));
  expect(map.describe(0x1104).find("byte 4 of the 256 of b, read-only") != std::string::npos,
         "describe names the range inside: " + map.describe(0x1104));
}

void lds_reads_and_writes(SimdLevel level) {
  const std::vector<uint8_t> pattern = counting_bytes(8192);
  for (const uint64_t exec : {kAll, uint64_t{0x8000'0000'f0f0'0001}}) {
    for (const uint32_t dwords : {1u, 2u, 3u, 4u}) {
      constexpr Op kReads[] = {Op::ds_read_b32, Op::ds_read_b64, Op::ds_read_b96, Op::ds_read_b128};
      constexpr Op kWrites[] = {Op::ds_write_b32, Op::ds_write_b64, Op::ds_write_b96,
                                Op::ds_write_b128};
      Machine m(level, 8192);
      m.workgroup.lds = pattern;
      m.wave.write64(kExec, exec);
      const auto address = [](int lane) {
        return static_cast<uint32_t>((lane * 37 % 64) * 68 + 2);
      };
      for (int lane = 0; lane < kLanes; ++lane) m.v(0)[lane] = address(lane);
      // The destination overlaps the address register.
      m.run(ds(kReads[dwords - 1], vector_operand(0, dwords), {}, {}, 96));
      bool right = true;
      for (int lane = 0; lane < kLanes; ++lane) {
        for (uint32_t i = 0; i < dwords; ++i) {
          const uint32_t inactive = i == 0 ? address(lane) : kUnwritten;
          right &= m.v(i)[lane] == (exec >> lane & 1
                                        ? read_as<uint32_t>(pattern, address(lane) + 96 + 4 * i)
                                        : inactive);
        }
      }
      expect(right, "ds_read of " + std::to_string(dwords) + " dwords");

      Machine w(level, 8192);
      w.wave.write64(kExec, exec);
      std::vector<uint8_t> wanted(8192);
      for (int lane = 0; lane < kLanes; ++lane) {
        w.v(0)[lane] = address(lane);
        for (uint32_t i = 0; i < dwords; ++i) {
          w.v(4 + i)[lane] = 0x01000193u * (lane * 4 + i + 1);
          if (exec >> lane & 1) std::memcpy(&wanted[address(lane) + 4 * i], w.v(4 + i) + lane, 4);
        }
      }
      w.run(ds(kWrites[dwords - 1], {}, vector_operand(4, dwords)));
      expect(w.workgroup.lds == wanted, "ds_write of " + std::to_string(dwords) + " dwords");
    }
  }

  Machine m(level, 8192);
  m.workgroup.lds = pattern;
  for (int lane = 0; lane < kLanes; ++lane) m.v(0)[lane] = lane * 8;
  m.run(ds(Op::ds_read2st64_b32, vector_operand(4, 2), {}, {}, 1 | 2 << 8));
  m.run(ds(Op::ds_read2_b64, vector_operand(8, 4), {}, {}, 3 | 5 << 8));
  m.run(ds(Op::ds_read_i8, vector_operand(12), {}, {}, 1));
  m.run(ds(Op::ds_read_u16, vector_operand(13), {}, {}, 1));
  m.run(ds(Op::ds_read_u16_d16_hi, vector_operand(14), {}, {}, 2));
  m.run(ds(Op::ds_read_i8_d16, vector_operand(15), {}, {}, 3));
  bool strided = true, parts = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    const size_t at = lane * 8;
    strided &= m.v(4)[lane] == read_as<uint32_t>(pattern, at + 256) &&
               m.v(5)[lane] == read_as<uint32_t>(pattern, at + 512) &&
               m.v(9)[lane] == read_as<uint32_t>(pattern, at + 28) &&
               m.v(10)[lane] == read_as<uint32_t>(pattern, at + 40);
    parts &=
        static_cast<int32_t>(m.v(12)[lane]) == read_as<int8_t>(pattern, at + 1) &&
        m.v(13)[lane] == read_as<uint16_t>(pattern, at + 1) &&
        m.v(14)[lane] == (read_as<uint16_t>(pattern, at + 2) << 16 | 0x5555u) &&
        m.v(15)[lane] == (0x55550000u | static_cast<uint16_t>(read_as<int8_t>(pattern, at + 3)));
  }
  expect(strided, "ds_read2 and ds_read2st64 scale their offsets");
  expect(parts, "bytes, 16-bit values and d16 halves of LDS");

  m.v(0)[41] = 8192 - 12;
  expect_throw<EmulationError>([&] { m.run(ds(Op::ds_read_b128, vector_operand(4, 4))); },
                               "16 bytes by lane 41 at 0x1ff4", "a read past LDS");
  expect_throw<EmulationError>([&] { m.run(ds(Op::ds_write_b128, {}, vector_operand(4, 4))); },
                               "LDS write", "a write past LDS");
  m.wave.write64(kExec, kAll & ~(uint64_t{1} << 41));
  m.run(ds(Op::ds_read_b128, vector_operand(4, 4)));  // the lane is inactive: legal
}

void transposed_read(SimdLevel level) {
  Machine m(level, 4096);
  m.workgroup.lds = counting_bytes(4096);
  const auto address = [](int lane) { return static_cast<uint32_t>((lane * 29 % 64) * 40); };
  for (int lane = 0; lane < kLanes; ++lane) m.v(0)[lane] = address(lane);
  m.run(ds(Op::ds_read_b64_tr_b16, vector_operand(4, 2), {}, {}, 16));
  bool right = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int element = 0; element < 4; ++element) {
      const int q = lane % 16, source = lane / 16 * 16 + 4 * element + q / 4;
      const uint16_t wanted =
          read_as<uint16_t>(m.workgroup.lds, address(source) + 16 + 2 * (q % 4));
      right &= static_cast<uint16_t>(m.v(4 + element / 2)[lane] >> element % 2 * 16) == wanted;
    }
  }
  expect(right, "layout of ds_read_b64_tr_b16");
  m.wave.write64(kExec, kAll >> 1);
  expect_throw<EmulationError>([&] { m.run(ds(Op::ds_read_b64_tr_b16, vector_operand(4, 2))); },
                               "inactive lanes", "a transposed read needs all lanes");
}

void lds_cross_lane_and_atomics(SimdLevel level) {
  Machine m(level, 256);
  for (int lane = 0; lane < kLanes; ++lane) {
    m.v(0)[lane] = 4 * ((lane + 5) % 64) + 256;  // wraps
    m.v(4)[lane] = 1000 + lane;
  }
  m.wave.write64(kExec, kAll & ~(uint64_t{1} << 7));
  m.run(ds(Op::ds_bpermute_b32, vector_operand(5), vector_operand(4)));
  m.run(ds(Op::ds_permute_b32, vector_operand(6), vector_operand(4)));
  expect(m.v(5)[3] == 1008 && m.v(5)[63] == 1004 && m.v(5)[2] == 0 && m.v(5)[7] == kUnwritten,
         "ds_bpermute_b32");
  expect(m.v(6)[8] == 1003 && m.v(6)[12] == 0 && m.v(6)[7] == kUnwritten, "ds_permute_b32");
  m.wave.write64(kExec, kAll);
  Instruction swap = ds(Op::ds_swizzle_b32, vector_operand(5), {}, {}, 0x1f | 16 << 10);
  swap.src[0] = vector_operand(4);
  m.run(swap);
  expect(m.v(5)[0] == 1016 && m.v(5)[40] == 1056, "ds_swizzle_b32 with bit masks");
  swap.offset = 0x8000 | (3 | 2 << 2 | 1 << 4 | 0 << 6);
  m.run(swap);
  expect(m.v(5)[0] == 1003 && m.v(5)[63] == 1060, "ds_swizzle_b32 of quads");
  swap.offset = 0xe000;
  expect_throw<EmulationError>([&] { m.run(swap); }, "pattern", "the FFT swizzle");

  // All lanes on one address, in lane order.
  std::fill_n(m.v(0), kLanes, 8);
  std::fill_n(m.v(4), kLanes, 9);
  m.run(ds(Op::ds_inc_rtn_u32, vector_operand(5), vector_operand(4)));
  expect(m.v(5)[9] == 9 && m.v(5)[10] == 0 && m.lds_dword(8) == 4, "ds_inc_rtn_u32 wraps");
  std::fill_n(m.v(4), kLanes, std::bit_cast<uint32_t>(0.25f));
  m.workgroup.lds.assign(256, 0);
  m.run(ds(Op::ds_add_f32, {}, vector_operand(4)));
  expect(m.lds_dword(8) == std::bit_cast<uint32_t>(16.0f), "ds_add_f32");
  std::fill_n(m.v(4), kLanes, std::bit_cast<uint32_t>(16.0f));
  std::fill_n(m.v(6), kLanes, 77);
  m.run(ds(Op::ds_cmpst_rtn_b32, vector_operand(5), vector_operand(4), vector_operand(6)));
  expect(m.lds_dword(8) == 77 && m.v(5)[1] == 77, "ds_cmpst_rtn_b32");
  std::fill_n(m.v(4), kLanes, 0x3c003c01u);  // 1.0 and the half after it
  m.workgroup.lds.assign(256, 0);
  m.run(ds(Op::ds_pk_add_f16, {}, vector_operand(4)));
  expect(m.lds_dword(8) >> 16 == 0x5400, "ds_pk_add_f16 sums 64 ones");
  std::fill_n(m.v(0), kLanes, 6);
  expect_throw<EmulationError>([&] { m.run(ds(Op::ds_add_f32, {}, vector_operand(4))); }, "aligned",
                               "a misaligned LDS atomic");
}

void global_access(SimdLevel level) {
  std::vector<uint8_t> input = counting_bytes(4096), output(4096), constant(64);
  const std::vector<MemoryRange> ranges = {range_of(input, "input", false),
                                           range_of(output, "output"),
                                           range_of(constant, "constant", false)};
  for (const uint64_t exec : {kAll, uint64_t{0x0000'0001'8000'ff01}}) {
    for (const uint32_t dwords : {1u, 2u, 3u, 4u}) {
      constexpr Op kLoads[] = {Op::global_load_dword, Op::global_load_dwordx2,
                               Op::global_load_dwordx3, Op::global_load_dwordx4};
      constexpr Op kStores[] = {Op::global_store_dword, Op::global_store_dwordx2,
                                Op::global_store_dwordx3, Op::global_store_dwordx4};
      Machine m(level, 0, ranges);
      m.wave.write64(kExec, exec);
      // Unaligned, and saddr with an unsigned 32-bit offset.
      m.set_address(0, reinterpret_cast<uintptr_t>(input.data()) + 21, 41);
      m.run(global(kLoads[dwords - 1], vector_operand(4, dwords), {}, -20));
      for (int lane = 0; lane < kLanes; ++lane) m.v(2)[lane] = lane * 44 + 1;
      Instruction out = global(kStores[dwords - 1], {}, vector_operand(4, dwords), 8);
      out.src[0] = vector_operand(2);
      out.src[2] = scalar_operand(20, 2);
      m.wave.write64(20, reinterpret_cast<uintptr_t>(output.data()));
      std::fill(output.begin(), output.end(), 0xee);
      m.run(out);
      std::vector<uint8_t> wanted(4096, 0xee);
      for (int lane = 0; lane < kLanes; ++lane) {
        if (exec >> lane & 1)
          std::memcpy(&wanted[lane * 44 + 9], &input[lane * 41 + 1], 4 * dwords);
      }
      expect(output == wanted, "global load and store of " + std::to_string(dwords) + " dwords");
      expect(m.wave.vmem.size() == 2, "a load and a store count in vmcnt");
    }
  }

  Machine m(level, 0, ranges);
  m.set_address(0, reinterpret_cast<uintptr_t>(input.data()), 3);
  m.run(global(Op::global_load_sbyte, vector_operand(4)));
  m.run(global(Op::global_load_ushort, vector_operand(5)));
  m.run(global(Op::global_load_short_d16_hi, vector_operand(6)));
  m.run(global(Op::global_load_ubyte_d16, vector_operand(7)));
  bool parts = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    parts &= static_cast<int32_t>(m.v(4)[lane]) == read_as<int8_t>(input, 3 * lane) &&
             m.v(5)[lane] == read_as<uint16_t>(input, 3 * lane) &&
             m.v(6)[lane] == (read_as<uint16_t>(input, 3 * lane) << 16 | 0x5555u) &&
             m.v(7)[lane] == (0x55550000u | input[3 * lane]);
  }
  expect(parts, "global loads of bytes and 16-bit values");

  m.set_address(0, reinterpret_cast<uintptr_t>(output.data()), 2);
  m.run(global(Op::global_store_short_d16_hi, {}, vector_operand(6)));
  expect(read_as<uint16_t>(output, 126) == read_as<uint16_t>(input, 189),
         "global_store_short_d16_hi");

  m.set_address(0, reinterpret_cast<uintptr_t>(output.data()), 64);
  m.v(0)[17] = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(output.data()) + 4096 - 4);
  expect_throw<EmulationError>(
      [&] { m.run(global(Op::global_load_dwordx2, vector_operand(4, 2))); }, "8 bytes by lane 17",
      "a load past the end of a buffer");
  m.set_address(0, reinterpret_cast<uintptr_t>(input.data()), 4);
  expect_throw<EmulationError>(
      [&] { m.run(global(Op::global_store_dword, {}, vector_operand(4))); }, "input, read-only",
      "a store to a read-only buffer");
}

void buffer_access(SimdLevel level) {
  std::vector<uint8_t> data = counting_bytes(4096);
  Machine m(level, 0, {range_of(data, "data")});
  // Lane l at 16 l; the buffer ends inside lane 32's second dword.
  m.set_buffer(data.data(), 16 * 32 + 4 + 2);
  for (int lane = 0; lane < kLanes; ++lane) m.v(0)[lane] = 16 * lane;
  m.v(0)[3] = 0xfffffff0u;  // with the offset this would wrap to 0 in 32 bits
  m.run(buffer(Op::buffer_load_dwordx4, vector_operand(4, 4), {}, 16, 0));
  bool right = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t at = 16 * lane + 16 + 4 * i;
      const bool inside = at + 4 <= 16 * 32 + 6 && lane != 3;
      right &= m.v(4 + i)[lane] == (inside ? read_as<uint32_t>(data, at) : 0);
    }
  }
  expect(right, "a buffer load checks its range for each dword");

  const std::vector<uint8_t> before = data;
  std::vector<uint8_t> wanted = data;
  for (int i = 0; i < 2; ++i) std::fill_n(m.v(12 + i), kLanes, 0xabcd0000u + i);
  m.run(buffer(Op::buffer_store_dwordx2, {}, vector_operand(12, 2), 0, 8));
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 2; ++i) {
      const uint32_t at = 16 * lane + 8 + 4 * i;
      if (at + 4 <= 16 * 32 + 6 && lane != 3) std::memcpy(&wanted[at], &m.v(12 + i)[lane], 4);
    }
  }
  expect(data == wanted, "a buffer store beyond the range is dropped; soffset counts");

  std::fill_n(m.v(4), kLanes, 1);
  data = before;
  m.run(buffer(Op::buffer_atomic_add, vector_operand(5), vector_operand(4)));
  expect(m.v(5)[32] == read_as<uint32_t>(before, 512) && m.v(5)[33] == 0 && m.v(5)[3] == 0 &&
             read_as<uint32_t>(data, 512) == read_as<uint32_t>(before, 512) + 1 &&
             read_as<uint32_t>(data, 528) == read_as<uint32_t>(before, 528),
         "a buffer atomic beyond the range is dropped and returns 0");

  Instruction fixed = buffer(Op::buffer_load_ushort, vector_operand(6), {}, 4);
  fixed.offen = false;
  fixed.src[0] = {};
  m.run(fixed);
  expect(m.v(6)[50] == read_as<uint16_t>(data, 4), "a buffer load without voffset");

  // In the descriptor's range but outside of what the launch may touch.
  m.set_buffer(data.data(), 0x7ffffffe);
  m.v(0)[9] = 4096;
  m.v(0)[3] = 0;
  expect_throw<EmulationError>([&] { m.run(buffer(Op::buffer_load_dword, vector_operand(4))); },
                               "num_records 2147483646", "a buffer load that faults");
  m.wave.sgpr[9] |= 1u << 31;
  expect_throw<EmulationError>([&] { m.run(buffer(Op::buffer_load_dword, vector_operand(4))); },
                               "swizzled", "a swizzled buffer");
  m.set_buffer(data.data(), 64);
  Instruction indexed = buffer(Op::buffer_load_dword, vector_operand(4));
  indexed.idxen = true;
  expect_throw<EmulationError>([&] { m.run(indexed); }, "idxen", "a buffer index without a stride");
}

void global_atomics(SimdLevel level) {
  std::vector<uint8_t> data(256);
  const std::vector<MemoryRange> ranges = {range_of(data, "data")};
  // Two threads add to the same addresses: no update may be lost.
  constexpr int kRounds = 500, kThreads = 2;
  std::atomic<int> rounds{0};
  run_on_threads(kThreads, [&] {
    Machine m(level, 0, ranges);
    for (int lane = 0; lane < kLanes; ++lane) m.v(8)[lane] = 8 + lane % 4 * 4;
    std::fill_n(m.v(4), kLanes, std::bit_cast<uint32_t>(1.0f));
    std::fill_n(m.v(5), kLanes, 0x3f803f80u);  // 1.0, 1.0 in bf16
    m.wave.write64(20, reinterpret_cast<uintptr_t>(data.data()));
    Instruction add = global(Op::global_atomic_add_f32, {}, vector_operand(4));
    add.src[0] = vector_operand(8);
    add.src[2] = scalar_operand(20, 2);
    Instruction packed = add;
    packed.op = Op::global_atomic_pk_add_bf16;
    packed.src[1] = vector_operand(5);
    packed.offset = 64;
    for (int round; (round = rounds.fetch_add(1)) < kRounds;) {
      m.run(add);
      if (round < 4) m.run(packed);
    }
  });
  bool exact = true;
  for (int i = 0; i < 4; ++i) exact &= read_as<float>(data, 8 + 4 * i) == 16.0f * kRounds;
  expect(exact, "fp32 atomics of two threads");
  const uint32_t sum = read_as<uint32_t>(data, 72);
  expect(sum == 0x42804280u, "packed bf16 atomics sum 64 ones in both halves");

  Machine m(level, 0, ranges);
  std::fill(data.begin(), data.end(), 0);
  m.set_address(0, reinterpret_cast<uintptr_t>(data.data()), 0);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {  // each lane expects what the last one wrote
    m.v(4)[lane] = lane + 1;
    m.v(5)[lane] = lane;
  }
  m.run(global(Op::global_atomic_cmpswap, vector_operand(6), vector_operand(4, 2)));
  expect(read_as<uint32_t>(data, 0) == 64 && m.v(6)[63] == 63, "global_atomic_cmpswap");
  m.run(global(Op::global_atomic_umax_x2, vector_operand(6, 2), vector_operand(4, 2)));
  expect(read_as<uint64_t>(data, 0) == (uint64_t{63} << 32 | 64), "global_atomic_umax_x2");
  m.set_address(0, reinterpret_cast<uintptr_t>(data.data()) + 4, 0);
  expect_throw<EmulationError>(
      [&] { m.run(global(Op::global_atomic_add_f64, {}, vector_operand(4, 2))); }, "aligned",
      "a misaligned atomic");
}

void scratch_access(SimdLevel level) {
  Machine m(level, 0);
  m.scratch.resize(64 * 32);
  m.wave.scratch = m.scratch.data();
  m.wave.scratch_bytes = 32;
  Instruction store;
  store.op = Op::scratch_store_dwordx2;
  store.format = Format::flat;
  store.src[1] = vector_operand(4, 2);
  store.src[2] = scalar_operand(20, 1);
  store.offset = 4;
  m.wave.sgpr[20] = 8;
  for (uint32_t lane = 0; lane < kLanes; ++lane) m.v(4)[lane] = lane;
  m.run(store);
  Instruction load = store;
  load.op = Op::scratch_load_dword;
  load.src[0] = vector_operand(2);
  load.src[1] = load.src[2] = {};
  load.dst = vector_operand(8);
  std::fill_n(m.v(2), kLanes, 8);
  m.run(load);
  expect(m.v(8)[0] == 0 && m.v(8)[63] == 63, "each lane reads its own scratch back");
  m.v(2)[5] = 28;
  expect_throw<EmulationError>([&] { m.run(load); }, "32 bytes of scratch",
                               "an access past scratch");
}

void lds_dma(SimdLevel level) {
  std::vector<uint8_t> data = counting_bytes(8192);
  Machine m(level, 8192, {range_of(data, "data")});
  Instruction dma = global(Op::global_load_lds_dwordx4, {}, {}, 32);
  dma.lds = true;
  m.set_address(0, reinterpret_cast<uintptr_t>(data.data()), 16);
  m.wave.sgpr[kM0] = 1024;
  m.run(dma);
  expect(m.lds_dword(1024 + 28) == 0 && m.lds_dword(1024 + 32) == kPoison &&
             m.lds_dword(1024 + 32 + 1020) == kPoison && m.lds_dword(1024 + 32 + 1024) == 0,
         "the destination of LDS-DMA is poison until the wait");
  m.run(global(Op::global_load_dword, vector_operand(4)));
  m.wave.sgpr[kM0] = 4096;
  dma.op = Op::global_load_lds_dword;
  m.run(dma);
  m.wave.wait_vmem(2);
  expect(std::memcmp(&m.workgroup.lds[1056], &data[32], 1024) == 0, "the oldest lands first");
  m.wave.wait_vmem(1);
  expect(m.lds_dword(4128) == kPoison, "a partial wait leaves the younger one outstanding");
  m.wave.wait_vmem(0);
  expect(m.lds_dword(4128 + 4 * 63) == read_as<uint32_t>(data, 16 * 63 + 32),
         "a dword a lane, four bytes apart");

  // Two operations on the same bytes: the first one's data is not yet what will be there.
  m.wave.sgpr[kM0] = 0;
  m.run(dma);
  m.run(dma);
  m.wave.wait_vmem(1);
  expect(m.lds_dword(32) == kPoison, "bytes that a younger LDS-DMA targets stay poison");
  m.wave.wait_vmem(0);
  expect(m.lds_dword(32) == read_as<uint32_t>(data, 32), "and land at its wait");

  // vmcnt holds 63: the 64th operation after the first forces its delivery.
  m.workgroup.lds.assign(8192, 0);
  m.run(dma);
  for (int i = 0; i < 62; ++i) m.run(global(Op::global_load_dword, vector_operand(4)));
  expect(m.lds_dword(32) == kPoison, "63 operations may be outstanding");
  m.run(global(Op::global_load_dword, vector_operand(4)));
  expect(m.lds_dword(32) == read_as<uint32_t>(data, 32) && m.wave.vmem.size() == 63,
         "the 64th operation waits for the oldest");

  // Inactive lanes leave their place alone; a buffer's out-of-range lanes deliver zeros.
  m.wave.wait_vmem(0);
  m.workgroup.lds.assign(8192, 0x77);
  m.set_buffer(data.data(), 16 * 40 + 8);
  for (int lane = 0; lane < kLanes; ++lane) m.v(0)[lane] = 16 * lane;
  m.wave.write64(kExec, kAll & ~uint64_t{0b110});
  Instruction from_buffer = buffer(Op::buffer_load_dwordx4, {});
  from_buffer.lds = true;
  m.wave.sgpr[kM0] = 64;
  m.run(from_buffer);
  m.wave.wait_vmem(0);
  expect(m.lds_dword(64 + 16) == 0x77777777u && m.lds_dword(64 + 44) == 0x77777777u &&
             m.lds_dword(64 + 48) == read_as<uint32_t>(data, 48) &&
             m.lds_dword(64 + 16 * 40 + 4) == read_as<uint32_t>(data, 16 * 40 + 4) &&
             m.lds_dword(64 + 16 * 40 + 8) == 0 && m.lds_dword(64 + 16 * 63) == 0,
         "LDS-DMA of some lanes, and beyond a buffer's range");

  m.wave.write64(kExec, kAll);
  m.wave.sgpr[kM0] = 8192 - 16 * 20;
  expect_throw<EmulationError>([&] { m.run(from_buffer); }, "DMA write of 16 bytes by lane 20",
                               "LDS-DMA past the end of LDS");
  m.wave.sgpr[kM0] = 2;
  expect_throw<EmulationError>([&] { m.run(from_buffer); }, "multiple of 4", "a misaligned M0");
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  using mha_sink::emulator::SimdLevel;
  memory_map();
  for (const SimdLevel level : {SimdLevel::baseline, SimdLevel::v3, SimdLevel::v4}) {
    if (!mha_sink::emulator::supported(level)) continue;
    lds_reads_and_writes(level);
    transposed_read(level);
    lds_cross_lane_and_atomics(level);
    global_access(level);
    buffer_access(level);
    global_atomics(level);
    scratch_access(level);
    lds_dma(level);
  }
  return summary();
}
