// Devices by the names that torch gives them.
#pragma once

#include <string>

#include "device/device.h"

namespace mha_sink {

// "cpu": the emulated device; "cuda:N": GPU N of the HIP runtime, as torch for ROCm names it.
// Throws Error: "no ROCm device: ..." when there is none, or that no kernels run on such a device.
Device& device_named(const std::string& name);

}  // namespace mha_sink
