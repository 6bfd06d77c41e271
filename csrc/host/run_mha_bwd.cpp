#include "host/run_mha_bwd.h"

#include <chrono>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "hip/mha/params.h"
#include "host/checks.h"
#include "host/kernel_registry.h"
#include "host/kernel_table.h"
#include "host/workspace.h"

namespace mha_sink {
namespace {

constexpr uint32_t kThreads = 256;  // of every kernel here
// The widest vector that the kernels load.
constexpr uintptr_t kWorkspaceAlignment = 16;

mha::ConstTensor const_tensor(const View& view) {
  return {view.data, view.strides[0], view.strides[1], view.strides[2]};
}

// Outputs come in as void*; View is const for both directions.
mha::Tensor tensor(const View& view) {
  return {const_cast<void*>(view.data), view.strides[0], view.strides[1], view.strides[2]};
}

BufferRange read(const View& view) {
  return {view.data, static_cast<size_t>(view.extent()), false, view.name};
}

BufferRange write(const View& view) {
  return {view.data, static_cast<size_t>(view.extent()), true, view.name};
}

// Where the tensors are, of which some may be empty.
Device& default_device(const MhaBwdProblem& problem) {
  for (const View* view : problem.inputs()) {
    if (view->present && !view->empty()) return device_of(view->data);
  }
  return emulated_device();
}

class MhaBwdRun {
 public:
  MhaBwdRun(const MhaBwdProblem& problem, const MhaBwdWorkspace& plan, const stream_config& stream)
      : p_(problem),
        plan_(plan),
        stream_(stream),
        device_(stream.device_ ? *stream.device_ : default_device(problem)) {
    // A kernel that is missing or cannot be loaded must show before anything is launched.
    const DqDkDvKernel& dq_dk_dv = *find_dq_dk_dv(p_.data_type, p_.hdim_q, p_.hdim_v);
    keys_per_workgroup_ = dq_dk_dv.keys_per_workgroup();
    dot_do_o_ = &embedded_kernel(dot_do_o_kernel(p_.data_type));
    dq_dk_dv_ = &embedded_kernel(dq_dk_dv.name);
    convert_dq_ = &embedded_kernel(convert_dq_kernel(p_.data_type));
    reduce_d_sink_ = &embedded_kernel(kReduceDSinkKernel);
    for (const KernelBinary* kernel : {dot_do_o_, dq_dk_dv_, convert_dq_, reduce_d_sink_}) {
      device_.load(*kernel, stream.stream_id_);
    }
  }

  void set_workspace(void* workspace) { workspace_ = static_cast<std::byte*>(workspace); }

  // With `last` unset, d_sink is left alone: a repeat of a timed call must not accumulate again.
  void launch(bool last) {
    if (p_.seqlen_q > 0) {
      dot_do_o();
      device_.memset(address(plan_.dq_acc), 0, static_cast<size_t>(plan_.dq_acc.bytes),
                     stream_.stream_id_);
    }
    // Without queries this still writes dk = dv = 0.
    if (p_.seqlen_k > 0) dq_dk_dv();
    if (p_.seqlen_q > 0) {
      convert_dq();
      if (p_.d_sink.present) reduce_d_sink(last);
    }
  }

  float timed() {
    for (int i = 0; i < stream_.cold_niters_; ++i) launch(false);
    const float elapsed = stream_.is_gpu_timer_ ? device_milliseconds() : host_milliseconds();
    return elapsed / static_cast<float>(stream_.nrepeat_);
  }

 private:
  void repeat() {
    for (int i = 0; i < stream_.nrepeat_; ++i) launch(i + 1 == stream_.nrepeat_);
  }

  float device_milliseconds() {
    const Event begin = device_.record(stream_.stream_id_);
    repeat();
    return device_.milliseconds(begin, device_.record(stream_.stream_id_));
  }

  float host_milliseconds() {
    using Clock = std::chrono::steady_clock;
    device_.synchronize(stream_.stream_id_);
    const Clock::time_point begin = Clock::now();
    repeat();
    device_.synchronize(stream_.stream_id_);
    return std::chrono::duration<float, std::milli>(Clock::now() - begin).count();
  }

  void dot_do_o() {
    mha::DotDoOParams params{};
    params.out = const_tensor(p_.out);
    params.dout = const_tensor(p_.dout);
    params.lse = {static_cast<const float*>(p_.lse.data), p_.lse.strides[1], p_.lse.strides[2]};
    params.row_lse = address(plan_.row_lse);
    params.row_delta = address(plan_.row_delta);
    params.seqlen_q = static_cast<int32_t>(p_.seqlen_q);
    params.seqlen_q_padded = static_cast<int32_t>(plan_.seqlen_q_padded);
    params.nhead_q = static_cast<int32_t>(p_.nhead_q);
    params.hdim = static_cast<int32_t>(p_.hdim_v);
    std::vector<BufferRange> buffers = {read(p_.out), read(p_.dout), read(p_.lse),
                                        region(plan_.row_lse, true, "workspace row_lse"),
                                        region(plan_.row_delta, true, "workspace row_delta")};
    if (p_.softmax_d.present) {
      params.delta = {static_cast<float*>(const_cast<void*>(p_.softmax_d.data)),
                      p_.softmax_d.strides[1], p_.softmax_d.strides[2]};
      buffers.push_back(write(p_.softmax_d));
    }
    if (p_.d_sink.present) {
      params.sink = static_cast<const float*>(p_.sink.data);
      params.d_sink_partial = address(plan_.d_sink_partial);
      buffers.push_back(read(p_.sink));
      buffers.push_back(region(plan_.d_sink_partial, true, "workspace d_sink_partial"));
    }
    enqueue(*dot_do_o_, grid(plan_.tiles, p_.nhead_q, p_.batch), params, buffers);
  }

  void dq_dk_dv() {
    mha::DqDkDvParams params{};
    params.q = const_tensor(p_.q);
    params.k = const_tensor(p_.k);
    params.v = const_tensor(p_.v);
    params.dout = const_tensor(p_.dout);
    params.dk = tensor(p_.dk);
    params.dv = tensor(p_.dv);
    params.row_lse = address(plan_.row_lse);
    params.row_delta = address(plan_.row_delta);
    params.dq_acc = address(plan_.dq_acc);
    params.seqlen_q = static_cast<int32_t>(p_.seqlen_q);
    params.seqlen_k = static_cast<int32_t>(p_.seqlen_k);
    params.seqlen_q_padded = static_cast<int32_t>(plan_.seqlen_q_padded);
    params.nhead_q = static_cast<int32_t>(p_.nhead_q);
    params.nhead_k = static_cast<int32_t>(p_.nhead_k);
    params.hdim_q = static_cast<int32_t>(p_.hdim_q);
    params.hdim_v = static_cast<int32_t>(p_.hdim_v);
    params.scale = p_.scale;
    params.window_left = p_.window_left;
    params.window_right = p_.window_right;
    const BufferRange buffers[] = {read(p_.q),
                                   read(p_.k),
                                   read(p_.v),
                                   read(p_.dout),
                                   write(p_.dk),
                                   write(p_.dv),
                                   region(plan_.row_lse, false, "workspace row_lse"),
                                   region(plan_.row_delta, false, "workspace row_delta"),
                                   region(plan_.dq_acc, true, "workspace dq_acc")};
    const int64_t key_tiles = (p_.seqlen_k + keys_per_workgroup_ - 1) / keys_per_workgroup_;
    enqueue(*dq_dk_dv_, grid(p_.nhead_k, key_tiles, p_.batch), params, buffers);
  }

  void convert_dq() {
    mha::ConvertDqParams params{};
    params.dq_acc = address(plan_.dq_acc);
    params.dq = tensor(p_.dq);
    params.seqlen_q = static_cast<int32_t>(p_.seqlen_q);
    params.seqlen_q_padded = static_cast<int32_t>(plan_.seqlen_q_padded);
    params.nhead_q = static_cast<int32_t>(p_.nhead_q);
    params.hdim = static_cast<int32_t>(p_.hdim_q);
    params.scale = p_.scale;
    const BufferRange buffers[] = {region(plan_.dq_acc, false, "workspace dq_acc"), write(p_.dq)};
    enqueue(*convert_dq_, grid(plan_.tiles, p_.nhead_q, p_.batch), params, buffers);
  }

  void reduce_d_sink(bool last) {
    mha::ReduceDSinkParams params{};
    params.partial = address(plan_.d_sink_partial);
    params.d_sink = last ? static_cast<float*>(const_cast<void*>(p_.d_sink.data))
                         : address(plan_.d_sink_discard);
    params.batch = static_cast<int32_t>(p_.batch);
    params.nhead_q = static_cast<int32_t>(p_.nhead_q);
    params.tiles = static_cast<int32_t>(plan_.tiles);
    const BufferRange buffers[] = {
        region(plan_.d_sink_partial, false, "workspace d_sink_partial"),
        last ? write(p_.d_sink) : region(plan_.d_sink_discard, true, "workspace d_sink_discard")};
    enqueue(*reduce_d_sink_, grid(p_.nhead_q, 1, 1), params, buffers);
  }

  template <class Params>
  void enqueue(const KernelBinary& kernel, const LaunchDims& dims, const Params& params,
               std::span<const BufferRange> buffers) {
    if (stream_.log_level_ > 0) {
      std::fprintf(stderr, "mha_sink: %s grid %u x %u x %u\n", kernel.name, dims.workgroups[0],
                   dims.workgroups[1], dims.workgroups[2]);
    }
    device_.launch(kernel, dims, std::as_bytes(std::span(&params, 1)), buffers, stream_.stream_id_);
  }

  static LaunchDims grid(int64_t x, int64_t y, int64_t z) {
    return {{static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)},
            {kThreads, 1, 1}};
  }

  float* address(const Region& region) const {
    return region.bytes == 0 ? nullptr : reinterpret_cast<float*>(workspace_ + region.offset);
  }

  BufferRange region(const Region& region, bool writable, const char* name) const {
    return {address(region), static_cast<size_t>(region.bytes), writable, name};
  }

  const MhaBwdProblem& p_;
  const MhaBwdWorkspace& plan_;
  const stream_config& stream_;
  Device& device_;
  std::byte* workspace_ = nullptr;
  int64_t keys_per_workgroup_;
  const KernelBinary *dot_do_o_, *dq_dk_dv_, *convert_dq_, *reduce_d_sink_;
};

void* allocate(const WorkspaceAlloc& workspace_alloc, size_t bytes) {
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
  return workspace;
}

}  // namespace

float run_mha_bwd(const MhaBwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                  const stream_config& stream) {
  if (stream.time_kernel_ && stream.nrepeat_ < 1) {
    checks::invalid("stream_config::nrepeat_", std::to_string(stream.nrepeat_), "at least 1");
  }
  const MhaBwdWorkspace plan =
      plan_mha_bwd_workspace(problem.batch, problem.nhead_q, problem.seqlen_q, problem.hdim_q);
  MhaBwdRun run(problem, plan, stream);
  if (plan.bytes > 0) {
    run.set_workspace(allocate(workspace_alloc, static_cast<size_t>(plan.bytes)));
  }
  if (stream.time_kernel_) return run.timed();
  run.launch(true);
  return 0;
}

}  // namespace mha_sink
