#pragma once

#include <pybind11/pybind11.h>

namespace mha_sink {

// Code objects, launches, schedule and profile of the emulated device.
void bind_emulator(pybind11::module_& module, const pybind11::object& error);

}  // namespace mha_sink
