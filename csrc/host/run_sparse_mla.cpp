#include "host/run_sparse_mla.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "hip/sparse_mla/params.h"
#include "host/checks.h"
#include "host/checks_contents.h"
#include "host/kernel_launcher.h"
#include "host/sparse_mla_plan_run.h"

namespace mha_sink {
namespace {

BufferRange read(const Array& array) {
  return {array.data, static_cast<size_t>(array.bytes), false, array.name};
}

BufferRange write(const Array& array) {
  return {array.data, static_cast<size_t>(array.bytes), true, array.name};
}

template <class T>
T* output(const Array& array) {
  return static_cast<T*>(const_cast<void*>(array.data));
}

const float* floats(const Array& array) { return static_cast<const float*>(array.data); }

std::byte* plan_of(const Array& array) { return output<std::byte>(array); }

// Where the tensors are, of which some may be empty.
template <class Problem>
Device& device_of_problem(const Problem& problem, const stream_config& stream) {
  if (stream.device_) return *stream.device_;
  for (const Array* input : problem.inputs()) {
    if (input->bytes > 0) return device_of(input->data);
  }
  return emulated_device();
}

// Heads of a workgroup of fwd and dq.
int64_t kernel_heads(const SparseMlaSizes& sizes) {
  return std::min<int64_t>(sizes.padded_heads(), 64);
}

int64_t head_groups(const SparseMlaSizes& sizes) {
  return sizes.padded_heads() / kernel_heads(sizes);
}

std::string kernel_name(const char* phase, const SparseMlaSizes& sizes, int64_t heads) {
  return std::string("sparse_mla_") + phase + "_" + sizes.data_type + "_h" + std::to_string(heads);
}

class BwdRun {
 public:
  BwdRun(const SparseMlaBwdProblem& problem, const KernelLauncher& launcher)
      : p_(problem),
        sizes_(problem.sizes),
        launcher_(launcher),
        plan_(launcher, problem.sizes, PlanScope::full),
        layout_(layout_sparse_mla_bwd(problem.sizes, problem.plan.present)),
        dq_(launcher.load(kernel_name("dq", sizes_, kernel_heads(sizes_)))),
        dkv_slots_(launcher.load(kernel_name("dkv_slots", sizes_, sizes_.padded_heads()))),
        gather_(launcher.load("sparse_mla_gather_dkv_" + sizes_.data_type)),
        d_sink_partial_(launcher.load("sparse_mla_d_sink_partial")),
        reduce_d_sink_(launcher.load("sparse_mla_reduce_d_sink")) {}

  size_t workspace_bytes() const { return static_cast<size_t>(layout_.bytes); }
  void set_workspace(std::byte* workspace) { workspace_ = workspace; }

  // Calls phase(name, kernels, work), which calls work(), for each part in turn.
  template <class Phase>
  void launch(Phase&& phase) const {
    if (sizes_.tokens == 0) {
      launcher_.memset(p_.dkv.data, 0, p_.dkv.bytes);
      launcher_.memset(p_.d_sink.data, 0, p_.d_sink.bytes);
      return;
    }
    if (!p_.plan.present) {
      phase("plan",
            {"sparse_mla_count_slots", "sparse_mla_scan_segments", "sparse_mla_scan_rows",
             "sparse_mla_fill_entries"},
            [&] { plan_.make(p_.topk_indices, plan().base); });
    }
    for (int64_t i = 0; i < sizes_.chunks(); ++i) {
      const sparse_mla::Chunk chunk{.slot0 = static_cast<int32_t>(i * sizes_.r_chunk),
                                    .slots = static_cast<int32_t>(sizes_.r_chunk),
                                    .first = i == 0,
                                    .last = i + 1 == sizes_.chunks()};
      phase("dq", {dq_.name}, [&] { dq(chunk); });
      phase("dkv_slots", {dkv_slots_.name}, [&] { dkv_slots(chunk); });
      phase("dkv_gather", {gather_.name}, [&] { gather(chunk); });
    }
    if (p_.d_sink.present) {
      phase("d_sink", {d_sink_partial_.name, reduce_d_sink_.name}, [&] { d_sink(); });
    }
  }

 private:
  SparseMlaPlanView plan() const {
    return {plan_.layout(), p_.plan.present ? plan_of(p_.plan) : at<std::byte>(layout_.plan)};
  }

  template <class T>
  T* at(const Region& region) const {
    return region.bytes == 0 ? nullptr : reinterpret_cast<T*>(workspace_ + region.offset);
  }

  BufferRange range(const Region& region, bool writable, const char* name) const {
    return {at<std::byte>(region), static_cast<size_t>(region.bytes), writable, name};
  }

  int32_t heads() const { return static_cast<int32_t>(sizes_.nhead); }

  void dq(const sparse_mla::Chunk& chunk) const {
    const SparseMlaPlanView view = plan();
    const sparse_mla::DqParams params{.q = p_.q.data,
                                      .kv = p_.kv.data,
                                      .dout = p_.dout.data,
                                      .o = p_.o.data,
                                      .lse = floats(p_.lse),
                                      .dlse = floats(p_.dlse),
                                      .delta = at<float>(layout_.delta),
                                      .dq = output<void>(p_.dq),
                                      .dq_acc = at<float>(layout_.dq_acc),
                                      .p = at<void>(layout_.p),
                                      .ds = at<void>(layout_.ds),
                                      .slots = view.slots(),
                                      .chunk = chunk,
                                      .heads = heads(),
                                      .heads_padded = static_cast<int32_t>(sizes_.padded_heads()),
                                      .scale = p_.scale};
    const BufferRange buffers[] = {read(p_.q),
                                   read(p_.kv),
                                   read(p_.dout),
                                   read(p_.o),
                                   read(p_.lse),
                                   read(p_.dlse),
                                   range(layout_.delta, true, "workspace delta"),
                                   write(p_.dq),
                                   range(layout_.dq_acc, true, "workspace dq_acc"),
                                   range(layout_.p, true, "workspace p"),
                                   range(layout_.ds, true, "workspace ds"),
                                   view.range(view.layout.slot_index, false, "plan slot_index"),
                                   view.range(view.layout.slot_count, false, "plan slot_count")};
    launcher_.launch(dq_, {sizes_.tokens, head_groups(sizes_), 1}, 256, params, buffers);
  }

  void dkv_slots(const sparse_mla::Chunk& chunk) const {
    const SparseMlaPlanView view = plan();
    const sparse_mla::DkvSlotsParams params{.q = p_.q.data,
                                            .dout = p_.dout.data,
                                            .p = at<void>(layout_.p),
                                            .ds = at<void>(layout_.ds),
                                            .interm = at<int16_t>(layout_.interm),
                                            .interm_scale = at<float>(layout_.interm_scale),
                                            .slot_count = view.slots().count,
                                            .chunk = chunk,
                                            .heads = heads()};
    const BufferRange buffers[] = {read(p_.q),
                                   read(p_.dout),
                                   range(layout_.p, false, "workspace p"),
                                   range(layout_.ds, false, "workspace ds"),
                                   range(layout_.interm, true, "workspace interm"),
                                   range(layout_.interm_scale, true, "workspace interm_scale"),
                                   view.range(view.layout.slot_count, false, "plan slot_count")};
    launcher_.launch(dkv_slots_, {sizes_.tokens, 1, 1}, 256, params, buffers);
  }

  void gather(const sparse_mla::Chunk& chunk) const {
    const SparseMlaPlanView view = plan();
    const sparse_mla::GatherDkvParams params{
        .interm = at<int16_t>(layout_.interm),
        .interm_scale = at<float>(layout_.interm_scale),
        .row_begin = view.at<uint32_t>(view.layout.row_begin),
        .entry = view.at<uint32_t>(view.layout.entry),
        .dkv = output<void>(p_.dkv),
        .dkv_acc = at<float>(layout_.dkv_acc),
        .chunk = chunk,
        .topk_padded = static_cast<int32_t>(view.layout.topk_padded),
        .num_kv = static_cast<int32_t>(sizes_.num_kv)};
    const BufferRange buffers[] = {range(layout_.interm, false, "workspace interm"),
                                   range(layout_.interm_scale, false, "workspace interm_scale"),
                                   view.range(view.layout.row_begin, false, "plan row_begin"),
                                   view.range(view.layout.entry, false, "plan entry"),
                                   write(p_.dkv),
                                   range(layout_.dkv_acc, true, "workspace dkv_acc")};
    launcher_.launch(gather_, {sizes_.num_kv, 1, 1}, 512, params, buffers);
  }

  void d_sink() const {
    const auto tiles = static_cast<int32_t>(layout_.tiles);
    const sparse_mla::DSinkPartialParams partial{.sink = floats(p_.sink),
                                                 .lse = floats(p_.lse),
                                                 .delta = at<float>(layout_.delta),
                                                 .partial = at<float>(layout_.d_sink_partial),
                                                 .tokens = static_cast<int32_t>(sizes_.tokens),
                                                 .heads = heads(),
                                                 .tiles = tiles};
    const BufferRange partial_buffers[] = {
        read(p_.sink), read(p_.lse), range(layout_.delta, false, "workspace delta"),
        range(layout_.d_sink_partial, true, "workspace d_sink_partial")};
    launcher_.launch(d_sink_partial_, {layout_.tiles, 1, 1}, 256, partial, partial_buffers);

    const sparse_mla::ReduceDSinkParams reduce{.partial = at<float>(layout_.d_sink_partial),
                                               .d_sink = output<float>(p_.d_sink),
                                               .tiles = tiles};
    const BufferRange reduce_buffers[] = {
        range(layout_.d_sink_partial, false, "workspace d_sink_partial"), write(p_.d_sink)};
    launcher_.launch(reduce_d_sink_, {sizes_.nhead, 1, 1}, 256, reduce, reduce_buffers);
  }

  const SparseMlaBwdProblem& p_;
  const SparseMlaSizes& sizes_;
  const KernelLauncher& launcher_;
  SparseMlaPlanRun plan_;
  SparseMlaBwdWorkspace layout_;
  std::byte* workspace_ = nullptr;
  const KernelBinary &dq_, &dkv_slots_, &gather_, &d_sink_partial_, &reduce_d_sink_;
};

}  // namespace

size_t sparse_mla_fwd_workspace_bytes(const SparseMlaSizes& sizes, bool has_plan) {
  if (has_plan || sizes.tokens == 0) return 0;
  return static_cast<size_t>(
      layout_sparse_mla_plan(sizes.tokens, sizes.num_kv, sizes.topk).compact_bytes);
}

size_t sparse_mla_bwd_workspace_bytes(const SparseMlaSizes& sizes, bool has_plan) {
  return static_cast<size_t>(layout_sparse_mla_bwd(sizes, has_plan).bytes);
}

float run_sparse_mla_plan(const SparseMlaPlanProblem& problem, const stream_config& stream) {
  Device& device = device_of_problem(problem, stream);
  const KernelLauncher launcher(device, stream);
  const SparseMlaPlanRun run(launcher, problem.sizes, PlanScope::full);
  checks::check_sparse_mla_indices(problem.topk_indices, problem.sizes, device, stream.stream_id_);
  return launcher.run([&](bool) { run.make(problem.topk_indices, plan_of(problem.plan)); });
}

float run_sparse_mla_fwd(const SparseMlaFwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                         const stream_config& stream) {
  const SparseMlaSizes& sizes = problem.sizes;
  Device& device = device_of_problem(problem, stream);
  const KernelLauncher launcher(device, stream);
  const SparseMlaPlanRun plan(launcher, sizes, PlanScope::compact);
  const KernelBinary& kernel = launcher.load(kernel_name("fwd", sizes, kernel_heads(sizes)));
  checks::check_sparse_mla_indices(problem.topk_indices, sizes, device, stream.stream_id_);
  if (sizes.tokens == 0) return 0;
  const bool has_plan = problem.plan.present;
  std::byte* memory =
      has_plan ? plan_of(problem.plan)
               : allocate_workspace(workspace_alloc, sparse_mla_fwd_workspace_bytes(sizes, false));
  const SparseMlaPlanView view{plan.layout(), memory};
  const sparse_mla::FwdParams params{.q = problem.q.data,
                                     .kv = problem.kv.data,
                                     .sink = floats(problem.sink),
                                     .o = output<void>(problem.o),
                                     .lse = output<float>(problem.lse),
                                     .slots = view.slots(),
                                     .heads = static_cast<int32_t>(sizes.nhead),
                                     .scale = problem.scale};
  const BufferRange buffers[] = {read(problem.q),
                                 read(problem.kv),
                                 read(problem.sink),
                                 write(problem.o),
                                 write(problem.lse),
                                 view.range(view.layout.slot_index, false, "plan slot_index"),
                                 view.range(view.layout.slot_count, false, "plan slot_count")};
  return launcher.run([&](bool) {
    if (!has_plan) plan.make(problem.topk_indices, memory);
    launcher.launch(kernel, {sizes.tokens, head_groups(sizes), 1}, 256, params, buffers);
  });
}

float run_sparse_mla_bwd(const SparseMlaBwdProblem& problem, const WorkspaceAlloc& workspace_alloc,
                         const stream_config& stream) {
  Device& device = device_of_problem(problem, stream);
  const KernelLauncher launcher(device, stream);
  BwdRun run(problem, launcher);
  checks::check_sparse_mla_indices(problem.topk_indices, problem.sizes, device, stream.stream_id_);
  run.set_workspace(allocate_workspace(workspace_alloc, run.workspace_bytes()));
  return launcher.run([&](bool) {
    run.launch([](const char*, const std::vector<std::string>&, auto&& work) { work(); });
  });
}

std::vector<SparseMlaPhase> time_sparse_mla_bwd_phases(const SparseMlaBwdProblem& problem,
                                                       const WorkspaceAlloc& workspace_alloc,
                                                       const stream_config& stream, int repeats) {
  if (repeats < 1) checks::invalid("repeats", std::to_string(repeats), "at least 1");
  Device& device = device_of_problem(problem, stream);
  const KernelLauncher launcher(device, stream);
  BwdRun run(problem, launcher);
  checks::check_sparse_mla_indices(problem.topk_indices, problem.sizes, device, stream.stream_id_);
  run.set_workspace(allocate_workspace(workspace_alloc, run.workspace_bytes()));

  struct Span {
    size_t phase;
    Event begin, end;
  };
  std::vector<SparseMlaPhase> phases;
  std::vector<Span> spans;
  const auto phase = [&](const char* name, const std::vector<std::string>& kernels, auto&& work) {
    size_t index = 0;
    while (index < phases.size() && phases[index].name != name) ++index;
    if (index == phases.size()) phases.push_back({name, kernels});
    Span span{index, device.record(stream.stream_id_), nullptr};
    work();
    span.end = device.record(stream.stream_id_);
    spans.push_back(std::move(span));
  };
  for (int i = 0; i < repeats; ++i) run.launch(phase);
  for (const Span& span : spans) {
    phases[span.phase].milliseconds += device.milliseconds(span.begin, span.end) / repeats;
  }
  return phases;
}

}  // namespace mha_sink
