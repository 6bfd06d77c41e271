#include "emulator/kernarg.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace mha_sink::emulator {
namespace {

constexpr size_t kAlignment = 64;
// A wave has at most 16 user SGPRs on gfx9.
constexpr size_t kMaxUserSgprs = 16;
constexpr size_t kPacketBytes = 64, kQueueBytes = 512;

size_t align(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

bool hidden(const KernelArgument& argument) { return argument.value_kind.starts_with("hidden_"); }

[[noreturn]] void fail(const Kernel& kernel, const std::string& message) {
  throw EmulationError("kernel " + kernel.name + ": " + message);
}

uint32_t grid_dimensions(const LaunchSpec& spec) {
  for (uint32_t axis = 2; axis > 0; --axis) {
    if (spec.workgroups[axis] * spec.workgroup_size[axis] > 1) return axis + 1;
  }
  return 1;
}

// The explicit arguments of a kernel end at `least`; padding up to `most` is what a by-value struct
// or a runtime's slot may add.
void check_size(const Kernel& kernel, size_t given) {
  size_t least = 0, most = kernel.kernarg_bytes;
  if (kernel.arguments.empty()) {
    least = kernel.kernarg_bytes;
  }
  for (const KernelArgument& argument : kernel.arguments) {
    if (size_t{argument.offset} + argument.size > kernel.kernarg_bytes) {
      fail(kernel, "argument " + argument.name + " ends beyond the kernarg segment of " +
                       std::to_string(kernel.kernarg_bytes) + " bytes");
    }
    if (hidden(argument)) {
      most = std::min<size_t>(most, argument.offset);
    } else {
      least = std::max<size_t>(least, argument.offset + argument.size);
    }
  }
  if (given < least || given > std::max(least, most)) {
    fail(kernel, "arguments of " + std::to_string(given) + " bytes given, " +
                     std::to_string(least) +
                     (most > least ? " to " + std::to_string(most) : std::string()) + " needed");
  }
}

uint64_t hidden_value(const Kernel& kernel, const LaunchSpec& spec, std::string_view kind) {
  static constexpr std::string_view kZero[] = {
      // Whole workgroups only, at offset 0; and no printf, hostcall, heap, enqueue, aperture.
      "hidden_remainder_x",        "hidden_remainder_y",
      "hidden_remainder_z",        "hidden_global_offset_x",
      "hidden_global_offset_y",    "hidden_global_offset_z",
      "hidden_printf_buffer",      "hidden_hostcall_buffer",
      "hidden_multigrid_sync_arg", "hidden_heap_v1",
      "hidden_default_queue",      "hidden_completion_action",
      "hidden_private_base",       "hidden_shared_base",
      "hidden_queue_ptr",          "hidden_none",
  };
  if (kind == "hidden_grid_dims") return grid_dimensions(spec);
  if (kind == "hidden_dynamic_lds_size") return spec.dynamic_lds_bytes;
  for (int axis = 0; axis < 3; ++axis) {
    const char suffix = static_cast<char>('x' + axis);
    if (kind.empty() || kind.back() != suffix) continue;
    const std::string_view stem = kind.substr(0, kind.size() - 1);
    if (stem == "hidden_block_count_") return spec.workgroups[axis];
    if (stem == "hidden_group_size_") return spec.workgroup_size[axis];
  }
  if (std::find(std::begin(kZero), std::end(kZero), kind) == std::end(kZero)) {
    fail(kernel, "unknown kind of hidden argument " + std::string(kind));
  }
  return 0;
}

template <typename T>
void append(std::vector<uint32_t>& sgprs, T value) {
  const uint64_t wide = value;
  for (size_t i = 0; i < sizeof(T) / 4; ++i) sgprs.push_back(static_cast<uint32_t>(wide >> 32 * i));
}

}  // namespace

KernargSegment::KernargSegment(const Kernel& kernel, const LaunchSpec& spec) {
  check_size(kernel, spec.arguments.size());
  const size_t used = std::max<size_t>(kernel.kernarg_bytes, spec.arguments.size());
  bytes_ = std::max(align(used, kAlignment), kAlignment);
  storage_.resize(bytes_ + kAlignment);
  data_ = storage_.data() + align(reinterpret_cast<uintptr_t>(storage_.data()), kAlignment) -
          reinterpret_cast<uintptr_t>(storage_.data());
  for (size_t i = 0; i < bytes_; i += sizeof(kPoison)) {
    std::memcpy(data_ + i, &kPoison, sizeof(kPoison));
  }
  if (!spec.arguments.empty()) {
    std::memcpy(data_, spec.arguments.data(), spec.arguments.size());
  }
  for (const KernelArgument& argument : kernel.arguments) {
    if (!hidden(argument)) continue;
    const uint64_t value = hidden_value(kernel, spec, argument.value_kind);
    std::memset(data_ + argument.offset, 0, argument.size);
    std::memcpy(data_ + argument.offset, &value, std::min<size_t>(argument.size, sizeof(value)));
  }
}

MemoryRange KernargSegment::range() const {
  return {reinterpret_cast<uintptr_t>(data_), bytes_, false, "the kernel arguments"};
}

uint32_t KernargSegment::dword(size_t index) const {
  uint32_t value = kPoison;
  if ((index + 1) * sizeof(value) <= bytes_) {
    std::memcpy(&value, data_ + index * sizeof(value), sizeof(value));
  }
  return value;
}

DispatchPacket::DispatchPacket(const Kernel& kernel, const LaunchSpec& spec,
                               const KernargSegment& kernarg)
    : storage_((kPacketBytes + kQueueBytes) / sizeof(uint64_t)) {
  struct {
    uint16_t header, setup, workgroup_size[3], reserved0;
    uint32_t grid_size[3], private_segment_bytes, group_segment_bytes;
    uint64_t kernel_object, kernarg_address, reserved2, completion_signal;
  } packet = {};
  static_assert(sizeof(packet) == kPacketBytes);
  packet.setup = static_cast<uint16_t>(grid_dimensions(spec));
  for (int axis = 0; axis < 3; ++axis) {
    packet.workgroup_size[axis] = static_cast<uint16_t>(spec.workgroup_size[axis]);
    packet.grid_size[axis] = spec.workgroups[axis] * spec.workgroup_size[axis];
  }
  packet.private_segment_bytes = kernel.scratch_bytes;
  packet.group_segment_bytes = kernel.lds_bytes + spec.dynamic_lds_bytes;
  packet.kernarg_address = reinterpret_cast<uintptr_t>(kernarg.data());
  std::memcpy(storage_.data(), &packet, sizeof(packet));
}

MemoryRange DispatchPacket::range() const {
  return {dispatch_address(), kPacketBytes + kQueueBytes, false, "the dispatch packet"};
}

uint64_t DispatchPacket::dispatch_address() const {
  return reinterpret_cast<uintptr_t>(storage_.data());
}

uint64_t DispatchPacket::queue_address() const { return dispatch_address() + kPacketBytes; }

std::vector<uint32_t> user_sgprs(const Kernel& kernel, const KernargSegment& kernarg,
                                 const DispatchPacket& packet) {
  const auto has = [&](int bit) { return (kernel.properties >> bit & 1) != 0; };
  if (has(0)) fail(kernel, "asks for a private segment buffer, which gfx950 does not have");
  if (has(5)) fail(kernel, "asks for a flat scratch register, which gfx950 sets up itself");
  if (has(10)) fail(kernel, "is compiled for wave32; gfx950 runs wave64");
  if (has(11)) fail(kernel, "needs a dynamically sized stack");
  if (kernel.rsrc2 >> 10 & 1) fail(kernel, "asks for the workgroup information register");

  std::vector<uint32_t> sgprs;
  if (has(1)) append(sgprs, packet.dispatch_address());
  if (has(2)) append(sgprs, packet.queue_address());
  if (has(3)) append<uint64_t>(sgprs, reinterpret_cast<uintptr_t>(kernarg.data()));
  if (has(4)) append(sgprs, uint64_t{0});
  if (has(6)) append(sgprs, kernel.scratch_bytes);
  for (size_t i = 0; i < kernel.kernarg_preload_dwords; ++i) {
    append(sgprs, kernarg.dword(kernel.kernarg_preload_offset + i));
  }
  const size_t declared = kernel.rsrc2 >> 1 & 0x1f;
  if (sgprs.size() > declared || declared > kMaxUserSgprs) {
    fail(kernel, "descriptor declares " + std::to_string(declared) +
                     " user SGPRs, but its properties need " + std::to_string(sgprs.size()) +
                     " of at most " + std::to_string(kMaxUserSgprs));
  }
  sgprs.resize(declared, kPoison);
  return sgprs;
}

}  // namespace mha_sink::emulator
