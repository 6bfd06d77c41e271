// What the checks of sanitizer.h share: the program as they see it, and LDS-DMA in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/footprint.h"
#include "emulator/launch.h"
#include "emulator/memory_access.h"
#include "emulator/observer.h"
#include "emulator/sanitizer.h"

namespace mha_sink::emulator {

// One instruction, as every check needs it.
struct Sanitized {
  explicit Sanitized(const Instruction& instruction);

  Footprint footprint;
  AccessShape shape;
  InstructionClass kind;
  bool vector_memory;  // counts in vmcnt
  bool vector_alu;     // executes on the VALU or the matrix unit
};

struct SanitizedProgram {
  explicit SanitizedProgram(const Kernel& kernel);

  std::string describe(uint32_t pc) const;

  const Kernel& kernel;
  std::vector<Sanitized> instructions;
};
using Program = std::shared_ptr<const SanitizedProgram>;

// The fields of s_waitcnt on gfx9: vmcnt in bits 3:0 and 15:14, lgkmcnt in 11:8.
unsigned vmcnt_field(const Instruction& waitcnt);
unsigned lgkmcnt_field(const Instruction& waitcnt);

// Vector memory of one wave, which completes in the order of issue, and the LDS bytes that its
// LDS-DMA still writes.
class VectorMemoryQueue {
 public:
  struct Dma {
    uint64_t sequence;
    uint32_t pc, begin, end;  // bytes of LDS
  };

  void clear();
  // Returns the operation's number, from 1 on.
  uint64_t issue(uint32_t pc, const Instruction& instruction, const AccessShape& shape,
                 const Wave& wave);
  // Calls landed(dma) for what completes.
  template <typename Function>
  void wait(unsigned outstanding, Function landed) {
    if (issued_ < outstanding) return;
    done_ = std::max(done_, issued_ - outstanding);
    for (; !dma_.empty() && dma_.front().sequence <= done_; dma_.pop_front()) landed(dma_.front());
  }
  uint64_t done() const { return done_; }
  const std::deque<Dma>& in_flight() const { return dma_; }

 private:
  uint64_t issued_ = 0, done_ = 0;
  std::deque<Dma> dma_;
};

// Calls function(lane, begin, end) with the bytes that each lane accesses; for LDS, offsets.
template <typename Function>
void for_each_access(const Instruction& instruction, const AccessShape& shape, const Wave& wave,
                     Function function) {
  for (unsigned which = 0; which < shape.accesses; ++which) {
    const LaneAddresses addresses = lane_addresses(instruction, shape, wave, which);
    for (uint64_t lanes = addresses.lanes; lanes != 0; lanes &= lanes - 1) {
      const int lane = __builtin_ctzll(lanes);
      const uint64_t begin = addresses.address[lane];
      function(lane, begin, begin + addresses.bytes(lane, shape.bytes));
    }
  }
}

// lgkmcnt has four bits, and saturates: waiting for 15 proves what is older than 15 operations.
inline constexpr uint64_t kMaxOutstandingLds = 15;

ObserverFactory waits_check(Program program);
ObserverFactory hazards_check(Program program);
ObserverFactory uninit_check(Program program);
ObserverFactory lds_races_check(Program program);
ObserverFactory global_races_check(Program program, const LaunchSpec& spec);

}  // namespace mha_sink::emulator
