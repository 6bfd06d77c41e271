#include "host/sparse_mla_plan_run.h"

namespace mha_sink {

SparseMlaPlanRun::SparseMlaPlanRun(const KernelLauncher& launcher, const SparseMlaSizes& sizes,
                                   PlanScope scope)
    : launcher_(launcher),
      sizes_(sizes),
      layout_(layout_sparse_mla_plan(sizes.tokens, sizes.num_kv, sizes.topk)),
      scope_(scope),
      count_(&launcher.load("sparse_mla_count_slots")) {
  if (scope == PlanScope::compact) return;
  scan_segments_ = &launcher.load("sparse_mla_scan_segments");
  scan_rows_ = &launcher.load("sparse_mla_scan_rows");
  fill_ = &launcher.load("sparse_mla_fill_entries");
}

void SparseMlaPlanRun::make(const Array& topk_indices, std::byte* plan) const {
  const SparseMlaPlanView view{layout_, plan};
  const auto num_kv = static_cast<int32_t>(sizes_.num_kv);
  const auto tokens = static_cast<int32_t>(sizes_.tokens);
  const auto segment_tokens = static_cast<int32_t>(layout_.segment_tokens);
  const bool full = scope_ == PlanScope::full;
  if (full) launcher_.memset(view.at<void>(layout_.cursor), 0, layout_.cursor.bytes);

  const sparse_mla::CountSlotsParams count{
      .topk_indices = static_cast<const int32_t*>(topk_indices.data),
      .slot_index = view.at<int32_t>(layout_.slot_index),
      .slot_count = view.at<int32_t>(layout_.slot_count),
      .cursor = full ? view.at<uint32_t>(layout_.cursor) : nullptr,
      .tokens = tokens,
      .topk = static_cast<int32_t>(sizes_.topk),
      .topk_padded = static_cast<int32_t>(layout_.topk_padded),
      .num_kv = num_kv,
      .segment_tokens = segment_tokens};
  std::vector<BufferRange> buffers = {
      {topk_indices.data, static_cast<size_t>(topk_indices.bytes), false, topk_indices.name},
      view.range(layout_.slot_index, true, "plan slot_index"),
      view.range(layout_.slot_count, true, "plan slot_count")};
  if (full) buffers.push_back(view.range(layout_.cursor, true, "plan cursor"));
  launcher_.launch(*count_, {(sizes_.tokens + 3) / 4, 1, 1}, 256, count, buffers);
  if (!full) return;

  const BufferRange cursor_and_rows[] = {view.range(layout_.cursor, true, "plan cursor"),
                                         view.range(layout_.row_begin, true, "plan row_begin")};
  const sparse_mla::ScanSegmentsParams segments{.cursor = view.at<uint32_t>(layout_.cursor),
                                                .row_begin = view.at<uint32_t>(layout_.row_begin),
                                                .segments = static_cast<int32_t>(layout_.segments),
                                                .num_kv = num_kv};
  launcher_.launch(*scan_segments_, {(sizes_.num_kv + 63) / 64, 1, 1}, 1024, segments,
                   cursor_and_rows);

  const sparse_mla::ScanRowsParams rows{.row_begin = view.at<uint32_t>(layout_.row_begin),
                                        .num_kv = num_kv};
  launcher_.launch(*scan_rows_, {1, 1, 1}, 1024, rows, std::span(cursor_and_rows).subspan(1));

  const sparse_mla::FillEntriesParams fill{.slots = view.slots(),
                                           .cursor = view.at<uint32_t>(layout_.cursor),
                                           .row_begin = view.at<uint32_t>(layout_.row_begin),
                                           .entry = view.at<uint32_t>(layout_.entry),
                                           .tokens = tokens,
                                           .num_kv = num_kv,
                                           .segment_tokens = segment_tokens};
  const BufferRange filled[] = {view.range(layout_.slot_index, false, "plan slot_index"),
                                view.range(layout_.slot_count, false, "plan slot_count"),
                                view.range(layout_.row_begin, false, "plan row_begin"),
                                view.range(layout_.cursor, true, "plan cursor"),
                                view.range(layout_.entry, true, "plan entry")};
  launcher_.launch(*fill_, {layout_.segments, 1, 1}, 64, fill, filled);
}

}  // namespace mha_sink
