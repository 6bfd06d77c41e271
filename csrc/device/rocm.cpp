// AMD GPUs through the HIP runtime of the process.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/rocm_runtime.h"
#include "mha_sink/error.h"

namespace mha_sink {
namespace {

using hip::Runtime;
using hip::Status;

// Makes a device current for this thread, and the one before it again. A torch program has one
// current device and tensors on any.
class CurrentDevice {
 public:
  CurrentDevice(const Runtime& runtime, int device) : runtime_(runtime) {
    runtime.check(runtime.api.get_device(&before_), "hipGetDevice");
    if (before_ == device) return;
    runtime.check(runtime.api.set_device(device), "hipSetDevice(" + std::to_string(device) + ")");
    changed_ = true;
  }
  ~CurrentDevice() {
    // A destructor cannot throw; the device was current a moment ago.
    if (changed_ && runtime_.api.set_device(before_) != Status::success) {
      runtime_.api.get_last_error();
    }
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const Runtime& runtime_;
  int before_ = 0;
  bool changed_ = false;
};

class RocmDevice final : public Device {
 public:
  RocmDevice(const Runtime& runtime, int index)
      : runtime_(runtime), api_(runtime.api), index_(index) {
    char name[256] = "";
    check(api_.device_get_name(name, sizeof(name), index), "hipDeviceGetName");
    product_ = name;
  }

  std::string name() const override {
    return "cuda:" + std::to_string(index_) + (product_.empty() ? "" : " (" + product_ + ")");
  }

  void load(const KernelBinary& kernel, Stream stream) override { function_of(kernel, stream); }

  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange>,
              Stream stream) override {
    const hip::Function function = function_of(kernel, stream);
    const CurrentDevice current(runtime_, index_);
    size_t bytes = arguments.size();
    // Exactly the parameter struct: the runtime appends what hidden arguments a kernel has.
    void* extra[] = {hip::kLaunchParamBufferPointer, const_cast<std::byte*>(arguments.data()),
                     hip::kLaunchParamBufferSize, &bytes, hip::kLaunchParamEnd};
    const auto& [x, y, z] = dims.workgroups;
    const auto& [size_x, size_y, size_z] = dims.workgroup_size;
    check(api_.module_launch_kernel(function, x, y, z, size_x, size_y, size_z, 0, stream, nullptr,
                                    extra),
          "hipModuleLaunchKernel", kernel.name);
  }

  void memset(void* data, int value, size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    const CurrentDevice current(runtime_, index_);
    check(api_.memset_async(data, value, bytes, stream),
          "hipMemsetAsync of " + std::to_string(bytes) + " bytes");
  }

  void synchronize(Stream stream) override {
    const CurrentDevice current(runtime_, index_);
    check(api_.stream_synchronize(stream), "hipStreamSynchronize");
  }

  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    const CurrentDevice current(runtime_, index_);
    check(api_.memcpy_async(to, from, bytes, hip::CopyKind::by_address, stream),
          "hipMemcpyAsync of " + std::to_string(bytes) + " bytes");
    check(api_.stream_synchronize(stream), "hipStreamSynchronize after hipMemcpyAsync");
  }

  void* allocate(size_t bytes) override {
    const CurrentDevice current(runtime_, index_);
    void* data = nullptr;
    check(api_.malloc(&data, bytes), "hipMalloc of " + std::to_string(bytes) + " bytes");
    return data;
  }

  void free(void* data) override {
    const CurrentDevice current(runtime_, index_);
    check(api_.free(data), "hipFree");
  }

  Event record(Stream stream) override {
    const CurrentDevice current(runtime_, index_);
    hip::Event handle = nullptr;
    check(api_.event_create(&handle), "hipEventCreate");
    Event event(handle, [this](hip::Event owned) {
      if (api_.event_destroy(owned) != Status::success) api_.get_last_error();
    });
    check(api_.event_record(handle, stream), "hipEventRecord");
    return event;
  }

  float milliseconds(const Event& begin, const Event& end) override {
    const CurrentDevice current(runtime_, index_);
    check(api_.event_synchronize(end.get()), "hipEventSynchronize");
    float elapsed = 0;
    check(api_.event_elapsed_time(&elapsed, begin.get(), end.get()), "hipEventElapsedTime");
    return elapsed;
  }

 private:
  void check(Status status, const std::string& call, const char* kernel = nullptr) const {
    if (status == Status::success) return;
    runtime_.check(
        status, call + (kernel == nullptr ? "" : " of " + std::string(kernel)) + " on " + name());
  }

  hip::Function function_of(const KernelBinary& kernel, Stream stream) {
    const std::lock_guard lock(loading_);
    // Embedded objects never move or change, so an address is an identity.
    hip::Function& function = functions_[kernel.object.data()];
    if (function == nullptr) function = load_function(kernel, stream);
    return function;
  }

  hip::Function load_function(const KernelBinary& kernel, Stream stream) const {
    const CurrentDevice current(runtime_, index_);
    refuse_capture(kernel, stream);
    hip::Module module = nullptr;
    const Status status = api_.module_load_data(&module, kernel.object.data());
    // Another stream of the process may be the one that is captured.
    if (captures(status)) fail_in_capture(kernel, status);
    check(status, "hipModuleLoadData", kernel.name);
    hip::Function function = nullptr;
    const Status lookup = api_.module_get_function(&function, module, kernel.name);
    if (lookup != Status::success) api_.module_unload(module);
    check(lookup, "hipModuleGetFunction", kernel.name);
    return function;  // its module stays loaded: the runtime may be gone before our destructors run
  }

  static bool captures(Status status) {
    return status == Status::stream_capture_unsupported ||
           status == Status::stream_capture_implicit;
  }

  // Asked first: the load itself would invalidate the caller's capture.
  void refuse_capture(const KernelBinary& kernel, Stream stream) const {
    hip::CaptureStatus capture = hip::CaptureStatus::none;
    const Status status = api_.stream_is_capturing(stream, &capture);
    if (captures(status)) fail_in_capture(kernel, status);
    check(status, "hipStreamIsCapturing");
    if (capture != hip::CaptureStatus::none) fail_in_capture(kernel, Status::success);
  }

  [[noreturn]] void fail_in_capture(const KernelBinary& kernel, Status status) const {
    api_.get_last_error();
    throw Error("kernel " + std::string(kernel.name) + " is not loaded on " + name() +
                " yet, and cannot be while a stream is captured into a graph" +
                (status == Status::success ? "" : " (" + runtime_.describe(status) + ")") +
                ": call mha_sink.warmup(device), or run once, before the capture");
  }

  const Runtime& runtime_;
  const hip::Api& api_;
  const int index_;
  std::string product_;
  std::mutex loading_;
  std::map<const uint8_t*, hip::Function> functions_;
};

// One a GPU, for the life of the process: destructors would meet a runtime that is gone.
std::vector<std::unique_ptr<RocmDevice>>& devices() {
  static auto& all = *new std::vector<std::unique_ptr<RocmDevice>>([] {
    std::vector<std::unique_ptr<RocmDevice>> created;
    const Runtime& runtime = hip::runtime();
    for (int index = 0; index < runtime.device_count; ++index) {
      created.push_back(std::make_unique<RocmDevice>(runtime, index));
    }
    return created;
  }());
  return all;
}

}  // namespace

Device& rocm_device(int index) {
  const auto& all = devices();
  if (index < 0 || static_cast<size_t>(index) >= all.size()) {
    throw Error("no ROCm device: index " + std::to_string(index) + " given, the HIP runtime has " +
                std::to_string(all.size()) + ", from 0");
  }
  return *all[static_cast<size_t>(index)];
}

Device& device_of(const void* data) {
  const Runtime* runtime = hip::loaded_runtime();
  if (runtime == nullptr || data == nullptr) return emulated_device();
  void* address = const_cast<void*>(data);
  auto type = hip::MemoryType{};
  int index = 0;
  const hip::Api& api = runtime->api;
  // Memory that HIP does not know is an error of the call, and the host's.
  if (api.pointer_get_attribute(&type, hip::PointerAttribute::memory_type, address) !=
          Status::success ||
      api.pointer_get_attribute(&index, hip::PointerAttribute::device_ordinal, address) !=
          Status::success) {
    api.get_last_error();
    return emulated_device();
  }
  const bool on_gpu = type == hip::MemoryType::device || type == hip::MemoryType::managed;
  return on_gpu ? rocm_device(index) : emulated_device();
}

}  // namespace mha_sink
