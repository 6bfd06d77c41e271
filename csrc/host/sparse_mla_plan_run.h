// Making a plan, and reading one: shared by the plan, forward and backward calls.
#pragma once

#include "hip/sparse_mla/params.h"
#include "host/kernel_launcher.h"
#include "host/sparse_mla_problem.h"
#include "host/sparse_mla_workspace.h"

namespace mha_sink {

enum class PlanScope {
  full,
  compact  // the slots alone, at the start of a plan's memory: what the forward needs
};

// Its kernels, loaded.
class SparseMlaPlanRun {
 public:
  SparseMlaPlanRun(const KernelLauncher& launcher, const SparseMlaSizes& sizes, PlanScope scope);

  // `plan`: the layout's bytes, or compact_bytes.
  void make(const Array& topk_indices, std::byte* plan) const;

  const SparseMlaPlanLayout& layout() const { return layout_; }

 private:
  const KernelLauncher& launcher_;
  const SparseMlaSizes& sizes_;
  SparseMlaPlanLayout layout_;
  PlanScope scope_;
  const KernelBinary *count_, *scan_segments_ = nullptr, *scan_rows_ = nullptr, *fill_ = nullptr;
};

// A plan's parts in memory.
struct SparseMlaPlanView {
  const SparseMlaPlanLayout& layout;
  std::byte* base;

  template <class T>
  T* at(const Region& region) const {
    return region.bytes == 0 ? nullptr : reinterpret_cast<T*>(base + region.offset);
  }
  BufferRange range(const Region& region, bool writable, const char* name) const {
    return {at<std::byte>(region), static_cast<size_t>(region.bytes), writable, name};
  }
  sparse_mla::Slots slots() const {
    return {at<const int32_t>(layout.slot_index), at<const int32_t>(layout.slot_count),
            static_cast<int32_t>(layout.topk_padded)};
  }
};

}  // namespace mha_sink
