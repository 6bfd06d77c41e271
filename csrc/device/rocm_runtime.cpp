#include "device/rocm_runtime.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "mha_sink/error.h"

namespace mha_sink::hip {
namespace {

struct NoDevice : Error {
  using Error::Error;
};

constexpr std::string_view kStem = "libamdhip64";
constexpr const char* kLibraryNames[] = {"libamdhip64.so.7", "libamdhip64.so"};

// torch's wheels load a copy of their own, sometimes under a mangled name.
std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string_view file = path.substr(path.rfind('/') + 1);
        if (file.starts_with(kStem))
          static_cast<std::vector<std::string>*>(found)->emplace_back(path);
        return 0;
      },
      &paths);
  return paths;
}

std::string last_dl_error() {
  const char* message = dlerror();
  return message == nullptr ? "unknown error" : message;
}

// Sets `library` to the file.
void* open_library(const std::vector<std::string>& loaded, std::string& library) {
  if (loaded.size() > 1) {
    std::string list;
    for (const std::string& path : loaded) list += (list.empty() ? "" : " and ") + path;
    throw Error("this process has loaded " + std::to_string(loaded.size()) + " HIP runtimes, " +
                list + "; one is needed, the one that owns the tensors");
  }
  if (!loaded.empty()) {
    library = loaded.front();
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) throw Error("the HIP runtime " + library + ": " + last_dl_error());
    return handle;
  }
  std::string reasons;
  for (const char* name : kLibraryNames) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      const std::vector<std::string> opened = loaded_libraries();
      library = opened.empty() ? name : opened.front();
      return handle;
    }
    reasons += (reasons.empty() ? "" : "; ") + last_dl_error();
  }
  throw NoDevice("no ROCm device: no HIP runtime is loaded or installed (" + reasons + ")");
}

template <class Function>
void resolve(void* handle, const std::string& library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, symbol));
  if (function == nullptr) {
    throw Error("the HIP runtime " + library + " has no " + symbol + "; ROCm 6 or newer is needed");
  }
}

Runtime open_runtime(const std::vector<std::string>& loaded) {
  Runtime runtime;
  void* handle = open_library(loaded, runtime.library);
#define MHA_SINK_RESOLVE(member, symbol, ...) \
  resolve(handle, runtime.library, #symbol, runtime.api.member);
  MHA_SINK_HIP_FUNCTIONS(MHA_SINK_RESOLVE)
#undef MHA_SINK_RESOLVE

  const Status status = runtime.api.get_device_count(&runtime.device_count);
  if (status != Status::success || runtime.device_count < 1) {
    runtime.api.get_last_error();
    throw NoDevice("no ROCm device: hipGetDeviceCount of " + runtime.library + " gives " +
                   (status == Status::success ? std::to_string(runtime.device_count) + " devices"
                                              : runtime.describe(status)));
  }
  runtime.check(runtime.api.driver_get_version(&runtime.driver_version), "hipDriverGetVersion");
  runtime.check(runtime.api.runtime_get_version(&runtime.runtime_version), "hipRuntimeGetVersion");
  return runtime;
}

std::mutex opening;
// Set once. A failure is not kept: torch may be imported later.
std::atomic<const Runtime*> found;

const Runtime& open_once(const std::vector<std::string>& loaded) {
  const std::lock_guard lock(opening);
  if (const Runtime* runtime = found.load()) return *runtime;
  found = new Runtime(open_runtime(loaded));  // lives as long as the process
  return *found;
}

}  // namespace

std::string Runtime::describe(Status status) const {
  return std::string(api.get_error_name(status)) + " (" + std::to_string(static_cast<int>(status)) +
         "): " + api.get_error_string(status);
}

void Runtime::check(Status status, const std::string& what) const {
  if (status == Status::success) return;
  api.get_last_error();
  throw Error(what + " failed: " + describe(status));
}

const Runtime& runtime() {
  if (const Runtime* runtime = found.load()) return *runtime;
  return open_once(loaded_libraries());
}

const Runtime* loaded_runtime() {
  if (const Runtime* runtime = found.load()) return runtime;
  const std::vector<std::string> loaded = loaded_libraries();
  if (loaded.empty()) return nullptr;
  try {
    return &open_once(loaded);
  } catch (const NoDevice&) {
    return nullptr;
  }
}

}  // namespace mha_sink::hip
