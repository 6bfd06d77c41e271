#pragma once

#include <stdexcept>

namespace mha_sink::emulator {

// A code object that cannot be loaded, an instruction that cannot be executed, or an access that a
// GPU would fault on. The message names the kernel, the instruction and its address.
struct EmulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace mha_sink::emulator
