// LDS races: two waves of a workgroup touch a byte, one of them writing, with no barrier between.
//
// Every wave that has not ended takes part in a barrier, so what is ordered follows from counting
// barriers: accesses of different waves between the same two barriers are not. An access lasts from
// its issue until an s_waitcnt covers it, and so counts in every interval between. Waves that fetch
// to the same bytes with the same instruction are taken to fetch the same data, as aiter's backward
// does.
#include <algorithm>

#include "emulator/sanitize.h"

namespace mha_sink::emulator {
namespace {

// An access as a cell holds it: which of the dword's bytes, by whom and where. 0: none.
class Access {
 public:
  Access() = default;
  Access(uint32_t pc, int wave, bool atomic, bool dma = false)
      : bits_(pc << 10 | static_cast<uint32_t>(wave) << 6 | uint32_t{dma} << 5 |
              uint32_t{atomic} << 4) {}

  Access with_bytes(uint32_t mask) const {
    Access copy = *this;
    copy.bits_ |= mask;
    return copy;
  }
  bool none() const { return bits_ == 0; }
  bool same_wave(Access other) const { return wave() == other.wave(); }
  bool conflicts(Access other) const {
    if ((bits_ & other.bits_ & 0xf) == 0 || same_wave(other)) return false;
    return !(atomic() && other.atomic()) && !(dma() && other.dma() && pc() == other.pc());
  }
  bool atomic() const { return (bits_ & 0x10) != 0; }
  bool dma() const { return (bits_ & 0x20) != 0; }
  uint32_t bytes() const { return bits_ & 0xf; }
  uint32_t wave() const { return bits_ >> 6 & 0xf; }
  uint32_t pc() const { return bits_ >> 10; }

 private:
  uint32_t bits_ = 0;
};

// One dword of LDS since the last barrier. Two accesses of different waves are enough: whoever
// comes next differs from one of them.
struct Cell {
  uint32_t interval = 0;
  Access writes[2], reads[2];
};

void remember(Access (&slots)[2], Access access) {
  for (Access& slot : slots) {
    if (slot.none()) {
      slot = access;
      return;
    }
    if (slot.same_wave(access)) {
      slot = access.atomic() && !slot.atomic() ? slot.with_bytes(access.bytes())
                                               : access.with_bytes(slot.bytes());
      return;
    }
  }
  // Parts of the dword may be new.
  if ((access.bytes() & ~slots[1].bytes()) != 0) slots[1] = access;
}

// LDS operations of one wave that no s_waitcnt lgkmcnt covers yet; they complete in order.
struct LdsQueue {
  struct Operation {
    uint64_t sequence;
    Access access;
    bool reads;
    uint32_t bytes;
    LaneAddresses addresses;

    template <typename Function>
    void for_each(Function function) const {
      for (uint64_t lanes = addresses.lanes; lanes != 0; lanes &= lanes - 1) {
        const uint64_t begin = addresses.address[__builtin_ctzll(lanes)];
        function(begin, begin + bytes);
      }
    }
  };

  void issue() {
    ++issued;
    drop(issued - std::min<uint64_t>(issued, kMaxOutstandingLds));
  }
  void wait(unsigned outstanding) { drop(issued - std::min<uint64_t>(issued, outstanding)); }
  void drop(uint64_t done) {
    while (!in_flight.empty() && in_flight.front().sequence <= done) in_flight.pop_front();
  }

  uint64_t issued = 0;
  std::deque<Operation> in_flight;
};

class LdsRacesCheck final : public Observer {
 public:
  explicit LdsRacesCheck(Program program) : program_(std::move(program)) {}

  void start(const Workgroup& workgroup, std::span<Wave> waves) override {
    cells_.resize((workgroup.lds.size() + 3) / 4);
    memory_.assign(waves.size(), VectorMemoryQueue());
    lds_.assign(waves.size(), LdsQueue());
    ++interval_;
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    const Sanitized& sanitized = program_->instructions[pc];
    VectorMemoryQueue& memory = memory_[wave.index];
    if (instruction.op == Op::s_waitcnt) {
      memory.wait(vmcnt_field(instruction),
                  [&](const VectorMemoryQueue::Dma& dma) { write_dma(dma, wave.index); });
      lds_[wave.index].wait(lgkmcnt_field(instruction));
    } else if (sanitized.vector_memory) {
      memory.issue(pc, instruction, sanitized.shape, wave);
      if (sanitized.shape.lds_dma) write_newest_dma(pc, wave.index);
    } else if (sanitized.kind == InstructionClass::lds) {
      lds_[wave.index].issue();
      access(pc, instruction, sanitized.shape, wave);
    }
  }

  void barrier() override {
    ++interval_;
    for (size_t wave = 0; wave < memory_.size(); ++wave) {
      for (const VectorMemoryQueue::Dma& dma : memory_[wave].in_flight()) {
        const Access access(dma.pc, static_cast<int>(wave), false, true);
        touch<true, false>(access, dma.begin, dma.end);
      }
      for (const LdsQueue::Operation& operation : lds_[wave].in_flight) {
        operation.for_each([&](uint64_t begin, uint64_t end) {
          operation.reads ? touch<false, false>(operation.access, begin, end)
                          : touch<true, false>(operation.access, begin, end);
        });
      }
    }
  }

 private:
  void access(uint32_t pc, const Instruction& instruction, const AccessShape& shape,
              const Wave& wave) {
    if (shape.space != MemorySpace::lds) return;
    LdsQueue& queue = lds_[wave.index];
    for (unsigned which = 0; which < shape.accesses; ++which) {
      const LdsQueue::Operation& operation = queue.in_flight.emplace_back(LdsQueue::Operation{
          queue.issued, Access(pc, wave.index, shape.kind == AccessKind::atomic),
          shape.kind == AccessKind::load, shape.bytes,
          lane_addresses(instruction, shape, wave, which)});
      operation.for_each([&](uint64_t begin, uint64_t end) {
        operation.reads ? touch<false>(operation.access, begin, end)
                        : touch<true>(operation.access, begin, end);
      });
    }
  }

  // The DMA that was just issued; its pieces are the youngest in flight.
  void write_newest_dma(uint32_t pc, int wave) {
    const auto& in_flight = memory_[wave].in_flight();
    const uint64_t newest = in_flight.empty() ? 0 : in_flight.back().sequence;
    for (auto dma = in_flight.rbegin(); dma != in_flight.rend(); ++dma) {
      if (dma->sequence != newest || dma->pc != pc) break;
      write_dma(*dma, wave);
    }
  }

  void write_dma(const VectorMemoryQueue::Dma& dma, int wave) {
    touch<true>(Access(dma.pc, wave, false, true), dma.begin, dma.end);
  }

  template <bool kWrite, bool kCheck = true>
  void touch(Access access, uint64_t begin, uint64_t end) {
    if (begin >= end || end > cells_.size() * 4) return;  // the handler's fault to raise
    for (uint64_t dword = begin / 4; dword * 4 < end; ++dword) {
      uint32_t mask = 0xf;
      if (dword * 4 < begin) mask &= 0xfu << (begin - dword * 4);
      if (dword * 4 + 4 > end) mask &= 0xfu >> (dword * 4 + 4 - end);
      touch_dword<kWrite, kCheck>(access.with_bytes(mask), dword);
    }
  }

  template <bool kWrite, bool kCheck>
  void touch_dword(Access access, uint64_t dword) {
    Cell& cell = cells_[dword];
    if (cell.interval != interval_) cell = Cell{interval_, {}, {}};
    if constexpr (kCheck) {
      for (Access write : cell.writes) {
        if (!access.conflicts(write)) continue;
        fail(kWrite ? "writes" : "reads", access, "written", write, dword);
      }
    }
    if constexpr (kCheck && kWrite) {
      for (Access read : cell.reads) {
        if (access.conflicts(read)) fail("writes", access, "read", read, dword);
      }
    }
    remember(kWrite ? cell.writes : cell.reads, access);
  }

  [[noreturn]] void fail(const char* verb, Access access, const char* did, Access other,
                         uint64_t dword) const {
    const uint32_t shared = access.bytes() & other.bytes();
    throw SanitizerError("LDS race on byte " + std::to_string(dword * 4 + __builtin_ctz(shared)) +
                         ": wave " + std::to_string(access.wave()) + " " + verb + " it (" +
                         program_->describe(access.pc()) + "), wave " +
                         std::to_string(other.wave()) + " has " + did + " it (" +
                         program_->describe(other.pc()) + "), and no barrier orders them");
  }

  const Program program_;
  std::vector<Cell> cells_;
  std::vector<VectorMemoryQueue> memory_;
  std::vector<LdsQueue> lds_;
  uint32_t interval_ = 0;  // barriers, over all workgroups: cells need no clearing
};

}  // namespace

ObserverFactory lds_races_check(Program program) {
  return [program = std::move(program)] { return std::make_unique<LdsRacesCheck>(program); };
}

}  // namespace mha_sink::emulator
