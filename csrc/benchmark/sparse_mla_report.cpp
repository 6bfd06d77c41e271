#include "benchmark/sparse_mla_report.h"

#include <cstdio>
#include <string_view>

#include "benchmark/report_parts.h"
#include "host/build_info.h"

namespace mha_sink::benchmark {
namespace {

struct Phase {
  const char* name;
  std::vector<std::string_view> kernels;  // parts of their names
  double products = 0;                    // of the 5 of a slot and head
};

// In launch order. A memset belongs to the plan, whose counters it clears.
const std::vector<Phase>& phases() {
  static const std::vector<Phase> all = {
      {"plan", {"memset", "count_slots", "scan_segments", "scan_rows", "fill_entries"}},
      {"dq", {"mla_dq"}, 3},
      {"dkv_slots", {"dkv_slots"}, 2},
      {"dkv_gather", {"gather_dkv"}},
      {"d_sink", {"d_sink"}}};
  return all;
}

bool belongs(const Phase& phase, std::string_view kernel) {
  for (std::string_view part : phase.kernels) {
    if (kernel.find(part) != kernel.npos) return true;
  }
  return false;
}

// Bytes that an instruction's 64 lanes move at most; 0 when it is none of memory or LDS.
uint64_t wave_bytes(std::string_view mnemonic) {
  const auto has = [&](std::string_view part) { return mnemonic.find(part) != mnemonic.npos; };
  const bool moves = has("load") || has("store") || has("ds_read") || has("ds_write");
  if (!moves || mnemonic.starts_with("s_")) return 0;
  const uint64_t bytes = has("x4") || has("b128")                   ? 16
                         : has("x3") || has("b96")                  ? 12
                         : has("x2") || has("b64")                  ? 8
                         : has("short") || has("b16") || has("u16") ? 2
                         : has("byte") || has("b8") || has("u8")    ? 1
                                                                    : 4;
  const uint64_t addresses = has("read2") || has("write2") ? 2 : 1;
  return 64 * bytes * addresses;
}

// What a phase executed.
struct PhaseCounts {
  uint64_t wave_instructions = 0, mfma = 0, valu = 0, lds = 0, memory = 0;
  uint64_t memory_bytes = 0, lds_bytes = 0;

  void add(const KernelProfile& profile) {
    wave_instructions += profile.wave_instructions;
    mfma += count_of(profile, "mfma");
    valu += count_of(profile, "valu") + count_of(profile, "trans");
    lds += count_of(profile, "lds");
    memory += count_of(profile, "vmem") + count_of(profile, "atomic");
    for (const auto& [mnemonic, count] : profile.by_mnemonic) {
      const bool of_lds = mnemonic.starts_with("ds_");
      (of_lds ? lds_bytes : memory_bytes) += count * wave_bytes(mnemonic);
    }
  }
};

PhaseCounts counts_of(const Phase& phase, const Emulation& emulation) {
  PhaseCounts counts;
  for (const auto& [kernel, profile] : emulation.kernels) {
    if (belongs(phase, kernel)) counts.add(profile);
  }
  return counts;
}

// MFMAs of 32 x 32 x 16 that valid slots and existing heads need.
double useful_mfma(const SparseMlaReport& report, const Phase& phase) {
  return report.flops(report.valid_slots) / 5 * phase.products / (2 * 32 * 32 * 16);
}

double milliseconds_of(const Phase& phase, const Timing& timing) {
  double sum = 0;
  for (const KernelTime& kernel : timing.phases) {
    if (belongs(phase, kernel.name)) sum += kernel.milliseconds;
  }
  return sum;
}

double tera(double count, double milliseconds) { return count / milliseconds * 1e-9; }

void print_timing(const SparseMlaReport& report) {
  const Timing& timing = *report.timing;
  std::printf("median of %-12d %14s %16s %16s %8s\n", timing.repeats, "ms", "TFLOP/s counted",
              "TFLOP/s useful", "GB/s");
  const auto line = [&](const char* name, double ms) {
    std::printf("  %-20s %10.4f %16.2f %16.2f %8.1f\n", name, ms,
                tera(report.flops(report.slots), ms), tera(report.flops(report.valid_slots), ms),
                static_cast<double>(report.bytes_moved) / ms * 1e-6);
  };
  line("whole call, warm", timing.warm_ms);
  line("whole call, flushed", timing.flushed_ms);
  if (!report.options.breakdown) return;
  for (const Phase& phase : phases()) {
    std::printf("    %-18s %10.4f\n", phase.name, milliseconds_of(phase, timing));
  }
}

void print_emulation(const SparseMlaReport& report) {
  const Emulation& emulation = *report.emulation;
  std::printf("emulated on CPU in %.2f s, which says nothing about a GPU's time\n",
              emulation.cpu_seconds);
  std::printf("  %-11s %12s %10s %10s %6s %11s %10s %10s %13s %13s\n", "phase", "wave insts",
              "mfma", "useful", "share", "valu", "lds", "memory", "memory bytes", "lds bytes");
  const auto line = [](const char* name, const PhaseCounts& c, double useful) {
    std::printf("  %-11s %12llu %10llu %10.0f %5.1f%% %11llu %10llu %10llu %13llu %13llu\n", name,
                static_cast<unsigned long long>(c.wave_instructions),
                static_cast<unsigned long long>(c.mfma), useful,
                c.mfma == 0 ? 0.0 : 100 * useful / static_cast<double>(c.mfma),
                static_cast<unsigned long long>(c.valu), static_cast<unsigned long long>(c.lds),
                static_cast<unsigned long long>(c.memory),
                static_cast<unsigned long long>(c.memory_bytes),
                static_cast<unsigned long long>(c.lds_bytes));
  };
  PhaseCounts total;
  for (const auto& [kernel, profile] : emulation.kernels) total.add(profile);
  if (report.options.breakdown) {
    for (const Phase& phase : phases()) {
      line(phase.name, counts_of(phase, emulation), useful_mfma(report, phase));
    }
  }
  line("all", total, useful_mfma(report, {"all", {}, 5}));
  std::printf("  memory and lds bytes: as if every lane of every instruction took part\n");
}

void write_problem(JsonWriter& json, const SparseMlaReport& report) {
  const SparseMlaOptions& o = report.options;
  json.field("prec", o.prec);
  json.field("tokens", o.tokens);
  json.field("nhead", o.nhead);
  json.field("topk", o.topk);
  json.field("num_kv", o.num_kv());
  json.field("indices", o.indices);
  json.field("num_pool", o.num_pool);
  json.field("window", o.window);
  json.field("ratio", o.ratio);
  json.field("r_chunk", o.r_chunk);
  json.field("sink", o.sink);
  json.field("plan", o.plan);
  json.field("seed", o.seed);
  json.field("slots", report.slots);
  json.field("valid_slots", report.valid_slots);
}

void write_timing(JsonWriter& json, const SparseMlaReport& report) {
  const Timing& timing = *report.timing;
  json.field("repeats", timing.repeats);
  const auto whole_call = [&](const char* key, double ms) {
    json.object(key, [&] {
      json.field("ms", ms);
      json.field("tflops_counted", tera(report.flops(report.slots), ms));
      json.field("tflops_useful", tera(report.flops(report.valid_slots), ms));
      json.field("gbytes_per_s", static_cast<double>(report.bytes_moved) / ms * 1e-6);
    });
  };
  whole_call("warm", timing.warm_ms);
  whole_call("flushed", timing.flushed_ms);
  json.object("phases", [&] {
    for (const Phase& phase : phases()) json.field(phase.name, milliseconds_of(phase, timing));
  });
}

void write_phases(JsonWriter& json, const SparseMlaReport& report) {
  for (const Phase& phase : phases()) {
    const PhaseCounts c = counts_of(phase, *report.emulation);
    json.object(phase.name, [&] {
      json.field("wave_instructions", c.wave_instructions);
      json.field("mfma", c.mfma);
      json.field("mfma_useful", useful_mfma(report, phase));
      json.field("valu", c.valu);
      json.field("lds", c.lds);
      json.field("memory", c.memory);
      json.field("memory_bytes", c.memory_bytes);
      json.field("lds_bytes", c.lds_bytes);
    });
  }
}

}  // namespace

bool SparseMlaReport::valid() const { return !validation || passed(*validation); }

void print_text(const SparseMlaReport& report) {
  const SparseMlaOptions& o = report.options;
  std::printf(
      "[%s|%s] T:%d, H:%d, Kv:%d, topk:%d, window:%d, num_pool:%d, ratio:%d, r_chunk:%d, sink:%d, "
      "plan:%d, seed:%u\n",
      o.prec.c_str(), o.indices.c_str(), o.tokens, o.nhead, o.num_kv(), o.topk, o.window,
      o.num_pool, o.ratio, o.r_chunk, o.sink, o.plan, o.seed);
  std::printf("device     %s%s\n", report.device.c_str(),
              report.device_reason.empty() ? "" : (" (" + report.device_reason + ")").c_str());
  std::printf(
      "FLOPs      %.4g counted (10*512*T*H*topk), %.4g useful: %.1f %% of slots are valid\n",
      report.flops(report.slots), report.flops(report.valid_slots),
      report.slots == 0 ? 0.0 : 100 * report.valid_slots / report.slots);
  std::printf("bytes      workspace %zu, inputs and outputs %zu\n", report.workspace_bytes,
              report.bytes_moved);
  if (report.timing) print_timing(report);
  if (report.emulation) print_emulation(report);
  if (report.validation) {
    std::printf("checked    %lld tokens and as many rows of kv\n",
                static_cast<long long>(report.validated_tokens));
    print_validation(*report.validation);
    std::printf("valid:%s\n", report.valid() ? "y" : "n");
  }
}

void print_json(const SparseMlaReport& report) {
  JsonWriter json;
  const auto optional = [&](const char* key, bool present, auto&& write) {
    if (present) {
      json.object(key, write);
    } else {
      json.null(key);
    }
  };
  json.object("", [&] {
    json.field("version", build_info().version);
    json.object("problem", [&] { write_problem(json, report); });
    json.field("device", report.device);
    json.field("workspace_bytes", report.workspace_bytes);
    json.field("bytes_moved", report.bytes_moved);
    json.field("flops", report.flops(report.slots));
    json.field("flops_useful", report.flops(report.valid_slots));
    optional("timing", report.timing.has_value(), [&] { write_timing(json, report); });
    optional("emulation", report.emulation.has_value(), [&] {
      json.object("phases", [&] { write_phases(json, report); });
      write_emulation(json, *report.emulation);
    });
    optional("validation", report.validation.has_value(), [&] {
      json.field("checked", report.validated_tokens);
      write_validation(json, *report.validation);
    });
  });
  std::printf("%s\n", json.text().c_str());
}

}  // namespace mha_sink::benchmark
