#include "host/scratch.h"

#include <string>

#include "host/checks.h"

namespace mha_sink {
namespace {

// Two cache lines of gfx950: no region shares one with its neighbour.
constexpr int64_t kAlignment = 256;

// The widest vector that the kernels load.
constexpr uintptr_t kWorkspaceAlignment = 16;

}  // namespace

Region RegionPlanner::cut(std::initializer_list<int64_t> shape, int64_t element_bytes) {
  Region region{.offset = (end_ + kAlignment - 1) / kAlignment * kAlignment,
                .bytes = element_bytes};
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(region.bytes, size, &region.bytes)) too_large();
  }
  // Leaves room for the next region's alignment.
  if (__builtin_add_overflow(region.offset, region.bytes, &end_) || end_ > INT64_MAX - kAlignment) {
    too_large();
  }
  return region;
}

void RegionPlanner::too_large() const {
  checks::unsupported(sizes_, "a workspace past the address space", "products that fit in memory");
}

std::byte* allocate_workspace(const WorkspaceAlloc& workspace_alloc, size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::string count = std::to_string(bytes) + " bytes";
  if (!workspace_alloc) {
    checks::invalid("workspace_alloc", "an empty function", "one that returns " + count);
  }
  void* workspace = workspace_alloc(bytes, false);
  if (workspace == nullptr) throw Error("workspace_alloc returned null for " + count);
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    throw Error("the workspace's address is not a multiple of " +
                std::to_string(kWorkspaceAlignment));
  }
  return static_cast<std::byte*>(workspace);
}

}  // namespace mha_sink
