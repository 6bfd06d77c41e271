#include "mha_sink/sparse_mla.h"

#include <algorithm>

#include "host/checks_sparse_mla.h"
#include "host/run_sparse_mla.h"
#include "host/sparse_mla_workspace.h"
#include "host/unsupported.h"

namespace mha_sink {
namespace {

void check_sizes_equal(const sparse_mla_bwd_traits& traits, const sparse_mla_bwd_args& args) {
  const std::tuple<const char*, int, int> sizes[] = {{"tokens", args.tokens, traits.tokens},
                                                     {"nhead", args.nhead, traits.nhead},
                                                     {"num_kv", args.num_kv, traits.num_kv},
                                                     {"topk", args.topk, traits.topk},
                                                     {"r_chunk", args.r_chunk, traits.r_chunk}};
  for (const auto& [name, given, needed] : sizes) {
    checks::check_as_launcher(name, given, needed);
  }
  checks::check_as_launcher("data_type", args.data_type, traits.data_type);
  if ((args.plan_ptr != nullptr) != traits.has_plan) {
    checks::invalid("plan_ptr", traits.has_plan ? "null" : "an address",
                    traits.has_plan ? "an address, as traits say," : "null, as traits say,");
  }
}

}  // namespace

size_t sparse_mla_plan_size(int tokens, int num_kv, int topk) {
  SparseMlaSizes sizes{
      .data_type = "bf16", .tokens = tokens, .nhead = 1, .num_kv = num_kv, .topk = topk};
  checks::check_sparse_mla_sizes(sizes);
  return static_cast<size_t>(layout_sparse_mla_plan(tokens, num_kv, topk).bytes);
}

float sparse_mla_plan(const sparse_mla_plan_args& args, const stream_config& stream) {
  return negative_when_unsupported([&] { return run_sparse_mla_plan(check(args), stream); });
}

float sparse_mla_fwd(const sparse_mla_fwd_args& args, const stream_config& stream) {
  return negative_when_unsupported(
      [&] { return run_sparse_mla_fwd(check(args), args.workspace_alloc, stream); });
}

float sparse_mla_bwd(const sparse_mla_bwd_args& args, const stream_config& stream) {
  return negative_when_unsupported(
      [&] { return run_sparse_mla_bwd(check(args), args.workspace_alloc, stream); });
}

sparse_mla_bwd_launcher::sparse_mla_bwd_launcher(const sparse_mla_bwd_traits& traits)
    : traits_(traits) {
  try {
    workspace_size = sparse_mla_bwd_workspace_bytes(check(traits_), traits.has_plan);
  } catch (const Unsupported& error) {
    unsupported_ = error.what();
  }
}

float sparse_mla_bwd_launcher::run(const sparse_mla_bwd_args& args, void* workspace,
                                   const stream_config& stream) {
  return negative_when_unsupported([&] {
    if (!unsupported_.empty()) throw Unsupported(unsupported_);
    check_sizes_equal(traits_, args);
    if (workspace_size > 0 && workspace == nullptr) {
      checks::invalid("workspace", "null", std::to_string(workspace_size) + " bytes");
    }
    return run_sparse_mla_bwd(check(args), [&](size_t, bool) { return workspace; }, stream);
  });
}

}  // namespace mha_sink
