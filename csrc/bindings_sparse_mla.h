#pragma once

#include <pybind11/pybind11.h>

namespace mha_sink {

void bind_sparse_mla(pybind11::module_& module);

}  // namespace mha_sink
