// The code objects that the build embedded. The build generates the definition of
// embedded_kernels() from the list in cmake/kernels.cmake.
#pragma once

#include <span>
#include <string_view>

#include "device/device.h"

namespace mha_sink {

std::span<const KernelBinary> embedded_kernels();

// Throws Error naming the kernel and what exists.
const KernelBinary& embedded_kernel(std::string_view name);

}  // namespace mha_sink
