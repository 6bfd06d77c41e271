#include "device/compared.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>

#include "mha_sink/error.h"

namespace mha_sink {
namespace {

// A copy in host memory of what a device's buffer holds, as far from an aligned address.
class Shadow {
 public:
  Shadow(Device& device, const BufferRange& buffer, Stream stream)
      : buffer_(buffer),
        storage_(buffer.bytes + 2 * kAlignment),
        data_(storage_.data() + kAlignment - address(storage_.data()) % kAlignment +
              address(buffer.data) % kAlignment) {
    device.copy(data_, buffer.data, buffer.bytes, stream);
  }

  const BufferRange& buffer() const { return buffer_; }
  BufferRange range() const { return {data_, buffer_.bytes, buffer_.writable, buffer_.name}; }
  std::vector<std::byte> contents() const { return {data_, data_ + buffer_.bytes}; }

  // Replaces the buffer's address in a kernel's arguments, whose pointers are 8-byte aligned.
  void rewrite(std::span<const std::byte> arguments, std::span<std::byte> rewritten) const {
    bool found = false;
    for (size_t at = 0; at + sizeof(void*) <= arguments.size(); at += sizeof(void*)) {
      if (std::memcmp(&arguments[at], &buffer_.data, sizeof(void*)) != 0) continue;
      std::memcpy(&rewritten[at], &data_, sizeof(void*));
      found = true;
    }
    if (!found)
      throw Error("the arguments do not hold the address of " + std::string(buffer_.name));
  }

 private:
  static constexpr uintptr_t kAlignment = 256;
  static uintptr_t address(const void* data) { return reinterpret_cast<uintptr_t>(data); }

  BufferRange buffer_;
  std::vector<std::byte> storage_;
  std::byte* data_;
};

void check_disjoint(std::vector<BufferRange> buffers) {
  std::ranges::sort(buffers, std::less<>(), &BufferRange::data);
  for (size_t i = 1; i < buffers.size(); ++i) {
    const BufferRange &low = buffers[i - 1], &high = buffers[i];
    if (static_cast<const std::byte*>(low.data) + low.bytes > high.data) {
      throw Error("buffers " + std::string(low.name) + " and " + high.name +
                  " overlap; comparing needs separate ones");
    }
  }
}

}  // namespace

void ComparedDevice::launch(const KernelBinary& kernel, const LaunchDims& dims,
                            std::span<const std::byte> arguments,
                            std::span<const BufferRange> buffers, Stream stream) {
  std::vector<BufferRange> used;
  std::ranges::copy_if(buffers, std::back_inserter(used),
                       [](const BufferRange& buffer) { return buffer.bytes > 0; });
  check_disjoint(used);
  std::vector<Shadow> shadows;
  std::vector<BufferRange> ranges;
  std::vector<std::byte> rewritten(arguments.begin(), arguments.end());
  shadows.reserve(used.size());
  for (const BufferRange& buffer : used) {
    const Shadow& shadow = shadows.emplace_back(target_, buffer, stream);
    shadow.rewrite(arguments, rewritten);
    ranges.push_back(shadow.range());
  }
  emulated_device().launch(kernel, dims, rewritten, ranges, nullptr);

  observer_.starting(kernel.name);
  target_.launch(kernel, dims, arguments, buffers, stream);
  std::vector<ComparedBuffer> results;
  for (const Shadow& shadow : shadows) {
    const BufferRange& buffer = shadow.buffer();
    ComparedBuffer& result =
        results.emplace_back(ComparedBuffer{buffer.name, buffer.writable, {}, shadow.contents()});
    result.device.resize(buffer.bytes);
    target_.copy(result.device.data(), buffer.data, buffer.bytes, stream);
  }
  observer_.compared(kernel.name, dims, results);
}

void ComparedDevice::memset(void* data, int value, size_t bytes, Stream stream) {
  observer_.starting("memset");
  target_.memset(data, value, bytes, stream);
  ComparedBuffer result{"memory", true, std::vector<std::byte>(bytes),
                        std::vector<std::byte>(bytes, static_cast<std::byte>(value))};
  target_.copy(result.device.data(), data, bytes, stream);
  observer_.compared("memset", {}, {&result, 1});
}

}  // namespace mha_sink
