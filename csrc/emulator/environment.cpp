#include "emulator/environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "emulator/error.h"

namespace mha_sink::emulator {

std::optional<uint64_t> environment_integer(const char* name, uint64_t least, uint64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view view(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < least || value > most) {
    throw EmulationError(std::string(name) + "=" + text + ": an integer from " +
                         std::to_string(least) + " to " + std::to_string(most) + " is needed");
  }
  return value;
}

}  // namespace mha_sink::emulator
