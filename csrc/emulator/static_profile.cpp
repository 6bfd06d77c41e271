#include <algorithm>
#include <map>

#include "emulator/code_object.h"
#include "emulator/launch.h"

namespace mha_sink::emulator {
namespace {

struct Loop {
  uint32_t first = 0, last = 0;  // instructions of the body, both included
  uint32_t mfma = 0, accvgpr_moves = 0;

  uint32_t instructions() const { return last - first + 1; }
  bool contains(const Loop& other) const {
    return first <= other.first && other.last <= last && instructions() > other.instructions();
  }
};

void count(const Kernel& kernel, Loop& loop) {
  for (uint32_t i = loop.first; i <= loop.last; ++i) {
    InstructionClass c = classify(kernel.program[i].op);
    loop.mfma += c == InstructionClass::mfma;
    loop.accvgpr_moves += c == InstructionClass::accvgpr;
  }
}

// Backward branches with one target close one loop.
std::vector<Loop> find_loops(const Kernel& kernel) {
  std::map<uint32_t, uint32_t> last_by_first;
  for (uint32_t i = 0; i < kernel.program.size(); ++i) {
    const Instruction& instruction = kernel.program[i];
    bool jumps = instruction.format == Format::sopp &&
                 classify(instruction.op) == InstructionClass::branch &&
                 instruction.op != Op::s_endpgm;
    if (jumps && instruction.target <= i) last_by_first[instruction.target] = i;
  }
  std::vector<Loop> loops;
  for (auto [first, last] : last_by_first) {
    loops.push_back({first, last});
    count(kernel, loops.back());
  }
  return loops;
}

}  // namespace

StaticProfile static_profile(const Kernel& kernel) {
  StaticProfile profile;
  profile.instructions = static_cast<uint32_t>(kernel.program.size());
  if (kernel.program.empty()) return profile;
  Loop whole{0, profile.instructions - 1};
  count(kernel, whole);
  profile.mfma = whole.mfma;
  profile.accvgpr_moves = whole.accvgpr_moves;

  // Innermost as the matrix work sees it: a loop inside that has no MFMA does not count.
  std::vector<Loop> loops = find_loops(kernel);
  const Loop* hottest = nullptr;
  for (const Loop& loop : loops) {
    bool innermost = std::none_of(loops.begin(), loops.end(), [&](const Loop& other) {
      return loop.contains(other) && (other.mfma > 0 || loop.mfma == 0);
    });
    if (innermost && (!hottest || loop.mfma > hottest->mfma)) hottest = &loop;
  }
  if (hottest) {
    profile.loop_instructions = hottest->instructions();
    profile.loop_mfma = hottest->mfma;
    profile.loop_accvgpr_moves = hottest->accvgpr_moves;
  }
  return profile;
}

}  // namespace mha_sink::emulator
