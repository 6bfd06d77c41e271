// Checks and measures sparse_mla_bwd; -help says how.
#include <algorithm>
#include <cstdio>

#include "benchmark/program.h"
#include "benchmark/sparse_mla_call.h"
#include "benchmark/sparse_mla_report.h"
#include "host/checks_sparse_mla.h"

namespace mha_sink::benchmark {
namespace {

SparseMlaReport run(const SparseMlaOptions& options) {
  // Refused before anything is allocated or computed.
  check(sparse_mla_bwd_traits{.data_type = options.prec,
                              .tokens = options.tokens,
                              .nhead = options.nhead,
                              .num_kv = options.num_kv(),
                              .topk = options.topk,
                              .r_chunk = options.r_chunk,
                              .has_plan = options.plan});
  const ChosenDevice chosen = choose_device(options.device);

  SparseMlaInputs inputs = make_sparse_mla_inputs(options);
  SparseMlaCall call(*chosen.device, options, inputs);
  SparseMlaReport report;
  report.options = options;
  report.device = chosen.device->name();
  report.device_reason = chosen.reason;
  report.workspace_bytes = call.workspace_bytes();
  report.bytes_moved = call.bytes_moved();
  report.slots = static_cast<double>(inputs.tokens * inputs.topk);
  report.valid_slots = static_cast<double>(inputs.valid_slots());

  const auto validation = [&] {
    report.validated_tokens = std::min(tokens_to_validate(inputs), inputs.tokens);
    report.validation = validate_sparse_mla(inputs, call.outputs(), report.validated_tokens);
  };
  measure(*chosen.device, options, [&](Device& device) { call.run(device); }, validation, report);
  return report;
}

int run_command(int argc, char** argv) {
  const SparseMlaOptions options = parse_sparse_mla_options(argc, argv);
  if (options.help) {
    std::printf("%s", sparse_mla_help_text().c_str());
    return kOk;
  }
  return show(run(options), options.json);
}

}  // namespace
}  // namespace mha_sink::benchmark

int main(int argc, char** argv) {
  using namespace mha_sink::benchmark;
  return exit_code("benchmark_sparse_mla_bwd", [&] { return run_command(argc, argv); });
}
