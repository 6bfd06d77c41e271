// What the bindings of all calls hand on from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "host/device_name.h"
#include "host/scratch.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

// Usable with and without the GIL, from the thread that entered.
inline WorkspaceAlloc python_alloc(const pybind11::object& workspace_alloc) {
  return [&workspace_alloc](size_t bytes, bool zero_init) {
    const pybind11::gil_scoped_acquire gil;
    const pybind11::object address = workspace_alloc(bytes, zero_init);
    if (!pybind11::isinstance<pybind11::int_>(address)) {
      throw pybind11::type_error("workspace_alloc returned " +
                                 std::string(pybind11::repr(address)) +
                                 "; an address as an int is needed");
    }
    return reinterpret_cast<void*>(address.cast<uintptr_t>());
  };
}

inline stream_config config_of(const std::string& device, uintptr_t stream, bool timed) {
  return {.stream_id_ = reinterpret_cast<void*>(stream),
          .time_kernel_ = timed,
          .cold_niters_ = 0,
          .nrepeat_ = 1,
          .device_ = &device_named(device)};
}

}  // namespace mha_sink
