// The one block of scratch memory that a call asks its caller for, cut into aligned regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

namespace mha_sink {

struct Region {
  int64_t offset = 0, bytes = 0;

  int64_t end() const { return offset + bytes; }
};

// Regions one after another. Throws Unsupported, naming `sizes`, when the block would exceed the
// address space.
class RegionPlanner {
 public:
  explicit RegionPlanner(const char* sizes) : sizes_(sizes) {}

  Region cut(std::initializer_list<int64_t> shape, int64_t element_bytes);
  Region fp32(std::initializer_list<int64_t> shape) { return cut(shape, 4); }
  Region int32(std::initializer_list<int64_t> shape) { return cut(shape, 4); }

  int64_t end() const { return end_; }

 private:
  [[noreturn]] void too_large() const;

  const char* sizes_;
  int64_t end_ = 0;
};

using WorkspaceAlloc = std::function<void*(size_t bytes, bool zero_init)>;

// What workspace_alloc returns for so many bytes, checked; null for 0, without a call.
std::byte* allocate_workspace(const WorkspaceAlloc& workspace_alloc, size_t bytes);

}  // namespace mha_sink
