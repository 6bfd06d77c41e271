// Settings read from the process environment.
#pragma once

#include <cstdint>
#include <optional>

namespace mha_sink::emulator {

// The variable's value; nothing when it is unset or empty. Throws EmulationError naming the
// variable when it is not an integer between the bounds.
std::optional<uint64_t> environment_integer(const char* name, uint64_t least, uint64_t most);

}  // namespace mha_sink::emulator
