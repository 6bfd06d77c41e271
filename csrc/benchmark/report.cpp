#include "benchmark/report.h"

#include <cstdio>

#include "benchmark/json.h"
#include "benchmark/report_parts.h"
#include "host/build_info.h"

namespace mha_sink::benchmark {
namespace {

std::string bias_name(int type) { return std::string(1, "nea"[type]); }

std::string layout_of(const Options& o) {
  const auto name = [](bool heads_first) { return heads_first ? "bhsd" : "bshd"; };
  return o.iperm == o.operm ? name(o.iperm) : std::string(name(o.iperm)) + "-" + name(o.operm);
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

}  // namespace

bool Report::valid() const { return !validation || passed(*validation); }

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
      json.object("emulation", [&] { write_emulation(json, *report.emulation); });
    } else {
      json.null("emulation");
    }
    if (report.validation) {
      json.object("validation", [&] { write_validation(json, *report.validation); });
    } else {
      json.null("validation");
    }
  });
  std::printf("%s\n", json.text().c_str());
}

}  // namespace mha_sink::benchmark
