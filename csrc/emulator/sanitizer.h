// Finds in a launch what its outputs need not show: races, missing waits, pipeline hazards, reads
// of what nobody wrote. Each check is an observer of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/error.h"
#include "emulator/launch.h"
#include "emulator/observer.h"

namespace mha_sink::emulator {

// What a check found. The message names kernel, instructions, workgroup and wave, and the byte or
// register; memory may be partly written.
struct SanitizerError : EmulationError {
  using EmulationError::EmulationError;
};

// A set of checks, by their bits.
using Checks = uint32_t;
inline constexpr Checks kCheckRaces = 1, kCheckWaits = 2, kCheckHazards = 4, kCheckUninit = 8;
inline constexpr Checks kAllChecks = 15;

// "races,waits", in any order; "" is none. Throws EmulationError that names what is unknown.
Checks parse_checks(std::string_view names);
std::string to_string_checks(Checks checks);

// What launches use that are not told: set here, else MHA_SINK_SANITIZE, else none.
Checks default_checks();
void set_default_checks(Checks checks);

// One factory a check. What the threads of the launch share lives in them.
std::vector<ObserverFactory> sanitizer_observers(Checks checks, const Kernel& kernel,
                                                 const LaunchSpec& spec);

}  // namespace mha_sink::emulator
