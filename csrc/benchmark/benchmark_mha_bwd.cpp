// Checks and measures mha_bwd; -help says how.
#include <cstdint>
#include <cstdio>
#include <string>

#include "benchmark/device_call.h"
#include "benchmark/gate.h"
#include "benchmark/measure.h"
#include "benchmark/options.h"
#include "benchmark/problem.h"
#include "benchmark/program.h"
#include "benchmark/report.h"
#include "benchmark/validate.h"
#include "device/device.h"
#include "host/checks.h"
#include "mha_sink/fmha_bwd.h"

namespace mha_sink::benchmark {
namespace {

// What this program has no inputs for, whether the library supports it or not.
void refuse_unsupported(const Options& options) {
  const auto refuse = [](bool given, const char* what, const char* supported) {
    if (given) {
      throw Unsupported(std::string(what) +
                        " is not supported by this benchmark; supported: " + supported);
    }
  };
  refuse(options.bias_type != 0, "bias", "n (none)");
  refuse(options.dbias, "dbias: 1", "0");
  refuse(options.p_drop != 0, "p_drop other than 0", "0");
  refuse(options.mask.type == kMaskGeneric, "mask: g:y,x",
         "0, 1, 2, t, b, t:l,r, b:l,r, xt:w, xb:w");
  refuse(options.timer == "cpu", "timer: cpu", "gpu");
}

Report run(const Options& options) {
  // Refused before anything is allocated or computed.
  refuse_unsupported(options);
  const fmha_bwd_traits traits = traits_of(options);
  check(traits);
  const ChosenDevice chosen = choose_device(options.device);

  const Problem problem = problem_of(options);
  const Inputs inputs = make_inputs(problem, options);
  Report report;
  report.options = options;
  report.device = chosen.device->name();
  report.device_reason = chosen.reason;
  report.workspace_bytes = fmha_bwd_launcher(traits).workspace_size;
  const double flops_a_pair = problem.nhead_q * (6.0 * problem.hdim_q + 4.0 * problem.hdim_v);
  for (const auto& [entry, queries, keys] : problem.sequences) {
    const int64_t visible = problem.mask.visible_pairs(queries.count, keys.count);
    report.flops += flops_a_pair * queries.count * keys.count;
    report.flops_masked += flops_a_pair * static_cast<double>(visible);
  }

  DeviceCall call(*chosen.device, options, problem, inputs, report.workspace_bytes);
  report.bytes_moved = call.bytes_moved();
  const auto validation = [&] { report.validation = validate(problem, inputs, call.outputs()); };
  measure(*chosen.device, options, [&](Device& device) { call.run(device); }, validation, report);
  return report;
}

int run_command(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::printf("%s", help_text().c_str());
    return kOk;
  }
  return show(run(options), options.json);
}

}  // namespace
}  // namespace mha_sink::benchmark

int main(int argc, char** argv) {
  using namespace mha_sink::benchmark;
  return exit_code("benchmark_mha_bwd", [&] { return run_command(argc, argv); });
}
