#include "host/mha_bwd_launches.h"

#include "host/kernel_table.h"

namespace mha_sink {
namespace {

constexpr uint32_t kThreads = 256;  // of every kernel here

}  // namespace

MhaBwdLaunches::MhaBwdLaunches(const MhaBwdProblem& problem, const MhaBwdWorkspace& plan,
                               const KernelLauncher& launcher)
    : p_(problem), plan_(plan), launcher_(launcher) {
  const HeadDimKernels& kernels = *find_head_dim_kernels(p_.data_type, p_.hdim_q, p_.hdim_v);
  const auto load = [&](bool needed, std::string_view name) -> const KernelBinary* {
    return needed ? &launcher.load(name) : nullptr;
  };
  prepare_sequences_ = load(p_.packed, kPrepareSequencesKernel);
  dot_do_o_ = load(true, dot_do_o_kernel(p_.data_type));
  dq_dk_dv_ = load(true, kernels.dq_dk_dv);
  dq_ = load(p_.deterministic, kernels.dq);
  convert_dq_ = load(!p_.deterministic, convert_dq_kernel(p_.data_type));
  reduce_d_sink_ = load(p_.d_sink.present, kReduceDSinkKernel);
}

void MhaBwdLaunches::run(bool last) {
  if (p_.packed) prepare_sequences();
  if (p_.seqlen_q > 0) {
    dot_do_o();
    if (!p_.deterministic) fill(plan_.dq_acc, plan_.dq_acc, 0);
  }
  // Without queries this still writes dk = dv = 0.
  if (p_.seqlen_k > 0) dq_dk_dv();
  if (p_.seqlen_q > 0) {
    p_.deterministic ? dq() : convert_dq();
    if (p_.d_sink.present) reduce_d_sink(last);
  }
}

void MhaBwdLaunches::prepare_sequences() {
  constexpr int kNoSequence = 0xff;  // of every byte: -1
  fill(plan_.row_tile_sequence, plan_.key_tile_sequence, kNoSequence);
  Buffers buffers;
  mha::PrepareSequencesParams params{};
  params.q = {lengths(p_.start_q, buffers), lengths(p_.cu_q, buffers),
              lengths(p_.length_q, buffers), static_cast<int32_t>(p_.seqlen_q)};
  params.k = {lengths(p_.start_k, buffers), lengths(p_.cu_k, buffers),
              lengths(p_.length_k, buffers), static_cast<int32_t>(p_.seqlen_k)};
  params.sequences = scratch<mha::Sequence>(plan_.sequences, true, "workspace sequences", buffers);
  const HeadDimKernels& kernels = *find_head_dim_kernels(p_.data_type, p_.hdim_q, p_.hdim_v);
  const auto map = [&](const Region& region, int64_t tile_rows,
                       const char* name) -> mha::PrepareSequencesParams::TileMap {
    return {scratch<int32_t>(region, true, name, buffers), static_cast<int32_t>(tile_rows)};
  };
  params.row_tiles = map(plan_.row_tile_sequence, mha::kRowPadding, "workspace row_tile_sequence");
  params.dq_tiles =
      map(plan_.dq_tile_sequence, kernels.queries_per_workgroup(), "workspace dq_tile_sequence");
  params.key_tiles =
      map(plan_.key_tile_sequence, kernels.keys_per_workgroup(), "workspace key_tile_sequence");
  params.dq = output(p_.dq, buffers);
  params.dk = output(p_.dk, buffers);
  params.dv = output(p_.dv, buffers);
  params.delta = row_output(p_.softmax_d, buffers);
  params.batch = static_cast<int32_t>(p_.batch);
  params.nhead_q = static_cast<int32_t>(p_.nhead_q);
  params.nhead_k = static_cast<int32_t>(p_.nhead_k);
  params.hdim_q = static_cast<int32_t>(p_.hdim_q);
  params.hdim_v = static_cast<int32_t>(p_.hdim_v);
  launcher_.launch(*prepare_sequences_, {mha::kGapSlices, p_.batch, 1}, kThreads, params, buffers);
}

void MhaBwdLaunches::dot_do_o() {
  Buffers buffers;
  mha::DotDoOParams params{};
  params.batch = batch(plan_.row_tile_sequence, buffers);
  params.out = input(p_.out, buffers);
  params.dout = input(p_.dout, buffers);
  params.lse = row_input(p_.lse, buffers);
  params.dlse = row_input(p_.dlse, buffers);
  params.delta = row_output(p_.softmax_d, buffers);
  params.rows = row_constants(true, buffers);
  params.nhead_q = static_cast<int32_t>(p_.nhead_q);
  params.hdim = static_cast<int32_t>(p_.hdim_v);
  if (p_.d_sink.present) {
    // A number that belongs to no tile is summed like the others.
    if (p_.packed) fill(plan_.d_sink_partial, plan_.d_sink_partial, 0);
    params.sink = static_cast<const float*>(p_.sink.data);
    buffers.push_back({p_.sink.data, static_cast<size_t>(p_.sink.extent()), false, p_.sink.name});
    params.d_sink_partial =
        scratch<float>(plan_.d_sink_partial, true, "workspace d_sink_partial", buffers);
  }
  launcher_.launch(*dot_do_o_, grid(plan_.row_tiles, p_.nhead_q, p_.batch), kThreads, params,
                   buffers);
}

template <class Params>
Params MhaBwdLaunches::products(const Region& tile_sequence, Buffers& buffers) const {
  Params params{};
  params.batch = batch(tile_sequence, buffers);
  params.q = input(p_.q, buffers);
  params.k = input(p_.k, buffers);
  params.v = input(p_.v, buffers);
  params.dout = input(p_.dout, buffers);
  params.rows = row_constants(false, buffers);
  params.nhead_q = static_cast<int32_t>(p_.nhead_q);
  params.nhead_k = static_cast<int32_t>(p_.nhead_k);
  params.hdim_q = static_cast<int32_t>(p_.hdim_q);
  params.hdim_v = static_cast<int32_t>(p_.hdim_v);
  params.scale = p_.scale;
  params.window = p_.window;
  return params;
}

void MhaBwdLaunches::dq_dk_dv() {
  Buffers buffers;
  auto params = products<mha::DqDkDvParams>(plan_.key_tile_sequence, buffers);
  params.dk = output(p_.dk, buffers);
  params.dv = output(p_.dv, buffers);
  params.dq_acc = dq_accumulator(true, buffers);
  launcher_.launch(*dq_dk_dv_, grid(p_.nhead_k, plan_.key_tiles, p_.batch), kThreads, params,
                   buffers);
}

void MhaBwdLaunches::dq() {
  Buffers buffers;
  auto params = products<mha::DqParams>(plan_.dq_tile_sequence, buffers);
  params.dq = output(p_.dq, buffers);
  launcher_.launch(*dq_, grid(p_.nhead_q, plan_.dq_tiles, p_.batch), kThreads, params, buffers);
}

void MhaBwdLaunches::convert_dq() {
  Buffers buffers;
  mha::ConvertDqParams params{};
  params.batch = batch(plan_.row_tile_sequence, buffers);
  params.dq_acc = dq_accumulator(false, buffers);
  params.dq = output(p_.dq, buffers);
  params.nhead_q = static_cast<int32_t>(p_.nhead_q);
  params.hdim = static_cast<int32_t>(p_.hdim_q);
  params.scale = p_.scale;
  launcher_.launch(*convert_dq_, grid(plan_.row_tiles, p_.nhead_q, p_.batch), kThreads, params,
                   buffers);
}

void MhaBwdLaunches::reduce_d_sink(bool last) {
  Buffers buffers;
  mha::ReduceDSinkParams params{};
  params.partial =
      scratch<const float>(plan_.d_sink_partial, false, "workspace d_sink_partial", buffers);
  if (p_.packed && p_.d_sink_per_batch) {
    params.sequences =
        scratch<const mha::Sequence>(plan_.sequences, false, "workspace sequences", buffers);
  }
  if (last) {
    params.d_sink = static_cast<float*>(const_cast<void*>(p_.d_sink.data));
    buffers.push_back(
        {p_.d_sink.data, static_cast<size_t>(p_.d_sink.extent()), true, p_.d_sink.name});
  } else {
    params.d_sink = scratch<float>(plan_.d_sink_discard, true, "workspace d_sink_discard", buffers);
  }
  params.tiles = static_cast<int32_t>(plan_.row_tiles);
  params.nhead_q = static_cast<int32_t>(p_.nhead_q);
  params.nhead_stride = plan_.row_tiles;
  const int64_t batch_stride = p_.nhead_q * plan_.row_tiles;
  params.rows = 1;
  if (!p_.packed && p_.d_sink_per_batch) params.entry_stride = batch_stride;
  if (!p_.packed && !p_.d_sink_per_batch) {
    params.rows = static_cast<int32_t>(p_.batch);
    params.row_stride = batch_stride;
  }
  launcher_.launch(*reduce_d_sink_, {p_.nhead_q, p_.d_sink_per_batch ? p_.batch : 1, 1}, kThreads,
                   params, buffers);
}

mha::Batch MhaBwdLaunches::batch(const Region& tile_sequence, Buffers& buffers) const {
  mha::Batch batch{};
  if (p_.packed) {
    batch.sequences =
        scratch<const mha::Sequence>(plan_.sequences, false, "workspace sequences", buffers);
    batch.tile_sequence =
        scratch<const int32_t>(tile_sequence, false, "workspace tile_sequence", buffers);
  }
  batch.seqlen_q = static_cast<int32_t>(p_.seqlen_q);
  batch.seqlen_k = static_cast<int32_t>(p_.seqlen_k);
  return batch;
}

mha::RowConstants MhaBwdLaunches::row_constants(bool writable, Buffers& buffers) const {
  return {scratch<float>(plan_.row_lse, writable, "workspace row_lse", buffers),
          scratch<float>(plan_.row_delta, writable, "workspace row_delta", buffers),
          p_.packed ? 0 : p_.nhead_q * plan_.padded_rows, plan_.padded_rows};
}

mha::DqAccumulator MhaBwdLaunches::dq_accumulator(bool writable, Buffers& buffers) const {
  return {scratch<float>(plan_.dq_acc, writable, "workspace dq_acc", buffers),
          p_.packed ? 0 : p_.nhead_q * p_.seqlen_q, p_.seqlen_q};
}

mha::ConstTensor MhaBwdLaunches::input(const View& view, Buffers& buffers) const {
  buffers.push_back({view.data, static_cast<size_t>(view.extent()), false, view.name});
  return {view.data, view.strides[0], view.strides[1], view.strides[2]};
}

mha::Tensor MhaBwdLaunches::output(const View& view, Buffers& buffers) const {
  buffers.push_back({view.data, static_cast<size_t>(view.extent()), true, view.name});
  // Outputs come in as void*; View is const for both directions.
  return {const_cast<void*>(view.data), view.strides[0], view.strides[1], view.strides[2]};
}

mha::ConstRowVector MhaBwdLaunches::row_input(const View& view, Buffers& buffers) const {
  if (!view.present) return {};
  buffers.push_back({view.data, static_cast<size_t>(view.extent()), false, view.name});
  return {static_cast<const float*>(view.data), view.strides[1], view.strides[2]};
}

mha::RowVector MhaBwdLaunches::row_output(const View& view, Buffers& buffers) const {
  if (!view.present) return {};
  buffers.push_back({view.data, static_cast<size_t>(view.extent()), true, view.name});
  return {static_cast<float*>(const_cast<void*>(view.data)), view.strides[1], view.strides[2]};
}

const int32_t* MhaBwdLaunches::lengths(const View& view, Buffers& buffers) const {
  if (!view.present) return nullptr;
  buffers.push_back({view.data, static_cast<size_t>(view.extent()), false, view.name});
  return static_cast<const int32_t*>(view.data);
}

template <class T>
T* MhaBwdLaunches::scratch(const Region& region, bool writable, const char* name,
                           Buffers& buffers) const {
  if (region.bytes == 0) return nullptr;
  std::byte* data = workspace_ + region.offset;
  buffers.push_back({data, static_cast<size_t>(region.bytes), writable, name});
  return reinterpret_cast<T*>(data);
}

// A packed batch is one along the tiles.
std::array<int64_t, 3> MhaBwdLaunches::grid(int64_t x, int64_t y, int64_t z) const {
  return {x, y, p_.packed ? 1 : z};
}

void MhaBwdLaunches::fill(const Region& first, const Region& last, int value) const {
  launcher_.memset(workspace_ + first.offset, value, last.end() - first.offset);
}

}  // namespace mha_sink
