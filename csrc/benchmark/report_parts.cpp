#include "benchmark/report_parts.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "emulator/launch.h"

namespace mha_sink::benchmark {
namespace {

std::vector<std::string> instruction_classes() {
  std::vector<std::string> names;
  for (size_t i = 0; i < static_cast<size_t>(emulator::InstructionClass::count); ++i) {
    names.emplace_back(emulator::to_string(static_cast<emulator::InstructionClass>(i)));
  }
  return names;
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

// Whether the results are those of single sequences.
bool judged_by_sequence(const std::vector<TensorResult>& tensors) {
  return std::ranges::any_of(tensors,
                             [](const TensorResult& tensor) { return tensor.sequence >= 0; });
}

}  // namespace

uint64_t count_of(const KernelProfile& profile, const std::string& class_name) {
  const auto found = profile.by_class.find(class_name);
  return found == profile.by_class.end() ? 0 : found->second;
}

bool passed(const std::vector<TensorResult>& tensors) {
  return std::ranges::all_of(
      tensors, [](const TensorResult& tensor) { return tensor.status == Status::pass; });
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
  const bool by_sequence = judged_by_sequence(tensors);
  std::printf("validation              error    allowed  reference error  largest value%s\n",
              by_sequence ? "  sequence" : "");
  for (const TensorResult& t : tensors) {
    std::printf("  %-6s %-12s %10.3e %10.3e %16.3e %14.3e", t.name.c_str(), to_string(t.status),
                t.error, t.allowed, t.reference_error, t.magnitude);
    if (by_sequence) {
      std::printf("  %8s", t.sequence < 0 ? "all" : std::to_string(t.sequence).c_str());
    }
    std::printf("  %s\n", t.reason.c_str());
  }
}

void write_emulation(JsonWriter& json, const Emulation& emulation) {
  json.field("cpu_seconds", emulation.cpu_seconds);
  json.object("kernels", [&] {
    for (const auto& [name, profile] : emulation.kernels) {
      json.object(name, [&] { write_kernel(json, profile); });
    }
  });
}

void write_validation(JsonWriter& json, const std::vector<TensorResult>& tensors) {
  const bool by_sequence = judged_by_sequence(tensors);
  json.field("passed", passed(tensors));
  json.object("tensors", [&] {
    for (const TensorResult& tensor : tensors) {
      json.object(tensor.name, [&] {
        json.field("status", to_string(tensor.status));
        json.field("error", tensor.error);
        json.field("allowed", tensor.allowed);
        json.field("reference_error", tensor.reference_error);
        json.field("magnitude", tensor.magnitude);
        if (by_sequence && tensor.sequence >= 0) {
          json.field("sequence", tensor.sequence);
        } else if (by_sequence) {
          json.null("sequence");
        }
        json.field("reason", tensor.reason);
      });
    }
  });
}

}  // namespace mha_sink::benchmark
