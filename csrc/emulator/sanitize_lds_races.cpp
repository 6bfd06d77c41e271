// LDS races: two waves of a workgroup touch a byte, one of them writing, with no barrier between.
//
// Every wave that has not ended takes part in a barrier, so what is ordered follows from counting
// barriers: accesses of different waves between the same two barriers are not. LDS-DMA writes from
// its issue until an s_waitcnt covers it, and so in every interval between. Waves that fetch to the
// same bytes with the same instruction are taken to fetch the same data, as aiter's backward does.
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

class LdsRacesCheck final : public Observer {
 public:
  explicit LdsRacesCheck(Program program) : program_(std::move(program)) {}

  void start(const Workgroup& workgroup, std::span<Wave> waves) override {
    cells_.resize((workgroup.lds.size() + 3) / 4);
    memory_.assign(waves.size(), VectorMemoryQueue());
    ++interval_;
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    const Sanitized& sanitized = program_->instructions[pc];
    VectorMemoryQueue& memory = memory_[wave.index];
    if (instruction.op == Op::s_waitcnt) {
      memory.wait(vmcnt_field(instruction),
                  [&](const VectorMemoryQueue::Dma& dma) { write_dma(dma, wave.index); });
    } else if (sanitized.vector_memory) {
      memory.issue(pc, instruction, sanitized.shape, wave);
      if (sanitized.shape.lds_dma) write_newest_dma(pc, wave.index);
    } else if (sanitized.shape.space == MemorySpace::lds) {
      access(pc, instruction, sanitized.shape, wave);
    }
  }

  void barrier() override {
    ++interval_;
    for (size_t wave = 0; wave < memory_.size(); ++wave) {
      for (const VectorMemoryQueue::Dma& dma : memory_[wave].in_flight()) {
        write_dma(dma, static_cast<int>(wave));
      }
    }
  }

 private:
  void access(uint32_t pc, const Instruction& instruction, const AccessShape& shape,
              const Wave& wave) {
    const Access access(pc, wave.index, shape.kind == AccessKind::atomic);
    const bool reads = shape.kind == AccessKind::load;
    for_each_access(instruction, shape, wave, [&](int, uint64_t begin, uint64_t end) {
      reads ? touch<false>(access, begin, end) : touch<true>(access, begin, end);
    });
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

  template <bool kWrite>
  void touch(Access access, uint64_t begin, uint64_t end) {
    if (begin >= end || end > cells_.size() * 4) return;  // the handler's fault to raise
    for (uint64_t dword = begin / 4; dword * 4 < end; ++dword) {
      uint32_t mask = 0xf;
      if (dword * 4 < begin) mask &= 0xfu << (begin - dword * 4);
      if (dword * 4 + 4 > end) mask &= 0xfu >> (dword * 4 + 4 - end);
      touch_dword<kWrite>(access.with_bytes(mask), dword);
    }
  }

  template <bool kWrite>
  void touch_dword(Access access, uint64_t dword) {
    Cell& cell = cells_[dword];
    if (cell.interval != interval_) cell = Cell{interval_, {}, {}};
    for (Access write : cell.writes) {
      if (access.conflicts(write))
        fail(kWrite ? "writes" : "reads", access, "written", write, dword);
    }
    if constexpr (kWrite) {
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
                         program_->describe(other.pc()) + "), and no barrier lies between");
  }

  const Program program_;
  std::vector<Cell> cells_;
  std::vector<VectorMemoryQueue> memory_;
  uint32_t interval_ = 0;  // barriers, over all workgroups: cells need no clearing
};

}  // namespace

ObserverFactory lds_races_check(Program program) {
  return [program = std::move(program)] { return std::make_unique<LdsRacesCheck>(program); };
}

}  // namespace mha_sink::emulator
