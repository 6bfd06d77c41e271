// Operands that are read from LDS a fixed number of steps before the MFMA that needs them.
#pragma once

#include "hip/arch/sync.h"
#include "hip/arch/types.h"

namespace mha_sink::tile {

using namespace arch;

// Calls use(step, load(step)) for steps 0..kSteps-1, with kDepth loads in flight. The compiler does
// not know what an MFMA in asm takes: left alone it reads an operand right before its use, or all
// of them at once.
template <int kSteps, int kDepth, class Load, class Use>
MHA_SINK_DEVICE void pipelined(Load&& load, Use&& use) {
  constexpr int kSlots = kDepth < kSteps ? kDepth : kSteps;
  decltype(load(0)) slot[kSlots];
#pragma unroll
  for (int step = 0; step < kSlots; ++step) slot[step] = load(step);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const auto current = slot[step % kSlots];
    if (step + kSlots < kSteps) slot[step % kSlots] = load(step + kSlots);
    scheduling_barrier();
    use(step, current);
    scheduling_barrier();
  }
}

// The first product of a sum needs no zero to add to.
template <class Accumulator, class A, class B>
MHA_SINK_DEVICE void add_or_start(Accumulator& sum, int step, const A& a, const B& b) {
  if (step == 0) {
    sum.start(a, b);
  } else {
    sum.add(a, b);
  }
}

}  // namespace mha_sink::tile
