// Watches a launch, instruction by instruction: access counts, sanitizers. A launch without one
// runs a loop that knows nothing of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "emulator/instruction.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {

// Serves one executing thread, and so sees one workgroup at a time. What it throws ends the launch;
// an EmulationError thrown around an instruction gets that instruction's place.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void start(const Workgroup&, std::span<Wave>) {}  // registers are as the waves find them
  virtual void before(uint32_t /*pc*/, const Instruction&, const Wave&) {}
  virtual void after(uint32_t /*pc*/, const Instruction&, const Wave&) {}
  virtual void barrier() {}  // every wave that has not ended arrived, and all go on
  virtual void end() {}      // all waves of the workgroup ended
  virtual void finish() {}   // the thread's last workgroup ended, and no thread met an error yet
};

// Makes the observer of one thread.
using ObserverFactory = std::function<std::unique_ptr<Observer>()>;

}  // namespace mha_sink::emulator
