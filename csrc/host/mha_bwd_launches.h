// The launches of one dense attention backward: parameters, grids and the memory that each touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "hip/mha/params.h"
#include "host/mha_bwd_problem.h"
#include "host/workspace.h"
#include "mha_sink/stream_config.h"

namespace mha_sink {

class MhaBwdLaunches {
 public:
  // Loads every kernel: one that is missing or cannot be loaded must show before any is launched.
  MhaBwdLaunches(const MhaBwdProblem& problem, const MhaBwdWorkspace& plan, Device& device,
                 const stream_config& stream);

  void set_workspace(void* workspace) { workspace_ = static_cast<std::byte*>(workspace); }

  // All of them in order. With `last` unset d_sink is left alone: a repeat of a timed call must not
  // accumulate again.
  void run(bool last);

 private:
  using Buffers = std::vector<BufferRange>;

  void prepare_sequences();
  void dot_do_o();
  void dq_dk_dv();
  void dq();
  void convert_dq();
  void reduce_d_sink(bool last);

  // Each adds the memory that its result names to `buffers`.
  mha::Batch batch(const Region& tile_sequence, Buffers& buffers) const;
  mha::RowConstants row_constants(bool writable, Buffers& buffers) const;
  mha::DqAccumulator dq_accumulator(bool writable, Buffers& buffers) const;
  mha::ConstTensor input(const View& view, Buffers& buffers) const;
  mha::Tensor output(const View& view, Buffers& buffers) const;
  mha::ConstRowVector row_input(const View& view, Buffers& buffers) const;
  mha::RowVector row_output(const View& view, Buffers& buffers) const;
  const int32_t* lengths(const View& view, Buffers& buffers) const;
  template <class T>
  T* scratch(const Region& region, bool writable, const char* name, Buffers& buffers) const;

  LaunchDims grid(int64_t x, int64_t y, int64_t z) const;
  template <class Params>
  void enqueue(const KernelBinary& kernel, const LaunchDims& dims, const Params& params,
               std::span<const BufferRange> buffers);
  void fill(const Region& first, const Region& last, int value);

  const MhaBwdProblem& p_;
  const MhaBwdWorkspace& plan_;
  const stream_config& stream_;
  Device& device_;
  std::byte* workspace_ = nullptr;
  const KernelBinary *prepare_sequences_, *dot_do_o_, *dq_dk_dv_, *dq_, *convert_dq_,
      *reduce_d_sink_;
};

}  // namespace mha_sink
