#include "host/device_name.h"

#include <charconv>
#include <string_view>

#include "mha_sink/error.h"

namespace mha_sink {

Device& device_named(const std::string& name) {
  if (name == "cpu") return emulated_device();
  constexpr std::string_view kGpu = "cuda:";
  if (name.starts_with(kGpu)) {
    int index = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kGpu.size(), end, index);
    if (error == std::errc() && rest == end) return rocm_device(index);
  }
  throw Error("no kernels run on device \"" + name + "\"");
}

}  // namespace mha_sink
