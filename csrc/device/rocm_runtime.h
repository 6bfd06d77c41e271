// The HIP runtime of this process: which libamdhip64 it is, and its functions.
#pragma once

#include <string>
#include <vector>

#include "device/rocm_api.h"

namespace mha_sink::hip {

struct Runtime {
  Api api;
  std::string library;  // the file that was loaded
  int device_count = 0;
  int driver_version = 0, runtime_version = 0;  // 70125424 is 7.1.25424

  // "hipErrorNoDevice (100): no ROCm-capable device is detected"
  std::string describe(Status status) const;

  // Throws Error "<what> failed: <describe>". What failed here must not surface in the caller's
  // next check of the runtime's last error, as torch makes after each launch: clears it.
  void check(Status status, const std::string& what) const;
};

// The runtime that this process has loaded, torch's for example; else libamdhip64.so.7, else
// libamdhip64.so from the loader's search path. Found once, and then the same for the life of the
// process. Throws Error: "no ROCm device: ..." without a library or a device; the paths when two
// different copies are loaded, because streams and memory of one mean nothing to the other.
const Runtime& runtime();

// As runtime(), of what is loaded already; nullptr: nothing is, or there is no device.
const Runtime* loaded_runtime();

}  // namespace mha_sink::hip
