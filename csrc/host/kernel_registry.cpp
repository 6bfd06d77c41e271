#include "host/kernel_registry.h"

#include <string>

#include "mha_sink/error.h"

namespace mha_sink {

const KernelBinary& embedded_kernel(std::string_view name) {
  std::string known;
  for (const KernelBinary& kernel : embedded_kernels()) {
    if (kernel.name == name) return kernel;
    known += known.empty() ? "" : ", ";
    known += kernel.name;
  }
  throw Error("kernel " + std::string(name) +
              " is not in this build, which has: " + (known.empty() ? "none" : known));
}

}  // namespace mha_sink
