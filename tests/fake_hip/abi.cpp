// Nothing to run: csrc/device/rocm_api.h against HIP's own headers.
#include <type_traits>

#include "device/rocm_api.h"

#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1  // overloads by templates
#include <hip/hip_runtime_api.h>

namespace mha_sink::hip {
namespace {

// What a type is to the caller of a C function: an enum is an int, a pointer to a number, an enum
// or a pointer keeps what it points to, any other pointer is an address.
template <class T>
struct Abi {
  using type = T;
};

template <class T>
  requires std::is_enum_v<T>
struct Abi<T> {
  static_assert(sizeof(T) == sizeof(int));
  using type = int;
};

template <class T>
struct Abi<T*> {
  using type = void*;
};

template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>
struct Abi<T*> {
  using type = typename Abi<T>::type*;
};

template <class Result, class... Arguments>
struct Abi<Result(Arguments...)> {
  using type = typename Abi<Result>::type(typename Abi<Arguments>::type...);
};

#define SAME_FUNCTION(member, symbol, ...)                                             \
  static_assert(std::is_same_v<Abi<__VA_ARGS__>::type, Abi<decltype(::symbol)>::type>, \
                #symbol " is declared otherwise by HIP");
MHA_SINK_HIP_FUNCTIONS(SAME_FUNCTION)

#define SAME_VALUE(ours, theirs)                                                                \
  static_assert(                                                                                \
      static_cast<int>(ours) == static_cast<int>(::theirs) && sizeof(ours) == sizeof(::theirs), \
      #theirs " has another value in HIP");
SAME_VALUE(Status::success, hipSuccess)
SAME_VALUE(Status::no_device, hipErrorNoDevice)
SAME_VALUE(Status::no_binary_for_gpu, hipErrorNoBinaryForGpu)
SAME_VALUE(Status::stream_capture_unsupported, hipErrorStreamCaptureUnsupported)
SAME_VALUE(Status::stream_capture_implicit, hipErrorStreamCaptureImplicit)
SAME_VALUE(CaptureStatus::none, hipStreamCaptureStatusNone)
SAME_VALUE(CaptureStatus::active, hipStreamCaptureStatusActive)
SAME_VALUE(CaptureStatus::invalidated, hipStreamCaptureStatusInvalidated)
SAME_VALUE(CopyKind::by_address, hipMemcpyDefault)
SAME_VALUE(PointerAttribute::memory_type, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE)
SAME_VALUE(PointerAttribute::device_ordinal, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
SAME_VALUE(MemoryType::device, hipMemoryTypeDevice)
SAME_VALUE(MemoryType::managed, hipMemoryTypeManaged)
// The three launch parameters are pointers, which no constant expression compares: fake_hip.cpp
// does at each launch.

}  // namespace
}  // namespace mha_sink::hip
