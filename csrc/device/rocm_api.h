// The part of the HIP runtime that this library calls, declared here so that building needs no ROCm
// and one build serves every release. Names are HIP's without their prefix; handles are opaque. No
// struct crosses: the layout of hipDeviceProp_t and of the pointer attributes changed between
// releases. tests/fake_hip compares all of this with HIP's own headers.
#pragma once

#include <cstddef>
#include <type_traits>

namespace mha_sink::hip {

enum class Status : int {
  success = 0,
  no_device = 100,
  no_binary_for_gpu = 209,
  stream_capture_unsupported = 900,
  stream_capture_implicit = 906,
};

enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
enum class CopyKind : int { by_address = 4 };
enum class PointerAttribute : int { memory_type = 2, device_ordinal = 9 };
enum class MemoryType : int { device = 2, managed = 3 };

using Stream = void*;
using Module = void*;
using Function = void*;
using Event = void*;

// The end of a launch's `extra` list, and what its elements are.
inline void* const kLaunchParamBufferPointer = reinterpret_cast<void*>(1);
inline void* const kLaunchParamBufferSize = reinterpret_cast<void*>(2);
inline void* const kLaunchParamEnd = reinterpret_cast<void*>(3);

// X(member of Api, HIP's function, its type)
#define MHA_SINK_HIP_FUNCTIONS(X)                                                                  \
  X(get_device_count, hipGetDeviceCount, Status(int* count))                                       \
  X(get_device, hipGetDevice, Status(int* device))                                                 \
  X(set_device, hipSetDevice, Status(int device))                                                  \
  X(device_get_name, hipDeviceGetName, Status(char* name, int bytes, int device))                  \
  X(driver_get_version, hipDriverGetVersion, Status(int* version))                                 \
  X(runtime_get_version, hipRuntimeGetVersion, Status(int* version))                               \
  X(get_last_error, hipGetLastError, Status())                                                     \
  X(get_error_name, hipGetErrorName, const char*(Status status))                                   \
  X(get_error_string, hipGetErrorString, const char*(Status status))                               \
  X(module_load_data, hipModuleLoadData, Status(Module* module, const void* image))                \
  X(module_unload, hipModuleUnload, Status(Module module))                                         \
  X(module_get_function, hipModuleGetFunction,                                                     \
    Status(Function* function, Module module, const char* name))                                   \
  X(module_launch_kernel, hipModuleLaunchKernel,                                                   \
    Status(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
           unsigned block_y, unsigned block_z, unsigned dynamic_lds, Stream stream,                \
           void** parameters, void** extra))                                                       \
  X(memset_async, hipMemsetAsync, Status(void* data, int value, size_t bytes, Stream stream))      \
  X(memcpy_async, hipMemcpyAsync,                                                                  \
    Status(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream))                \
  X(malloc, hipMalloc, Status(void** data, size_t bytes))                                          \
  X(free, hipFree, Status(void* data))                                                             \
  X(pointer_get_attribute, hipPointerGetAttribute,                                                 \
    Status(void* value, PointerAttribute attribute, void* data))                                   \
  X(stream_synchronize, hipStreamSynchronize, Status(Stream stream))                               \
  X(stream_is_capturing, hipStreamIsCapturing, Status(Stream stream, CaptureStatus* status))       \
  X(event_create, hipEventCreate, Status(Event* event))                                            \
  X(event_record, hipEventRecord, Status(Event event, Stream stream))                              \
  X(event_synchronize, hipEventSynchronize, Status(Event event))                                   \
  X(event_elapsed_time, hipEventElapsedTime, Status(float* ms, Event begin, Event end))            \
  X(event_destroy, hipEventDestroy, Status(Event event))

struct Api {
#define MHA_SINK_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
  MHA_SINK_HIP_FUNCTIONS(MHA_SINK_MEMBER)
#undef MHA_SINK_MEMBER
};

}  // namespace mha_sink::hip
