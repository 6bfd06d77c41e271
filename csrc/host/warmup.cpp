#include "device/device.h"
#include "host/kernel_registry.h"

namespace mha_sink {

void warmup(Device& device, void* stream) {
  for (const KernelBinary& kernel : embedded_kernels()) device.load(kernel, stream);
}

}  // namespace mha_sink
