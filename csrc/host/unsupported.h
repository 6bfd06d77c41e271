// Unsupported requests are exceptions inside the library and negative returns at its C++ interface.
#pragma once

#include <string>

#include "host/checks.h"

namespace mha_sink {

inline constexpr float kUnsupported = -1;

// What unsupported_reason() returns on this thread.
void set_unsupported_reason(const std::string& reason);

template <class Call>
float negative_when_unsupported(Call&& call) {
  set_unsupported_reason("");
  try {
    return call();
  } catch (const Unsupported& error) {
    set_unsupported_reason(error.what());
    return kUnsupported;
  }
}

}  // namespace mha_sink
