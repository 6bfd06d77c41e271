// The launches of one dense attention backward: parameters, grids and the memory that each touches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "hip/mha/params.h"
#include "host/kernel_launcher.h"
#include "host/mha_bwd_problem.h"
#include "host/workspace.h"

namespace mha_sink {

class MhaBwdLaunches {
 public:
  // Loads every kernel.
  MhaBwdLaunches(const MhaBwdProblem& problem, const MhaBwdWorkspace& plan,
                 const KernelLauncher& launcher);

  void set_workspace(std::byte* workspace) { workspace_ = workspace; }

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

  // What dq_dk_dv and dq have in common.
  template <class Params>
  Params products(const Region& tile_sequence, Buffers& buffers) const;

  std::array<int64_t, 3> grid(int64_t x, int64_t y, int64_t z) const;
  void fill(const Region& first, const Region& last, int value) const;

  const MhaBwdProblem& p_;
  const MhaBwdWorkspace& plan_;
  const KernelLauncher& launcher_;
  std::byte* workspace_ = nullptr;
  const KernelBinary *prepare_sequences_, *dot_do_o_, *dq_dk_dv_, *dq_, *convert_dq_,
      *reduce_d_sink_;
};

}  // namespace mha_sink
