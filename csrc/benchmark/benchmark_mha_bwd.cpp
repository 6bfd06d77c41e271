// Checks and measures mha_bwd; -help says how.
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/device_call.h"
#include "benchmark/gate.h"
#include "benchmark/measure.h"
#include "benchmark/options.h"
#include "benchmark/problem.h"
#include "benchmark/reference.h"
#include "benchmark/report.h"
#include "device/device.h"
#include "host/checks.h"
#include "mha_sink/fmha_bwd.h"

namespace mha_sink::benchmark {
namespace {

enum ExitCode { kOk = 0, kInvalidResult = 1, kBadArguments = 2, kNotSupported = 3, kCannotRun = 4 };

struct ChosenDevice {
  Device* device;
  std::string reason;
};

// HIP_VISIBLE_DEVICES chooses among several GPUs.
ChosenDevice choose_device(const std::string& wanted) {
  if (wanted == "emulated") return {&emulated_device(), ""};
  try {
    return {&rocm_device(0), ""};
  } catch (const Error& error) {
    if (wanted == "rocm") throw Unsupported(error.what());
    return {&emulated_device(), error.what()};
  }
}

// What this program has no inputs for, whether the library supports it or not.
void refuse_unsupported(const Options& options) {
  const auto refuse = [](bool given, const char* what, const char* supported) {
    if (given) {
      throw Unsupported(std::string(what) +
                        " is not supported by this benchmark; supported: " + supported);
    }
  };
  refuse(options.group_mode, "mode: 1 (group)", "0 (batch)");
  refuse(options.bias_type != 0, "bias", "n (none)");
  refuse(options.dbias, "dbias: 1", "0");
  refuse(options.p_drop != 0, "p_drop other than 0", "0");
  refuse(options.mask.type == kMaskGeneric, "mask: g:y,x",
         "0, 1, 2, t, b, t:l,r, b:l,r, xt:w, xb:w");
  refuse(options.timer == "cpu", "timer: cpu", "gpu");
}

// In the order b, h, s, d.
std::vector<double> values_of(const Tensor& tensor, Dtype dtype) {
  std::vector<double> values;
  values.reserve(tensor.bits.size());
  for (int64_t b = 0; b < tensor.batch; ++b) {
    for (int64_t h = 0; h < tensor.nhead; ++h) {
      for (int64_t s = 0; s < tensor.seqlen; ++s) {
        const uint16_t* row = tensor.bits.data() + tensor.at(b, s, h);
        for (int64_t d = 0; d < tensor.hdim; ++d) values.push_back(from_bits(row[d], dtype));
      }
    }
  }
  return values;
}

std::vector<TensorResult> validate(const Problem& problem, const Inputs& inputs,
                                   const Outputs& outputs) {
  const Gradients exact = exact_gradients(problem, inputs);
  const Gradients rounded = rounded_gradients(problem, inputs);
  const auto doubles = [](const std::vector<float>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  std::vector<TensorResult> results = {
      check_tensor("dq", values_of(outputs.dq, problem.dtype), exact.dq, rounded.dq),
      check_tensor("dk", values_of(outputs.dk, problem.dtype), exact.dk, rounded.dk),
      check_tensor("dv", values_of(outputs.dv, problem.dtype), exact.dv, rounded.dv),
      check_tensor("delta", doubles(outputs.delta), exact.delta, rounded.delta)};
  if (!outputs.d_sink.empty()) {
    results.push_back(
        check_tensor("d_sink", doubles(outputs.d_sink), exact.d_sink, rounded.d_sink));
  }
  return results;
}

Report run(const Options& options) {
  // Refused before anything is allocated or computed.
  refuse_unsupported(options);
  const fmha_bwd_traits traits = traits_of(options);
  check(traits);
  const ChosenDevice chosen = choose_device(options.device);
  const bool emulated = chosen.device == &emulated_device();

  const Problem problem = problem_of(options);
  const Inputs inputs = make_inputs(problem, options);
  Report report;
  report.options = options;
  report.device = chosen.device->name();
  report.device_reason = chosen.reason;
  report.workspace_bytes = fmha_bwd_launcher(traits).workspace_size;
  const double flops_a_pair =
      1.0 * problem.batch * problem.nhead_q * (6.0 * options.hdim_q + 4.0 * options.hdim_v);
  report.flops = flops_a_pair * problem.seqlen_q * problem.seqlen_k;
  report.flops_masked = flops_a_pair * static_cast<double>(problem.mask.visible_pairs());

  DeviceCall call(*chosen.device, options, problem, inputs, report.workspace_bytes);
  report.bytes_moved = call.bytes_moved();
  if (emulated) {
    report.emulation = count_instructions(*chosen.device, call);
  } else {
    call.run(*chosen.device);
  }
  // Before d_sink accumulates the timed calls too.
  if (options.validate) report.validation = validate(problem, inputs, call.outputs());
  if (!emulated) {
    report.timing = measure_time(*chosen.device, call, options.warmup, options.repeat);
  }
  return report;
}

int main_of(int argc, char** argv) {
  const auto complain = [](const char* what, ExitCode code) {
    std::fprintf(stderr, "benchmark_mha_bwd: %s\n", what);
    return code;
  };
  try {
    const Options options = parse_options(argc, argv);
    if (options.help) {
      std::printf("%s", help_text().c_str());
      return kOk;
    }
    const Report report = run(options);
    if (options.json) {
      print_json(report);
    } else {
      print_text(report);
    }
    return report.valid() ? kOk : kInvalidResult;
  } catch (const BadOption& error) {
    return complain(error.what(), kBadArguments);
  } catch (const InvalidArgument& error) {
    return complain(error.what(), kBadArguments);
  } catch (const Unsupported& error) {
    return complain(error.what(), kNotSupported);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kCannotRun);
  } catch (const std::exception& error) {
    return complain(error.what(), kCannotRun);
  }
}

}  // namespace
}  // namespace mha_sink::benchmark

int main(int argc, char** argv) { return mha_sink::benchmark::main_of(argc, argv); }
