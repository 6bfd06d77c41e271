#include "emulator/sanitizer.h"

#include <bit>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <optional>

#include "emulator/sanitize.h"

namespace mha_sink::emulator {
namespace {

struct NamedCheck {
  std::string_view name;
  Checks bit;
};
constexpr NamedCheck kNames[] = {{"races", kCheckRaces},
                                 {"waits", kCheckWaits},
                                 {"hazards", kCheckHazards},
                                 {"uninit", kCheckUninit}};

std::mutex mutex;
std::optional<Checks> chosen_checks;

// vmcnt has six bits: the hardware stalls the wave rather than issue a 64th operation.
constexpr unsigned kMaxOutstanding = 63;

bool counts_in_vmcnt(const Instruction& i) {
  if (i.op == Op::buffer_wbl2 || i.op == Op::buffer_inv) return false;
  return i.format == Format::mubuf || i.format == Format::flat;
}

bool executes_on_valu(const Instruction& i) {
  return i.format >= Format::vop1 && i.format <= Format::mai;
}

}  // namespace

Checks parse_checks(std::string_view names) {
  Checks checks = 0;
  while (!names.empty()) {
    const size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names = comma == names.npos ? "" : names.substr(comma + 1);
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const NamedCheck& check) { return check.name == name; });
    if (known == std::end(kNames)) {
      throw EmulationError("unknown sanitizer check \"" + std::string(name) +
                           "\": some of races,waits,hazards,uninit are needed");
    }
    checks |= known->bit;
  }
  return checks;
}

std::string to_string_checks(Checks checks) {
  std::string names;
  for (const NamedCheck& check : kNames) {
    if ((checks & check.bit) == 0) continue;
    if (!names.empty()) names += ',';
    names += check.name;
  }
  return names;
}

Checks default_checks() {
  {
    const std::lock_guard lock(mutex);
    if (chosen_checks) return *chosen_checks;
  }
  const char* names = std::getenv("MHA_SINK_SANITIZE");
  if (names == nullptr) return 0;
  try {
    return parse_checks(names);
  } catch (const EmulationError& error) {
    throw EmulationError(std::string("MHA_SINK_SANITIZE=") + names + ": " + error.what());
  }
}

void set_default_checks(Checks checks) {
  const std::lock_guard lock(mutex);
  chosen_checks = checks;
}

std::vector<ObserverFactory> sanitizer_observers(Checks checks, const Kernel& kernel,
                                                 const LaunchSpec& spec) {
  std::vector<ObserverFactory> observers;
  if (checks == 0) return observers;
  const auto program = std::make_shared<const SanitizedProgram>(kernel);
  if (checks & kCheckWaits) observers.push_back(waits_check(program));
  if (checks & kCheckHazards) observers.push_back(hazards_check(program));
  if (checks & kCheckUninit) observers.push_back(uninit_check(program));
  if (checks & kCheckRaces) {
    observers.push_back(lds_races_check(program));
    observers.push_back(global_races_check(program, spec));
  }
  return observers;
}

Sanitized::Sanitized(const Instruction& instruction)
    : footprint(instruction),
      shape(access_shape(instruction)),
      kind(classify(instruction.op)),
      vector_memory(counts_in_vmcnt(instruction)),
      vector_alu(executes_on_valu(instruction)) {}

SanitizedProgram::SanitizedProgram(const Kernel& kernel) : kernel(kernel) {
  instructions.reserve(kernel.program.size());
  for (const Instruction& instruction : kernel.program) instructions.emplace_back(instruction);
}

std::string SanitizedProgram::describe(uint32_t pc) const {
  return emulator::describe(kernel, kernel.program[pc]);
}

unsigned vmcnt_field(const Instruction& waitcnt) {
  const auto immediate = static_cast<uint16_t>(waitcnt.simm);
  return (immediate & 0xfu) | (immediate >> 14 << 4);
}

unsigned lgkmcnt_field(const Instruction& waitcnt) {
  return static_cast<uint16_t>(waitcnt.simm) >> 8 & 0xfu;
}

void VectorMemoryQueue::clear() {
  issued_ = done_ = 0;
  dma_.clear();
}

uint64_t VectorMemoryQueue::issue(uint32_t pc, const Instruction& instruction,
                                  const AccessShape& shape, const Wave& wave) {
  ++issued_;
  if (issued_ - done_ > kMaxOutstanding) {
    done_ = issued_ - kMaxOutstanding;
    while (!dma_.empty() && dma_.front().sequence <= done_) dma_.pop_front();
  }
  if (shape.lds_dma) {
    const uint32_t base = lds_dma_address(instruction, wave);
    for (uint64_t lanes = wave.exec(); lanes != 0;) {
      const uint32_t first = std::countr_zero(lanes);
      const uint32_t count = std::countr_one(lanes >> first);
      const uint32_t begin = base + first * shape.dma_bytes;
      dma_.push_back({issued_, pc, begin, begin + count * shape.dma_bytes});
      lanes &= first + count == kLanes ? 0 : ~uint64_t{0} << (first + count);
    }
  }
  return issued_;
}

}  // namespace mha_sink::emulator
