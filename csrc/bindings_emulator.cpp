#include "bindings_emulator.h"

#include <pybind11/stl.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/emulated.h"
#include "emulator/access_counter.h"
#include "emulator/code_object.h"
#include "emulator/error.h"
#include "emulator/launch.h"
#include "emulator/sanitizer.h"
#include "emulator/timing_model.h"
#include "host/kernel_registry.h"
#include "mha_sink/error.h"

namespace mha_sink {
namespace {

namespace py = pybind11;
using emulator::CodeObject;
using emulator::InstructionClass;
using emulator::Kernel;

py::dict kernel_info(const Kernel& kernel) {
  const emulator::StaticProfile profile = emulator::static_profile(kernel);
  py::dict info;
  info["name"] = kernel.name;
  info["vgpr"] = kernel.vgpr_used;
  info["agpr"] = kernel.agpr_used;
  info["sgpr"] = kernel.sgpr_used;
  info["lds_bytes"] = kernel.lds_bytes;
  info["vgpr_spills"] = kernel.vgpr_spills;
  info["scratch_bytes"] = kernel.scratch_bytes;
  info["mfma"] = profile.mfma;
  info["registers"] = kernel.vgpr_count + kernel.agpr_count;
  info["accumulation_registers"] = kernel.agpr_count;
  info["kernarg_bytes"] = kernel.kernarg_bytes;
  py::list arguments;
  for (const emulator::KernelArgument& argument : kernel.arguments) {
    py::dict entry;
    entry["name"] = argument.name;
    entry["kind"] = argument.value_kind;
    entry["offset"] = argument.offset;
    entry["size"] = argument.size;
    arguments.append(entry);
  }
  info["arguments"] = arguments;
  info["accvgpr_per_mfma"] =
      profile.loop_mfma == 0 ? 0.0 : double(profile.loop_accvgpr_moves) / profile.loop_mfma;
  return info;
}

py::list kernels_of(const CodeObject& object) {
  py::list list;
  for (const Kernel& kernel : object.kernels()) list.append(kernel_info(kernel));
  return list;
}

py::list embedded_kernel_infos() {
  py::list list;
  for (const KernelBinary& binary : embedded_kernels()) {
    for (const py::handle info : kernels_of(CodeObject(binary.object, binary.name))) {
      list.append(info);
    }
  }
  return list;
}

py::dict instruction_mix(uint64_t wave_instructions,
                         const std::map<std::string, uint64_t>& by_class,
                         const std::map<std::string, uint64_t>& by_mnemonic) {
  py::dict classes;
  for (size_t i = 0; i < static_cast<size_t>(InstructionClass::count); ++i) {
    const std::string name(emulator::to_string(static_cast<InstructionClass>(i)));
    const auto counted = by_class.find(name);
    classes[py::str(name)] = counted == by_class.end() ? 0 : counted->second;
  }
  py::dict mix;
  mix["wave_instructions"] = wave_instructions;
  mix["classes"] = classes;
  mix["mnemonics"] = py::cast(by_mnemonic);
  return mix;
}

py::dict instruction_mix(const Kernel& kernel, const emulator::Profile& profile) {
  std::map<std::string, uint64_t> by_class, by_mnemonic;
  for (size_t i = 0; i < profile.executions.size(); ++i) {
    if (profile.executions[i] == 0) continue;
    const emulator::Op op = kernel.program[i].op;
    by_class[std::string(emulator::to_string(emulator::classify(op)))] += profile.executions[i];
    by_mnemonic[std::string(emulator::mnemonic(op))] += profile.executions[i];
  }
  return instruction_mix(profile.wave_instructions, by_class, by_mnemonic);
}

py::dict access_counts(const emulator::AccessCounts& counts) {
  py::dict buffers;
  for (const auto& [name, buffer] : counts.buffers) {
    py::dict entry;
    entry["lines"] = buffer.lines;
    entry["lines_read"] = buffer.lines_read;
    entry["lines_written"] = buffer.lines_written;
    entry["workgroup_lines"] = buffer.workgroup_lines;
    buffers[py::str(name)] = entry;
  }
  py::list sites;
  for (const emulator::SiteCounts& site : counts.sites) {
    sites.append(py::make_tuple(site.bytes, site.lines, site.lds_bytes, site.lds_clocks,
                                site.lds_least_clocks));
  }
  py::dict accesses;
  accesses["buffers"] = buffers;
  accesses["sites"] = sites;
  return accesses;
}

py::dict model_counts(const emulator::LaunchModel& model) {
  py::dict workgroups;
  for (const auto& [id, estimate] : model.estimates()) {
    const auto& [x, y, z] = id;
    py::list timeline;
    for (const auto& [wave, kind, begin, end] : estimate.timeline) {
      timeline.append(py::make_tuple(wave, emulator::to_string(kind), begin, end));
    }
    workgroups[py::make_tuple(x, y, z)] =
        py::dict(py::arg("clocks") = estimate.clocks, py::arg("mfma") = estimate.mfma,
                 py::arg("valu") = estimate.valu, py::arg("trans") = estimate.trans,
                 py::arg("lds") = estimate.lds, py::arg("vmem") = estimate.vmem,
                 py::arg("timeline") = timeline);
  }
  return workgroups;
}

// The session that Python started; the GIL guards it.
std::unique_ptr<ProfileSession>& profile_session() {
  static std::unique_ptr<ProfileSession> session;
  return session;
}

void profile_start(bool accesses) {
  profile_session().reset();
  profile_session() = std::make_unique<ProfileSession>(accesses);
}

py::dict profile_stop() {
  const std::unique_ptr<ProfileSession> session = std::move(profile_session());
  if (!session) throw Error("profile_stop: no profile was started");
  py::dict mixes;
  for (const auto& [name, profile] : session->kernels()) {
    py::dict mix =
        instruction_mix(profile.wave_instructions, profile.by_class, profile.by_mnemonic);
    mix["executions"] = py::cast(profile.executions);
    mix["launches"] = profile.launches;
    mix["workgroups"] = profile.workgroups;
    mix["work_items"] = profile.work_items;
    if (profile.accesses) mix["accesses"] = access_counts(*profile.accesses);
    mixes[py::str(name)] = mix;
  }
  return mixes;
}

emulator::Checks parse_checks(const std::string& names) {
  try {
    return emulator::parse_checks(names);
  } catch (const emulator::EmulationError& refused) {
    throw InvalidArgument(refused.what());
  }
}

// The ELF must outlive what is decoded from it.
class EmulatedObject {
 public:
  EmulatedObject(const py::bytes& elf, std::string name)
      : elf_(std::string_view(elf)),
        object_({reinterpret_cast<const uint8_t*>(elf_.data()), elf_.size()}, std::move(name)) {}

  const CodeObject& object() const { return object_; }

  std::string disassemble(const std::string& kernel) const {
    std::string text;
    for (const emulator::Instruction& instruction : object_.kernel(kernel).program) {
      char address[16];
      std::snprintf(address, sizeof(address), "%06x: ", instruction.address);
      text += address + emulator::to_string(instruction) + "\n";
    }
    return text;
  }

  py::list instructions(const std::string& kernel) const {
    py::list list;
    for (const emulator::Instruction& instruction : object_.kernel(kernel).program) {
      list.append(py::make_tuple(instruction.address, emulator::mnemonic(instruction.op),
                                 emulator::to_string(emulator::classify(instruction.op)),
                                 emulator::to_string(instruction)));
    }
    return list;
  }

  py::list source_lines(const std::string& kernel_name) const {
    const Kernel& kernel = object_.kernel(kernel_name);
    py::list list;
    for (const emulator::Instruction& instruction : kernel.program) {
      py::object place = py::none();
      if (kernel.lines) {
        if (const auto source = kernel.lines->find(instruction.address)) {
          // Bytes that are no UTF-8 become U+FFFD.
          const auto path = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
              source->path.data(), static_cast<Py_ssize_t>(source->path.size()), "replace"));
          place = py::make_tuple(path, source->line);
        }
      }
      list.append(place);
    }
    return list;
  }

  py::dict launch(const std::string& kernel_name, std::array<uint32_t, 3> workgroups,
                  std::array<uint32_t, 3> workgroup_size, const py::bytes& arguments,
                  const std::vector<std::tuple<uintptr_t, size_t, bool, std::string>>& memory,
                  uint32_t dynamic_lds, std::optional<uint32_t> quantum,
                  std::optional<bool> reverse, bool accesses,
                  const std::optional<std::string>& sanitize, const std::vector<uint64_t>& sample,
                  const std::optional<std::pair<uint32_t, uint32_t>>& modelled,
                  const std::map<std::string, double>& model_parameters,
                  uint64_t timeline_clocks) const {
    const Kernel& kernel = object_.kernel(kernel_name);
    std::vector<emulator::MemoryRange> ranges;
    for (const auto& [begin, bytes, writable, name] : memory) {
      ranges.push_back({begin, bytes, writable, name});
    }
    const std::string_view explicit_arguments(arguments);
    emulator::Schedule schedule = emulator::default_schedule();
    schedule.quantum = quantum.value_or(schedule.quantum);
    schedule.reverse = reverse.value_or(schedule.reverse);
    emulator::Profile profile;
    std::optional<emulator::AccessCounter> counter;
    std::vector<emulator::ObserverFactory> observers;
    if (accesses) observers.push_back(counter.emplace(kernel, ranges).observers());
    emulator::TimingParameters parameters;
    for (const auto& [name, value] : model_parameters) {
      emulator::set_parameter(parameters, name, value);
    }
    std::optional<emulator::LaunchModel> model;
    if (modelled) {
      const emulator::Occupancy occupancy{modelled->first, modelled->second};
      observers.push_back(
          model.emplace(kernel, occupancy, parameters, timeline_clocks).observers());
    }
    const emulator::LaunchSpec spec{
        .workgroups = workgroups,
        .sample = sample,
        .workgroup_size = workgroup_size,
        .arguments = std::as_bytes(std::span(explicit_arguments)),
        .dynamic_lds_bytes = dynamic_lds,
        .memory = ranges,
        .schedule = schedule,
        .profile = &profile,
        .observers = observers,
        .sanitize = sanitize ? parse_checks(*sanitize) : emulator::default_checks()};
    {
      py::gil_scoped_release no_gil;
      emulator::launch(object_, kernel, spec);
    }
    py::dict mix = instruction_mix(kernel, profile);
    mix["executions"] = py::cast(profile.executions);
    if (counter) mix["accesses"] = access_counts(counter->counts());
    if (model) mix["model"] = model_counts(*model);
    return mix;
  }

 private:
  std::string elf_;
  CodeObject object_;
};

void set_thread_count(int threads) {
  try {
    emulator::set_thread_count(threads);
  } catch (const emulator::EmulationError& refused) {
    throw InvalidArgument(refused.what());
  }
}

}  // namespace

void bind_emulator(py::module_& module, const py::object& error) {
  const auto emulation_error =
      py::register_exception<emulator::EmulationError>(module, "EmulationError", error);
  py::register_exception<emulator::SanitizerError>(module, "SanitizerError", emulation_error);

  module.def("set_thread_count", &set_thread_count, py::arg("threads"));
  module.def("thread_count", &emulator::thread_count);
  module.def(
      "set_schedule",
      [](uint32_t quantum, bool reverse) { emulator::set_default_schedule({quantum, reverse}); },
      py::arg("quantum"), py::arg("reverse"));
  module.def("schedule", [] {
    const emulator::Schedule schedule = emulator::default_schedule();
    return std::tuple(schedule.quantum, schedule.reverse);
  });
  module.def(
      "set_sanitizer",
      [](const std::string& checks) { emulator::set_default_checks(parse_checks(checks)); },
      py::arg("checks"));
  module.def("sanitizer", [] { return emulator::to_string_checks(emulator::default_checks()); });
  module.def("kernels", &embedded_kernel_infos);
  module.def(
      "kernel_binary",
      [](const std::string& name) {
        const std::span<const uint8_t> object = embedded_kernel(name).object;
        return py::bytes(reinterpret_cast<const char*>(object.data()), object.size());
      },
      py::arg("name"));
  module.def("profile_start", &profile_start, py::arg("accesses") = false);
  module.def("profile_stop", &profile_stop);

  py::class_<EmulatedObject>(module, "EmulatedObject")
      .def(py::init<const py::bytes&, std::string>(), py::arg("elf"), py::arg("name"))
      .def_property_readonly("name",
                             [](const EmulatedObject& self) { return self.object().name(); })
      .def_property_readonly("kernels",
                             [](const EmulatedObject& self) { return kernels_of(self.object()); })
      .def("disassemble", &EmulatedObject::disassemble, py::arg("kernel"))
      .def("instructions", &EmulatedObject::instructions, py::arg("kernel"))
      .def("source_lines", &EmulatedObject::source_lines, py::arg("kernel"))
      .def("launch", &EmulatedObject::launch, py::arg("kernel"), py::arg("workgroups"),
           py::arg("workgroup_size"), py::arg("arguments"), py::arg("memory"),
           py::arg("dynamic_lds") = 0, py::arg("quantum") = py::none(),
           py::arg("reverse") = py::none(), py::arg("accesses") = false,
           py::arg("sanitize") = py::none(), py::arg("sample") = std::vector<uint64_t>(),
           py::arg("modelled") = py::none(),
           py::arg("model_parameters") = std::map<std::string, double>(),
           py::arg("timeline_clocks") = 0);
}

}  // namespace mha_sink
