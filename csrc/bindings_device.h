// Devices for mha_sink._C: what there is, warm-up, comparison with the emulator.
#pragma once

#include <pybind11/pybind11.h>

namespace mha_sink {

void bind_device(pybind11::module_& module);

}  // namespace mha_sink
