// What the emulated device offers beyond Device: profiles of what ran on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "emulator/access_counter.h"

namespace mha_sink {

struct KernelProfile {
  uint64_t launches = 0;
  uint64_t wave_instructions = 0;            // executed, one for all 64 lanes
  std::map<std::string, uint64_t> by_class;  // emulator::InstructionClass by its name
  std::map<std::string, uint64_t> by_mnemonic;
  std::vector<uint64_t> executions;  // by instruction, as emulator::Kernel::program has them
  uint64_t workgroups = 0, work_items = 0;
  std::optional<emulator::AccessCounts> accesses;  // when a session asked for them
};

// Collects the profiles of every launch on the emulated device, from any thread, that ends while
// the session lives. Sessions may overlap.
class ProfileSession {
 public:
  // Counting accesses as well makes launches several times slower, for every session.
  explicit ProfileSession(bool accesses = false);
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

  // By kernel name.
  std::map<std::string, KernelProfile> kernels() const;

 private:
  std::shared_ptr<std::map<std::string, KernelProfile>> kernels_;
  bool accesses_;
};

}  // namespace mha_sink
