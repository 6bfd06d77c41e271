// A HIP runtime whose devices are the emulator. It refuses what HIP refuses, and more strictly:
// work is only done when something waits for it, a stream serves its own device, and a capture
// forbids waiting, allocating, loading, copies that touch the host, and the default stream.
#include "fake_hip.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "state.h"

using namespace fake_hip;

namespace {

thread_local hipError_t last_error = hipSuccess;

// Counts the call, fails it when a test asked for that, and turns Refused into its status.
template <class Body>
hipError_t call(const char* function, Body&& body) {
  const std::lock_guard lock(state().mutex);
  hipError_t status = hipSuccess;
  const int nth = ++state().calls[function];
  auto& failures = state().failures[function];
  if (const auto failure = failures.find(nth); failure != failures.end()) {
    status = failure->second;
    failures.erase(failure);
  } else {
    try {
      body();
    } catch (const Refused& refused) {
      status = refused.status;
      state().message = std::string(function) + ": " + refused.what();
    }
  }
  if (status != hipSuccess) last_error = status;
  return status;
}

template <class T>
T* known(std::set<T*>& all, void* handle, const char* what) {
  auto* object = static_cast<T*>(handle);
  if (!all.contains(object)) {
    throw Refused(hipErrorInvalidHandle, std::string("no such ") + what);
  }
  return object;
}

void check_device(int device) {
  if (device < 0 || device >= state().device_count) {
    throw Refused(hipErrorInvalidDevice, "no device " + std::to_string(device));
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct ErrorText {
  hipError_t status;
  const char *name, *text;
};

#define FAKE_HIP_ERROR(status, text) {status, #status, text}
constexpr ErrorText kErrors[] = {
    FAKE_HIP_ERROR(hipSuccess, "no error"),
    FAKE_HIP_ERROR(hipErrorInvalidValue, "invalid argument"),
    FAKE_HIP_ERROR(hipErrorOutOfMemory, "out of memory"),
    FAKE_HIP_ERROR(hipErrorNoDevice, "no ROCm-capable device is detected"),
    FAKE_HIP_ERROR(hipErrorInvalidDevice, "invalid device ordinal"),
    FAKE_HIP_ERROR(hipErrorInvalidImage, "device kernel image is invalid"),
    FAKE_HIP_ERROR(hipErrorNoBinaryForGpu,
                   "no kernel image is available for execution on the device"),
    FAKE_HIP_ERROR(hipErrorInvalidHandle, "invalid resource handle"),
    FAKE_HIP_ERROR(hipErrorNotFound, "named symbol not found"),
    FAKE_HIP_ERROR(hipErrorNotReady, "device not ready"),
    FAKE_HIP_ERROR(hipErrorContextIsDestroyed, "context is destroyed"),
    FAKE_HIP_ERROR(hipErrorLaunchFailure, "unspecified launch failure"),
    FAKE_HIP_ERROR(hipErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
    FAKE_HIP_ERROR(hipErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    FAKE_HIP_ERROR(hipErrorStreamCaptureImplicit,
                   "operation would make the legacy stream depend on a capturing blocking stream"),
    FAKE_HIP_ERROR(hipErrorCapturedEvent,
                   "operation not permitted on an event last recorded in a "
                   "capturing stream"),
};

const ErrorText& error_text(hipError_t status) {
  static constexpr ErrorText kUnknown = {hipErrorUnknown, "hipErrorUnknown", "unknown error"};
  for (const ErrorText& error : kErrors) {
    if (error.status == status) return error;
  }
  return kUnknown;
}

}  // namespace

extern "C" {

void fake_hip_set_device_count(int count) { state().device_count = count; }

void fake_hip_own(const void* data, size_t bytes, int device) {
  const std::lock_guard lock(state().mutex);
  state().memory[reinterpret_cast<uintptr_t>(data)] = {bytes, device, 0};
}

void fake_hip_disown(const void* data) {
  const std::lock_guard lock(state().mutex);
  state().memory.erase(reinterpret_cast<uintptr_t>(data));
}

void fake_hip_fail(const char* function, int nth, int status) {
  const std::lock_guard lock(state().mutex);
  state().failures[function][state().calls[function] + nth] = static_cast<hipError_t>(status);
}

void fake_hip_patch(const char* kernel, uint32_t offset, const uint32_t* words, size_t count) {
  const std::lock_guard lock(state().mutex);
  state().patches.push_back({kernel, offset, {words, words + count}});
}

int fake_hip_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}

int fake_hip_pending(void* handle) {
  const std::lock_guard lock(state().mutex);
  auto* stream = static_cast<Stream*>(handle);
  if (stream == nullptr) stream = &state().default_streams[current_device()];
  return static_cast<int>(stream->pending.size());
}

const char* fake_hip_message() { return state().message.c_str(); }

// Devices

hipError_t hipGetDeviceCount(int* count) {
  return call("hipGetDeviceCount", [&] {
    *count = state().device_count;
    if (*count == 0) throw Refused(hipErrorNoDevice, "no devices");
  });
}

hipError_t hipGetDevice(int* device) {
  return call("hipGetDevice", [&] { *device = current_device(); });
}

hipError_t hipSetDevice(int device) {
  return call("hipSetDevice", [&] {
    check_device(device);
    current_device() = device;
  });
}

hipError_t hipDeviceGetName(char* name, int bytes, hipDevice_t device) {
  return call("hipDeviceGetName", [&] {
    check_device(device);
    std::strncpy(name, "Fake MI350X", static_cast<size_t>(bytes));
  });
}

hipError_t hipDriverGetVersion(int* version) {
  return call("hipDriverGetVersion", [&] { *version = HIP_VERSION; });
}

hipError_t hipRuntimeGetVersion(int* version) {
  return call("hipRuntimeGetVersion", [&] { *version = HIP_VERSION; });
}

hipError_t hipGetLastError() {
  const hipError_t status = last_error;
  last_error = hipSuccess;
  return status;
}

const char* hipGetErrorName(hipError_t status) { return error_text(status).name; }
const char* hipGetErrorString(hipError_t status) { return error_text(status).text; }

// Memory

hipError_t hipMalloc(void** data, size_t bytes) {
  return call("hipMalloc", [&] {
    state().refuse_in_capture("allocation");
    *data = nullptr;
    if (bytes == 0) return;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t mapped = (bytes + page - 1) / page * page;
    void* pages = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw Refused(hipErrorOutOfMemory, "mmap failed");
    state().memory[reinterpret_cast<uintptr_t>(pages)] = {bytes, current_device(), mapped};
    *data = pages;
  });
}

hipError_t hipFree(void* data) {
  return call("hipFree", [&] {
    state().refuse_in_capture("freeing");
    if (data == nullptr) return;
    const auto found = state().memory.find(reinterpret_cast<uintptr_t>(data));
    if (found == state().memory.end() || found->second.mapped == 0) {
      throw Refused(hipErrorInvalidValue, "not from hipMalloc");
    }
    // As HIP, after all work of the device.
    for (Stream* stream : state().streams) {
      if (stream->device == found->second.device) state().finish(*stream);
    }
    state().finish(state().default_streams[found->second.device]);
    munmap(data, found->second.mapped);
    state().memory.erase(found);
  });
}

hipError_t hipPointerGetAttribute(void* value, hipPointer_attribute attribute,
                                  hipDeviceptr_t data) {
  return call("hipPointerGetAttribute", [&] {
    const Allocation* allocation = state().allocation_of(data);
    if (allocation == nullptr) throw Refused(hipErrorInvalidValue, "memory that HIP does not know");
    int result = 0;
    if (attribute == HIP_POINTER_ATTRIBUTE_MEMORY_TYPE) {
      result = hipMemoryTypeDevice;
    } else if (attribute == HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      result = allocation->device;
    } else {
      throw Refused(hipErrorInvalidValue, "an attribute that nobody should need");
    }
    std::memcpy(value, &result, sizeof(result));
  });
}

hipError_t hipMemsetAsync(void* data, int value, size_t bytes, hipStream_t handle) {
  return call("hipMemsetAsync", [&] {
    Stream& stream = state().stream(handle);
    state().check_memory(data, bytes, stream.device, "the destination");
    state().enqueue(stream, [=] { std::memset(data, value, bytes); });
  });
}

hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t handle) {
  return call("hipMemcpyAsync", [&] {
    if (kind != hipMemcpyDefault) throw Refused(hipErrorInvalidValue, "a kind is given");
    Stream& stream = state().stream(handle);
    bool host = false;
    for (const void* data : {static_cast<const void*>(to), from}) {
      if (state().allocation_of(data) == nullptr) {
        host = true;
      } else {
        state().check_memory(data, bytes, stream.device, "an end of the copy");
      }
    }
    if (host) state().refuse_in_capture("a copy that touches the host");
    state().enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  });
}

// Modules

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return call("hipModuleLoadData", [&] {
    state().refuse_in_capture("loading a module");
    const std::shared_ptr<Module> loaded = load_module(image, current_device());
    state().modules[loaded.get()] = loaded;
    *module = reinterpret_cast<hipModule_t>(loaded.get());
  });
}

hipError_t hipModuleUnload(hipModule_t module) {
  return call("hipModuleUnload", [&] {
    state().refuse_in_capture("unloading a module");
    if (state().modules.erase(reinterpret_cast<Module*>(module)) == 0) {
      throw Refused(hipErrorInvalidHandle, "no such module");
    }
  });
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return call("hipModuleGetFunction", [&] {
    const auto found = state().modules.find(reinterpret_cast<Module*>(module));
    if (found == state().modules.end()) throw Refused(hipErrorInvalidHandle, "no such module");
    try {
      auto created =
          std::make_unique<Function>(Function{found->second, &found->second->object.kernel(name)});
      *function = reinterpret_cast<hipFunction_t>(created.get());
      state().functions.insert(created.release());
    } catch (const mha_sink::emulator::EmulationError& error) {
      throw Refused(hipErrorNotFound, error.what());
    }
  });
}

hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned dynamic_lds, hipStream_t stream_handle,
                                 void** parameters, void** extra) {
  return call("hipModuleLaunchKernel", [&] {
    const Function* function = known(state().functions, handle, "function");
    Stream& stream = state().stream(stream_handle);
    if (function->module->device != stream.device) {
      throw Refused(hipErrorInvalidHandle,
                    "a function of device " + std::to_string(function->module->device) +
                        " on a stream of device " + std::to_string(stream.device));
    }
    mha_sink::emulator::LaunchSpec spec;
    spec.workgroups = {grid_x, grid_y, grid_z};
    spec.workgroup_size = {block_x, block_y, block_z};
    spec.dynamic_lds_bytes = dynamic_lds;
    state().enqueue(stream, [copy = *function, spec,
                             arguments = kernel_arguments(*function, parameters, extra)]() mutable {
      spec.arguments = arguments;
      run(copy, spec);
    });
  });
}

// Streams, capture, events

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  return call("hipStreamCreateWithFlags", [&] {
    state().refuse_in_capture("creating a stream");
    auto* created = new Stream{current_device(), {}, nullptr, false};
    state().streams.insert(created);
    *stream = reinterpret_cast<hipStream_t>(created);
  });
}

hipError_t hipStreamSynchronize(hipStream_t handle) {
  return call("hipStreamSynchronize", [&] {
    state().refuse_in_capture("waiting");
    state().finish(state().stream(handle));
  });
}

hipError_t hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus* status) {
  return call("hipStreamIsCapturing", [&] {
    if (handle == nullptr && state().capturing()) {
      throw Refused(hipErrorStreamCaptureImplicit, "the default stream during a capture");
    }
    const Stream& stream = state().stream(handle);
    *status = !stream.capture       ? hipStreamCaptureStatusNone
              : !stream.invalidated ? hipStreamCaptureStatusActive
                                    : hipStreamCaptureStatusInvalidated;
  });
}

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  return call("hipStreamBeginCapture", [&] {
    if (handle == nullptr) {
      throw Refused(hipErrorStreamCaptureUnsupported, "the default stream cannot be captured");
    }
    if (mode != hipStreamCaptureModeGlobal) throw Refused(hipErrorInvalidValue, "not global");
    Stream& stream = state().stream(handle);
    stream.capture = std::make_unique<Graph>();
    stream.capture->device = stream.device;
  });
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* graph) {
  return call("hipStreamEndCapture", [&] {
    Stream& stream = state().stream(handle);
    if (!stream.capture) throw Refused(hipErrorInvalidValue, "nothing is captured");
    const std::unique_ptr<Graph> captured = std::move(stream.capture);
    *graph = nullptr;
    if (std::exchange(stream.invalidated, false)) {
      throw Refused(hipErrorStreamCaptureInvalidated, "the capture was invalidated before");
    }
    auto* kept = new Graph(*captured);
    state().graphs.insert(kept);
    *graph = reinterpret_cast<hipGraph_t>(kept);
  });
}

hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, hipGraphNode_t*, char*,
                               size_t) {
  return call("hipGraphInstantiate", [&] {
    auto* copy = new Graph(*known(state().graphs, graph, "graph"));
    state().graphs.insert(copy);
    *executable = reinterpret_cast<hipGraphExec_t>(copy);
  });
}

hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t handle) {
  return call("hipGraphLaunch", [&] {
    Stream& stream = state().stream(handle);
    for (const Work& work : known(state().graphs, executable, "graph")->work) {
      state().enqueue(stream, work);
    }
  });
}

hipError_t hipEventCreate(hipEvent_t* event) {
  return call("hipEventCreate", [&] {
    auto* created = new Event;
    state().events.insert(created);
    *event = reinterpret_cast<hipEvent_t>(created);
  });
}

hipError_t hipEventDestroy(hipEvent_t handle) {
  return call("hipEventDestroy", [&] {
    Event* event = known(state().events, handle, "event");
    if (event->stream != nullptr && event->seconds < 0 && !event->captured) {
      state().finish(*event->stream);
    }
    state().events.erase(event);
    delete event;
  });
}

hipError_t hipEventRecord(hipEvent_t handle, hipStream_t stream_handle) {
  return call("hipEventRecord", [&] {
    Event* event = known(state().events, handle, "event");
    Stream& stream = state().stream(stream_handle);
    *event = {&stream, stream.capture != nullptr, -1};
    state().enqueue(stream, [event] { event->seconds = now(); });
  });
}

hipError_t hipEventSynchronize(hipEvent_t handle) {
  return call("hipEventSynchronize", [&] {
    const Event* event = known(state().events, handle, "event");
    if (event->captured) throw Refused(hipErrorCapturedEvent, "an event of a capture");
    state().refuse_in_capture("waiting");
    if (event->stream != nullptr) state().finish(*event->stream);
  });
}

hipError_t hipEventElapsedTime(float* ms, hipEvent_t begin_handle, hipEvent_t end_handle) {
  return call("hipEventElapsedTime", [&] {
    const Event* begin = known(state().events, begin_handle, "event");
    const Event* end = known(state().events, end_handle, "event");
    if (begin->seconds < 0 || end->seconds < 0) {
      throw Refused(hipErrorNotReady, "an event that its stream has not reached");
    }
    *ms = static_cast<float>(1e3 * (end->seconds - begin->seconds));
  });
}

}  // extern "C"
