// Races between workgroups: a byte of global memory stored by one and touched by another within a
// launch. Nothing orders workgroups, so any order between them counts.
//
// Kept for each pair of bytes, the narrowest that our kernels' types have: single-byte accesses
// are not checked. Atomics conflict with stores, not with each other nor with loads.
#include <algorithm>
#include <array>
#include <atomic>

#include "emulator/sanitize.h"

namespace mha_sink::emulator {
namespace {

constexpr uint64_t kUnit = 2;

// Who touched a unit, and where: the workgroup's number from 1 on, then the instruction.
constexpr unsigned kPcBits = 24;
constexpr uint64_t kSeveral = uint64_t{1} << 63;  // of other: workgroups, the latest is named
constexpr uint64_t kPcMask = (uint64_t{1} << kPcBits) - 1;

struct Unit {
  std::atomic<uint64_t> store{0}, other{0};  // other: loads and atomics
};

struct Range {
  uintptr_t begin = 0, end = 0;
  std::string name;
  std::vector<Unit> units;
};

// Shared by the threads of a launch.
struct Shadow {
  std::vector<Range> ranges;
  std::array<uint32_t, 3> grid{};

  Unit* unit(uintptr_t address, const Range*& nearest) {
    if (nearest == nullptr || address < nearest->begin || address >= nearest->end) {
      nearest = nullptr;
      for (const Range& range : ranges) {
        if (address >= range.begin && address < range.end) nearest = &range;
      }
      if (nearest == nullptr) return nullptr;
    }
    return &const_cast<Range*>(nearest)->units[(address - nearest->begin) / kUnit];
  }
};

class GlobalRacesCheck final : public Observer {
 public:
  GlobalRacesCheck(Program program, std::shared_ptr<Shadow> shadow)
      : program_(std::move(program)), shadow_(std::move(shadow)) {}

  void start(const Workgroup& workgroup, std::span<Wave>) override {
    const auto& grid = shadow_->grid;
    workgroup_ = 1 + workgroup.id[0] +
                 uint64_t{grid[0]} * (workgroup.id[1] + uint64_t{grid[1]} * workgroup.id[2]);
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    const AccessShape& shape = program_->instructions[pc].shape;
    if (shape.space != MemorySpace::global || shape.bytes < kUnit) return;
    const bool store = shape.kind == AccessKind::store;
    const uint64_t self = workgroup_ << kPcBits | pc;
    for_each_access(instruction, shape, wave, [&](int lane, uint64_t begin, uint64_t end) {
      for (uint64_t address = begin; address < end; address += kUnit) {
        Unit* unit = shadow_->unit(address, nearest_);
        if (unit == nullptr) return;
        store ? touch_store(*unit, self, address, lane)
              : touch_other(*unit, self, address, lane, shape.kind);
      }
    });
  }

 private:
  bool foreign(uint64_t access) const { return access != 0 && access >> kPcBits != workgroup_; }

  void touch_store(Unit& unit, uint64_t self, uint64_t address, int lane) const {
    const uint64_t before = unit.store.exchange(self);
    if (foreign(before)) fail("stores to", self, "stored to", before, address, lane);
    const uint64_t other = unit.other.load();
    if ((other & kSeveral) != 0 || foreign(other)) {
      fail("stores to", self, "touched", other & ~kSeveral, address, lane);
    }
  }

  void touch_other(Unit& unit, uint64_t self, uint64_t address, int lane, AccessKind kind) const {
    uint64_t before = unit.other.load();
    while (before == 0 || foreign(before & ~kSeveral)) {
      const uint64_t after = before == 0 ? self : self | kSeveral;
      if (unit.other.compare_exchange_weak(before, after)) break;
    }
    const uint64_t store = unit.store.load();
    if (!foreign(store)) return;
    fail(kind == AccessKind::load ? "loads from" : "updates", self, "stored to", store, address,
         lane);
  }

  [[noreturn]] void fail(const char* verb, uint64_t self, const char* did, uint64_t other,
                         uint64_t address, int lane) const {
    throw SanitizerError("global race: lane " + std::to_string(lane) + " of workgroup " +
                         name(self) + " " + verb + " byte " +
                         std::to_string(address - nearest_->begin) + " of " + nearest_->name +
                         ", which workgroup " + name(other) + " has " + did + " (" +
                         program_->describe(other & kPcMask) + ")");
  }

  std::string name(uint64_t access) const {
    const uint64_t index = (access >> kPcBits) - 1;
    const auto& grid = shadow_->grid;
    return "(" + std::to_string(index % grid[0]) + ", " +
           std::to_string(index / grid[0] % grid[1]) + ", " +
           std::to_string(index / grid[0] / grid[1]) + ")";
  }

  const Program program_;
  const std::shared_ptr<Shadow> shadow_;
  const Range* nearest_ = nullptr;
  uint64_t workgroup_ = 0;
};

}  // namespace

ObserverFactory global_races_check(Program program, const LaunchSpec& spec) {
  auto shadow = std::make_shared<Shadow>();
  shadow->grid = spec.workgroups;
  std::vector<MemoryRange> writable;
  for (const MemoryRange& range : spec.memory) {
    if (range.writable && range.bytes != 0) writable.push_back(range);
  }
  std::sort(writable.begin(), writable.end(),
            [](const auto& left, const auto& right) { return left.begin < right.begin; });
  // Interleaved views of one allocation overlap: one shadow for all of them.
  for (const MemoryRange& range : writable) {
    const uintptr_t end = range.begin + range.bytes;
    if (shadow->ranges.empty() || range.begin >= shadow->ranges.back().end) {
      shadow->ranges.push_back({range.begin, end, range.name, {}});
    } else {
      Range& merged = shadow->ranges.back();
      merged.end = std::max(merged.end, end);
      merged.name += "+" + range.name;
    }
  }
  for (Range& range : shadow->ranges) {
    range.units = std::vector<Unit>((range.end - range.begin + kUnit - 1) / kUnit);
  }
  return [program = std::move(program), shadow] {
    return std::make_unique<GlobalRacesCheck>(program, shadow);
  };
}

}  // namespace mha_sink::emulator
