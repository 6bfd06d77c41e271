#include "benchmark/report.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "benchmark/json.h"
#include "emulator/launch.h"
#include "host/build_info.h"

namespace mha_sink::benchmark {
namespace {

std::string bias_name(int type) { return std::string(1, "nea"[type]); }

std::string layout_of(const Options& o) {
  const auto name = [](bool heads_first) { return heads_first ? "bhsd" : "bshd"; };
  return o.iperm == o.operm ? name(o.iperm) : std::string(name(o.iperm)) + "-" + name(o.operm);
}

uint64_t count_of(const KernelProfile& profile, const std::string& class_name) {
  const auto found = profile.by_class.find(class_name);
  return found == profile.by_class.end() ? 0 : found->second;
}

std::vector<std::string> instruction_classes() {
  std::vector<std::string> names;
  for (size_t i = 0; i < static_cast<size_t>(emulator::InstructionClass::count); ++i) {
    names.emplace_back(emulator::to_string(static_cast<emulator::InstructionClass>(i)));
  }
  return names;
}

std::string joined(const std::vector<int>& lengths) {
  std::string text;
  for (const int length : lengths) text += (text.empty() ? "" : ",") + std::to_string(length);
  return text;
}

// "67", of sequences "3,0,70", of padded ones "3,0,70(8,8,80)".
std::string lengths_of(int seqlen, const std::vector<int>& lengths,
                       const std::vector<int>& padded) {
  if (lengths.empty()) return std::to_string(seqlen);
  return joined(lengths) + (padded == lengths ? "" : "(" + joined(padded) + ")");
}

double tera(double count, double milliseconds) { return count / milliseconds * 1e-9; }

void print_timing(const Report& report) {
  const Timing& timing = *report.timing;
  std::printf("median of %-12d %14s %12s %16s %8s\n", timing.repeats, "ms", "TFLOP/s",
              "TFLOP/s visible", "GB/s");
  const auto line = [&](const char* name, double ms) {
    std::printf("  %-20s %10.4f %12.2f %16.2f %8.1f\n", name, ms, tera(report.flops, ms),
                tera(report.flops_masked, ms), static_cast<double>(report.bytes_moved) / ms * 1e-6);
  };
  line("whole call, warm", timing.warm_ms);
  line("whole call, flushed", timing.flushed_ms);
  for (const KernelTime& phase : timing.phases) {
    std::printf("    %-26s %7.4f\n", phase.name.c_str(), phase.milliseconds);
  }
}

// A column a kernel; a count is followed by its share per MFMA.
void print_counts(const Emulation& emulation) {
  std::printf("emulated on CPU in %.2f s, which says nothing about a GPU's time\n",
              emulation.cpu_seconds);
  const auto row = [&](const std::string& name,
                       const std::function<std::string(const KernelProfile&)>& cell) {
    std::printf("  %-18s", name.c_str());
    for (const auto& [kernel, profile] : emulation.kernels) {
      std::printf(" %*s", static_cast<int>(std::max<size_t>(kernel.size(), 20)),
                  cell(profile).c_str());
    }
    std::printf("\n");
  };
  const auto counted = [](uint64_t count, const KernelProfile& profile) {
    const uint64_t mfma = count_of(profile, "mfma");
    char text[48];
    if (mfma == 0) {
      std::snprintf(text, sizeof(text), "%llu", static_cast<unsigned long long>(count));
    } else {
      std::snprintf(text, sizeof(text), "%llu (%.3f)", static_cast<unsigned long long>(count),
                    static_cast<double>(count) / static_cast<double>(mfma));
    }
    return std::string(text);
  };
  std::printf("  %-18s", "(per MFMA)");
  for (const auto& [kernel, profile] : emulation.kernels) std::printf(" %20s", kernel.c_str());
  std::printf("\n");
  row("launches", [](const KernelProfile& p) { return std::to_string(p.launches); });
  row("wave instructions", [&](const KernelProfile& p) { return counted(p.wave_instructions, p); });
  for (const std::string& name : instruction_classes()) {
    row("  " + name, [&](const KernelProfile& p) { return counted(count_of(p, name), p); });
  }
}

void print_validation(const std::vector<TensorResult>& tensors) {
  std::printf(
      "validation              error    allowed  reference error  largest value  sequence\n");
  for (const TensorResult& t : tensors) {
    std::printf("  %-6s %-12s %10.3e %10.3e %16.3e %14.3e  %8s  %s\n", t.name.c_str(),
                to_string(t.status), t.error, t.allowed, t.reference_error, t.magnitude,
                t.sequence < 0 ? "all" : std::to_string(t.sequence).c_str(), t.reason.c_str());
  }
}

void write_problem(JsonWriter& json, const Options& o) {
  json.field("prec", o.prec);
  json.field("mode", o.group_mode ? "group" : "batch");
  json.field("batch", o.batch);
  json.field("nhead_q", o.nhead_q);
  json.field("nhead_k", o.nhead_k);
  json.field("seqlen_q", o.seqlen_q);
  json.field("seqlen_k", o.seqlen_k);
  const auto list = [&](const char* key, const std::vector<int>& lengths) {
    if (!o.group_mode) return json.null(key);
    json.array(key, [&] {
      for (const int length : lengths) json.field("", length);
    });
  };
  list("lens_q", o.lens_q);
  list("lens_k", o.lens_k);
  list("pad_q", o.pad_q);
  list("pad_k", o.pad_k);
  json.field("hdim_q", o.hdim_q);
  json.field("hdim_v", o.hdim_v);
  json.field("scale", double{o.scale});
  json.field("mask", o.mask.to_string());
  json.field("layout", layout_of(o));
  json.field("sink", o.sink);
  json.field("d_sink", o.d_sink);
  json.field("deterministic", o.deterministic);
  json.field("init", o.init);
  json.field("seed", o.seed);
}

void write_timing(JsonWriter& json, const Report& report) {
  const Timing& timing = *report.timing;
  json.field("repeats", timing.repeats);
  const auto whole_call = [&](const char* key, double ms) {
    json.object(key, [&] {
      json.field("ms", ms);
      json.field("tflops", tera(report.flops, ms));
      json.field("tflops_masked", tera(report.flops_masked, ms));
      json.field("gbytes_per_s", static_cast<double>(report.bytes_moved) / ms * 1e-6);
    });
  };
  whole_call("warm", timing.warm_ms);
  whole_call("flushed", timing.flushed_ms);
  json.array("phases", [&] {
    for (const KernelTime& phase : timing.phases) {
      json.object("", [&] {
        json.field("name", phase.name);
        json.field("ms", phase.milliseconds);
      });
    }
  });
}

void write_kernel(JsonWriter& json, const KernelProfile& profile) {
  json.field("launches", profile.launches);
  json.field("wave_instructions", profile.wave_instructions);
  json.object("classes", [&] {
    for (const std::string& name : instruction_classes()) {
      json.field(name, count_of(profile, name));
    }
  });
  const uint64_t mfma = count_of(profile, "mfma");
  if (mfma == 0) return json.null("per_mfma");
  const auto share = [&](const char* key, uint64_t count) {
    json.field(key, static_cast<double>(count) / static_cast<double>(mfma));
  };
  json.object("per_mfma", [&] {
    share("wave_instructions", profile.wave_instructions);
    for (const std::string& name : instruction_classes()) {
      share(name.c_str(), count_of(profile, name));
    }
  });
}

void write_validation(JsonWriter& json, const Report& report) {
  json.field("passed", report.valid());
  json.object("tensors", [&] {
    for (const TensorResult& tensor : *report.validation) {
      json.object(tensor.name, [&] {
        json.field("status", to_string(tensor.status));
        json.field("error", tensor.error);
        json.field("allowed", tensor.allowed);
        json.field("reference_error", tensor.reference_error);
        json.field("magnitude", tensor.magnitude);
        if (tensor.sequence < 0) {
          json.null("sequence");
        } else {
          json.field("sequence", tensor.sequence);
        }
        json.field("reason", tensor.reason);
      });
    }
  });
}

}  // namespace

bool Report::valid() const {
  return !validation || std::ranges::all_of(*validation, [](const TensorResult& tensor) {
    return tensor.status == Status::pass;
  });
}

void print_text(const Report& report) {
  const Options& o = report.options;
  std::printf(
      "[%s|%s|%s] b:%d, h:%d/%d, s:%s/%s, d:%d/%d, scale:%g, bias:%s, p_drop:%g, "
      "deterministic:%d, mask:%s, sink:%d, d_sink:%d, init:%d, seed:%u\n",
      o.prec.c_str(), o.group_mode ? "group" : "batch", layout_of(o).c_str(), o.batch, o.nhead_q,
      o.nhead_k, lengths_of(o.seqlen_q, o.lens_q, o.pad_q).c_str(),
      lengths_of(o.seqlen_k, o.lens_k, o.pad_k).c_str(), o.hdim_q, o.hdim_v, o.scale,
      bias_name(o.bias_type).c_str(), o.p_drop, o.deterministic, o.mask.to_string().c_str(), o.sink,
      o.d_sink, o.init, o.seed);
  std::printf("device     %s%s\n", report.device.c_str(),
              report.device_reason.empty() ? "" : (" (" + report.device_reason + ")").c_str());
  std::printf("FLOPs      %.4g, of visible pairs %.4g: h*pairs*(6*d + 4*d_v), 2.5 x forward\n",
              report.flops, report.flops_masked);
  std::printf("bytes      workspace %zu, inputs and outputs %zu\n", report.workspace_bytes,
              report.bytes_moved);
  if (report.timing) print_timing(report);
  if (report.emulation) print_counts(*report.emulation);
  if (report.validation) {
    print_validation(*report.validation);
    std::printf("valid:%s\n", report.valid() ? "y" : "n");
  }
}

void print_json(const Report& report) {
  JsonWriter json;
  json.object("", [&] {
    json.field("version", build_info().version);
    json.object("problem", [&] { write_problem(json, report.options); });
    json.field("device", report.device);
    json.field("workspace_bytes", report.workspace_bytes);
    json.field("bytes_moved", report.bytes_moved);
    json.field("flops", report.flops);
    json.field("flops_masked", report.flops_masked);
    if (report.timing) {
      json.object("timing", [&] { write_timing(json, report); });
    } else {
      json.null("timing");
    }
    if (report.emulation) {
      json.object("emulation", [&] {
        json.field("cpu_seconds", report.emulation->cpu_seconds);
        json.object("kernels", [&] {
          for (const auto& [name, profile] : report.emulation->kernels) {
            json.object(name, [&] { write_kernel(json, profile); });
          }
        });
      });
    } else {
      json.null("emulation");
    }
    if (report.validation) {
      json.object("validation", [&] { write_validation(json, report); });
    } else {
      json.null("validation");
    }
  });
  std::printf("%s\n", json.text().c_str());
}

}  // namespace mha_sink::benchmark
