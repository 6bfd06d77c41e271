#include "state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace fake_hip {

using mha_sink::emulator::Kernel;
using mha_sink::emulator::KernelArgument;
using mha_sink::emulator::MemoryRange;

State& state() {
  static State& state = *new State;  // outlives whoever calls while the process ends
  return state;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

namespace {

void protect(int protection) {
  for (const auto& [begin, allocation] : state().memory) {
    if (allocation.mapped == 0) continue;
    if (mprotect(reinterpret_cast<void*>(begin), allocation.mapped, protection) != 0) {
      throw std::runtime_error("mprotect failed");
    }
  }
}

}  // namespace

DeviceAtWork::DeviceAtWork() { protect(PROT_READ | PROT_WRITE); }
DeviceAtWork::~DeviceAtWork() { protect(PROT_NONE); }

const Allocation* State::allocation_of(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto next = memory.upper_bound(address);
  if (next == memory.begin()) return nullptr;
  const auto& [begin, allocation] = *--next;
  return address < begin + allocation.bytes ? &allocation : nullptr;
}

void State::check_memory(const void* data, size_t bytes, int device, const char* what) const {
  const Allocation* allocation = allocation_of(data);
  const auto* last = static_cast<const char*>(data) + (bytes == 0 ? 0 : bytes - 1);
  if (allocation == nullptr || allocation->device != device || allocation_of(last) != allocation) {
    throw Refused(hipErrorInvalidValue,
                  std::string(what) + " is not memory of device " + std::to_string(device));
  }
}

Stream& State::stream(hipStream_t handle) {
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (stream == nullptr) {
    if (capturing()) {
      for (Stream* other : streams) other->invalidated |= other->capture != nullptr;
      throw Refused(hipErrorStreamCaptureImplicit, "the default stream is used during a capture");
    }
    Stream& own = default_streams[current_device()];
    own.device = current_device();
    return own;
  }
  if (!streams.contains(stream)) throw Refused(hipErrorContextIsDestroyed, "no such stream");
  if (stream->device != current_device()) {
    throw Refused(hipErrorInvalidResourceHandle,
                  "a stream of device " + std::to_string(stream->device) +
                      " is used while device " + std::to_string(current_device()) + " is current");
  }
  return *stream;
}

bool State::capturing() const {
  return std::ranges::any_of(streams, [](const Stream* s) { return s->capture != nullptr; });
}

void State::refuse_in_capture(const char* what) {
  if (!capturing()) return;
  for (Stream* stream : streams) stream->invalidated |= stream->capture != nullptr;
  throw Refused(hipErrorStreamCaptureUnsupported, std::string(what) + " during a capture");
}

void State::enqueue(Stream& stream, Work work) {
  if (stream.invalidated) {
    throw Refused(hipErrorStreamCaptureInvalidated, "the capture was invalidated before");
  }
  if (stream.capture) {
    stream.capture->work.push_back(std::move(work));
  } else {
    stream.pending.push_back(std::move(work));
  }
}

void State::finish(Stream& stream) {
  const DeviceAtWork working;
  while (!stream.pending.empty() && !broken.contains(stream.device)) {
    const Work work = std::move(stream.pending.front());
    stream.pending.pop_front();
    try {
      work();
    } catch (const std::exception& error) {
      broken[stream.device] = hipErrorLaunchFailure;
      message = error.what();
    }
  }
  if (broken.contains(stream.device)) throw Refused(broken[stream.device], message);
}

namespace {

template <class T>
T at(const void* image, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(image) + offset, sizeof(value));
  return value;
}

// hipModuleLoadData gets no size: an ELF file ends with its section headers or its last section.
std::vector<uint8_t> whole_elf(const void* image) {
  if (std::memcmp(image, "\177ELF\2\1", 6) != 0) {
    throw Refused(hipErrorInvalidImage, "the image is no 64-bit ELF file");
  }
  const auto table = at<uint64_t>(image, 40);
  const auto entry = at<uint16_t>(image, 58), count = at<uint16_t>(image, 60);
  uint64_t end = table + uint64_t{entry} * count;
  for (uint16_t i = 0; i < count; ++i) {
    const uint64_t header = table + uint64_t{entry} * i;
    constexpr uint32_t kNoBits = 8;
    if (at<uint32_t>(image, header + 4) == kNoBits) continue;
    end = std::max(end, at<uint64_t>(image, header + 24) + at<uint64_t>(image, header + 32));
  }
  const auto* bytes = static_cast<const uint8_t*>(image);
  return {bytes, bytes + end};
}

// A kernel's own symbol is its first instruction.
void apply(const Patch& patch, std::vector<uint8_t>& elf) {
  const uint8_t* image = elf.data();
  const auto table = at<uint64_t>(image, 40);
  const auto entry = at<uint16_t>(image, 58), count = at<uint16_t>(image, 60);
  const auto header = [&](uint64_t i) { return table + uint64_t{entry} * i; };
  for (uint16_t i = 0; i < count; ++i) {
    constexpr uint32_t kSymbolTable = 2;
    if (at<uint32_t>(image, header(i) + 4) != kSymbolTable) continue;
    const auto symbols = at<uint64_t>(image, header(i) + 24);
    const auto bytes = at<uint64_t>(image, header(i) + 32);
    const auto strings = at<uint64_t>(image, header(at<uint32_t>(image, header(i) + 40)) + 24);
    for (uint64_t at_symbol = symbols; at_symbol < symbols + bytes; at_symbol += 24) {
      const char* name =
          reinterpret_cast<const char*>(image) + strings + at<uint32_t>(image, at_symbol);
      if (patch.kernel != name) continue;
      const uint64_t section = header(at<uint16_t>(image, at_symbol + 6));
      const uint64_t code = at<uint64_t>(image, at_symbol + 8) - at<uint64_t>(image, section + 16) +
                            at<uint64_t>(image, section + 24) + patch.offset;
      std::memcpy(elf.data() + code, patch.words.data(), patch.words.size() * sizeof(uint32_t));
      return;
    }
  }
}

}  // namespace

std::shared_ptr<Module> load_module(const void* image, int device) {
  std::vector<uint8_t> elf = whole_elf(image);
  for (const Patch& patch : state().patches) apply(patch, elf);
  try {
    // The object refers to the bytes, which a moved vector keeps in place.
    mha_sink::emulator::CodeObject object(elf, "module");
    return std::make_shared<Module>(Module{device, std::move(elf), std::move(object)});
  } catch (const std::exception& error) {
    throw Refused(hipErrorInvalidImage, error.what());
  }
}

std::vector<std::byte> kernel_arguments(const Function& function, void** parameters, void** extra) {
  const auto refuse = [&](const std::string& why) -> Refused {
    return {hipErrorInvalidValue, "launch of " + function.kernel->name + ": " + why};
  };
  if (parameters != nullptr || extra == nullptr) throw refuse("arguments not in a buffer");
  if (extra[0] != HIP_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != HIP_LAUNCH_PARAM_BUFFER_SIZE ||
      extra[4] != HIP_LAUNCH_PARAM_END) {
    throw refuse("extra is not buffer pointer, buffer size, end");
  }
  const size_t given = *static_cast<const size_t*>(extra[3]);
  // The hidden arguments, which the runtime fills, lie behind.
  size_t explicit_end = 0;
  for (const KernelArgument& argument : function.kernel->arguments) {
    if (argument.value_kind.starts_with("hidden_")) continue;
    explicit_end = std::max<size_t>(explicit_end, argument.offset + argument.size);
  }
  if (given != explicit_end) {
    throw refuse("a buffer of " + std::to_string(given) +
                 " bytes; the metadata's arguments end at " + std::to_string(explicit_end));
  }
  const auto* bytes = static_cast<const std::byte*>(extra[1]);
  return {bytes, bytes + given};
}

void run(const Function& function, mha_sink::emulator::LaunchSpec spec) {
  std::vector<MemoryRange> memory;
  for (const auto& [begin, allocation] : state().memory) {
    if (allocation.device == function.module->device) {
      memory.push_back({begin, allocation.bytes, true, "device memory"});
    }
  }
  spec.memory = memory;
  spec.schedule = mha_sink::emulator::default_schedule();
  mha_sink::emulator::launch(function.module->object, *function.kernel, spec);
}

}  // namespace fake_hip
