// DS reads and writes. Outside LDS, where hardware reads 0 and drops writes without a word, both
// are errors here: in a kernel they are mistakes.
#include "emulator/simd/lds.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

template <typename Access>
void read_at(const Wave& wave, const LdsAddresses& addresses, VectorRegister* to) {
  const uint64_t active = wave.exec();
  if (active == kAllLanes && addresses.all_inside(Access::kBytes)) {
    Access::load_all(to, addresses);
    return;
  }
  for_each_lane(active, [&](int lane) {
    Access::load_lane(to, lane, addresses.checked(wave, lane, Access::kBytes, "read"));
  });
}

template <typename Access>
void write_at(const Wave& wave, const LdsAddresses& addresses, const VectorRegister* from) {
  const uint64_t active = wave.exec();
  if (active == kAllLanes && addresses.all_inside(Access::kBytes)) {
    Access::store_all(from, addresses);
    return;
  }
  for_each_lane(active, [&](int lane) {
    Access::store_lane(from, lane, addresses.checked(wave, lane, Access::kBytes, "write"));
  });
}

template <typename Access>
void read(const Instruction& instruction, Wave& wave) {
  const LdsAddresses addresses(instruction, wave, instruction.offset);
  read_at<Access>(wave, addresses,
                  registers(instruction, wave, instruction.dst, Access::kRegisters));
}

template <typename Access>
void write(const Instruction& instruction, Wave& wave) {
  const LdsAddresses addresses(instruction, wave, instruction.offset);
  write_at<Access>(wave, addresses,
                   registers(instruction, wave, instruction.src[1], Access::kRegisters));
}

// read2 and write2: two accesses at vaddr + offset0 * kStride and vaddr + offset1 * kStride.
template <typename Access, uint32_t kStride>
void read2(const Instruction& instruction, Wave& wave) {
  VectorRegister* to = registers(instruction, wave, instruction.dst, 2 * Access::kRegisters);
  // Both addresses before either result: the destination may hold vaddr.
  const LdsAddresses first(instruction, wave, (instruction.offset & 0xff) * kStride);
  const LdsAddresses second(instruction, wave, (instruction.offset >> 8 & 0xff) * kStride);
  read_at<Access>(wave, first, to);
  read_at<Access>(wave, second, to + Access::kRegisters);
}

template <typename Access, uint32_t kStride>
void write2(const Instruction& instruction, Wave& wave) {
  const LdsAddresses first(instruction, wave, (instruction.offset & 0xff) * kStride);
  const LdsAddresses second(instruction, wave, (instruction.offset >> 8 & 0xff) * kStride);
  write_at<Access>(wave, first,
                   registers(instruction, wave, instruction.src[1], Access::kRegisters));
  write_at<Access>(wave, second,
                   registers(instruction, wave, instruction.src[2], Access::kRegisters));
}

LdsAddresses transposed_addresses(const Instruction& instruction, const Wave& wave) {
  if (wave.exec() != kAllLanes) {
    unsupported(instruction, "a transposed read with inactive lanes, whose result is undefined");
  }
  const LdsAddresses addresses(instruction, wave, instruction.offset);
  if (!addresses.all_inside(8)) {
    for (int lane = 0; lane < kLanes; ++lane) addresses.checked(wave, lane, 8, "read");
  }
  return addresses;
}

using U16x8 = uint16_t __attribute__((vector_size(16)));

// In each group of 16 lanes, lane q receives as element j what lane 4 * j + q / 4 addresses as
// element q % 4: with the 64 elements numbered in lane order, element j of lane q is 16 * j + q.
// A register holds elements 2r and 2r + 1, so it interleaves two runs of 16 elements.
void read_b64_tr_b16(const Instruction& instruction, Wave& wave) {
  const LdsAddresses addresses = transposed_addresses(instruction, wave);
  VectorRegister* to = registers(instruction, wave, instruction.dst, 2);
  for (int group = 0; group < kLanes; group += 16) {
    U16x8 pair[8];  // what two lanes address
    for (int i = 0; i < 8; ++i) {
      const U64x2 both = {load_as<uint64_t>(addresses(group + 2 * i)),
                          load_as<uint64_t>(addresses(group + 2 * i + 1))};
      pair[i] = (U16x8)both;
    }
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < 2; ++i) {
        const U16x8 even = pair[4 * r + i], odd = pair[4 * r + i + 2];
        const U16x8 low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
        const U16x8 high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
        std::memcpy(to[r].lane + group + 8 * i, &low, sizeof(low));
        std::memcpy(to[r].lane + group + 8 * i + 4, &high, sizeof(high));
      }
    }
  }
}

// As for 16 bits: with the 128 bytes of each group of 16 lanes numbered in lane order, byte j of
// what lane q receives is byte 16 * j + q.
void read_b64_tr_b8(const Instruction& instruction, Wave& wave) {
  const LdsAddresses addresses = transposed_addresses(instruction, wave);
  VectorRegister* to = registers(instruction, wave, instruction.dst, 2);
  for (int group = 0; group < kLanes; group += 16) {
    uint8_t bytes[8][16];
    for (int i = 0; i < 16; ++i) std::memcpy(bytes[i / 2] + 8 * (i % 2), addresses(group + i), 8);
    for (int lane = 0; lane < 16; ++lane) {
      for (int r = 0; r < 2; ++r) {
        uint32_t word = 0;
        for (int j = 0; j < 4; ++j) word |= uint32_t{bytes[4 * r + j][lane]} << (8 * j);
        to[r].lane[group + lane] = word;
      }
    }
  }
}

}  // namespace

void fill_lds(HandlerTable& table) {
  table[Op::ds_read_b32] = read<Dwords<1>>;
  table[Op::ds_read_b64] = read<Dwords<2>>;
  table[Op::ds_read_b96] = read<Dwords<3>>;
  table[Op::ds_read_b128] = read<Dwords<4>>;
  table[Op::ds_read_i8] = read<Part<int8_t>>;
  table[Op::ds_read_u8] = read<Part<uint8_t>>;
  table[Op::ds_read_i16] = read<Part<int16_t>>;
  table[Op::ds_read_u16] = read<Part<uint16_t>>;
  table[Op::ds_read_u8_d16] = read<Part<uint8_t, Half::low>>;
  table[Op::ds_read_u8_d16_hi] = read<Part<uint8_t, Half::high>>;
  table[Op::ds_read_i8_d16] = read<Part<int8_t, Half::low>>;
  table[Op::ds_read_i8_d16_hi] = read<Part<int8_t, Half::high>>;
  table[Op::ds_read_u16_d16] = read<Part<uint16_t, Half::low>>;
  table[Op::ds_read_u16_d16_hi] = read<Part<uint16_t, Half::high>>;
  table[Op::ds_read2_b32] = read2<Dwords<1>, 4>;
  table[Op::ds_read2st64_b32] = read2<Dwords<1>, 64 * 4>;
  table[Op::ds_read2_b64] = read2<Dwords<2>, 8>;
  table[Op::ds_read2st64_b64] = read2<Dwords<2>, 64 * 8>;
  table[Op::ds_read_b64_tr_b16] = read_b64_tr_b16;
  table[Op::ds_read_b64_tr_b8] = read_b64_tr_b8;

  table[Op::ds_write_b8] = write<Part<uint8_t>>;
  table[Op::ds_write_b16] = write<Part<uint16_t>>;
  table[Op::ds_write_b8_d16_hi] = write<Part<uint8_t, Half::high>>;
  table[Op::ds_write_b16_d16_hi] = write<Part<uint16_t, Half::high>>;
  table[Op::ds_write_b32] = write<Dwords<1>>;
  table[Op::ds_write_b64] = write<Dwords<2>>;
  table[Op::ds_write_b96] = write<Dwords<3>>;
  table[Op::ds_write_b128] = write<Dwords<4>>;
  table[Op::ds_write2_b32] = write2<Dwords<1>, 4>;
  table[Op::ds_write2st64_b32] = write2<Dwords<1>, 64 * 4>;
  table[Op::ds_write2_b64] = write2<Dwords<2>, 8>;
  table[Op::ds_write2st64_b64] = write2<Dwords<2>, 64 * 8>;

  fill_lds_atomic(table);
  fill_lds_cross_lane(table);
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
