// Hexadecimal numbers in messages.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace mha_sink::emulator {

// "0x" and at least `digits` digits.
inline std::string hex(uint64_t value, int digits = 1) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

}  // namespace mha_sink::emulator
