// Addresses of the DS family, and its parts beside fill_lds.
#pragma once

#include <cstdint>

#include "emulator/simd/access.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {

void fill_lds_atomic(HandlerTable& table);
void fill_lds_cross_lane(HandlerTable& table);

// Byte addresses in LDS of all lanes: vaddr + offset, in 32 bits.
class LdsAddresses {
 public:
  LdsAddresses(const Instruction& instruction, const Wave& wave, uint32_t offset)
      : data_(wave.workgroup->lds.data()), bytes_(wave.workgroup->lds.size()) {
    const uint32_t* vaddr = vector_register(instruction, wave, instruction.src[0]);
    uint32_t highest = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      address_[lane] = vaddr[lane] + offset;
      highest = address_[lane] > highest ? address_[lane] : highest;
    }
    highest_ = highest;
  }

  bool all_inside(uint32_t bytes) const { return uint64_t{highest_} + bytes <= bytes_; }

  uint8_t* operator()(int lane) const { return data_ + address_[lane]; }

  // Throws unless the lane's access lies in LDS.
  uint8_t* checked(const Wave& wave, int lane, uint32_t bytes, const char* access) const {
    if (uint64_t{address_[lane]} + bytes > bytes_) {
      throw_lds_fault(wave, lane, address_[lane], bytes, access);
    }
    return data_ + address_[lane];
  }

 private:
  alignas(64) uint32_t address_[kLanes];
  uint32_t highest_;
  uint8_t* data_;
  size_t bytes_;
};

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
