#pragma once

#include <stdexcept>
#include <string>

namespace mha_sink {

// Anything that stops a call: a code object that cannot be loaded, a failed launch, a callback that
// returned null. The message names what failed.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An argument that no version of the library could accept: null pointer, head counts that do not
// divide, outputs sharing elements. The message names the argument, what was given, what is needed.
// Thrown before anything is launched or written.
struct InvalidArgument : Error {
  using Error::Error;
};

}  // namespace mha_sink
