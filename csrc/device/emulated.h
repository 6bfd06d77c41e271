// What the emulated device offers beyond Device: profiles of what ran on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "device/device.h"

namespace mha_sink {

struct KernelProfile {
  uint64_t launches = 0;
  uint64_t wave_instructions = 0;            // executed, one for all 64 lanes
  std::map<std::string, uint64_t> by_class;  // emulator::InstructionClass by its name
  std::map<std::string, uint64_t> by_mnemonic;
};

// Collects the profiles of every launch on the emulated device, from any thread, that ends while
// the session lives. Sessions may overlap.
class ProfileSession {
 public:
  ProfileSession();
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

  // By kernel name.
  std::map<std::string, KernelProfile> kernels() const;

 private:
  std::shared_ptr<std::map<std::string, KernelProfile>> kernels_;
};

}  // namespace mha_sink
