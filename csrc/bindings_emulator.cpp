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
#include "emulator/code_object.h"
#include "emulator/error.h"
#include "emulator/launch.h"
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

// The session that Python started; the GIL guards it.
std::unique_ptr<ProfileSession>& profile_session() {
  static std::unique_ptr<ProfileSession> session;
  return session;
}

void profile_start() {
  profile_session().reset();
  profile_session() = std::make_unique<ProfileSession>();
}

py::dict profile_stop() {
  const std::unique_ptr<ProfileSession> session = std::move(profile_session());
  if (!session) throw Error("profile_stop: no profile was started");
  py::dict mixes;
  for (const auto& [name, profile] : session->kernels()) {
    mixes[py::str(name)] =
        instruction_mix(profile.wave_instructions, profile.by_class, profile.by_mnemonic);
  }
  return mixes;
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

  py::dict launch(const std::string& kernel_name, std::array<uint32_t, 3> workgroups,
                  std::array<uint32_t, 3> workgroup_size, const py::bytes& arguments,
                  const std::vector<std::tuple<uintptr_t, size_t, bool, std::string>>& memory,
                  uint32_t dynamic_lds, std::optional<uint32_t> quantum,
                  std::optional<bool> reverse) const {
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
    const emulator::LaunchSpec spec{.workgroups = workgroups,
                                    .workgroup_size = workgroup_size,
                                    .arguments = std::as_bytes(std::span(explicit_arguments)),
                                    .dynamic_lds_bytes = dynamic_lds,
                                    .memory = ranges,
                                    .schedule = schedule,
                                    .profile = &profile};
    {
      py::gil_scoped_release no_gil;
      emulator::launch(object_, kernel, spec);
    }
    return instruction_mix(kernel, profile);
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
  py::register_exception<emulator::EmulationError>(module, "EmulationError", error);

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
  module.def("kernels", &embedded_kernel_infos);
  module.def(
      "kernel_binary",
      [](const std::string& name) {
        const std::span<const uint8_t> object = embedded_kernel(name).object;
        return py::bytes(reinterpret_cast<const char*>(object.data()), object.size());
      },
      py::arg("name"));
  module.def("profile_start", &profile_start);
  module.def("profile_stop", &profile_stop);

  py::class_<EmulatedObject>(module, "EmulatedObject")
      .def(py::init<const py::bytes&, std::string>(), py::arg("elf"), py::arg("name"))
      .def_property_readonly("name",
                             [](const EmulatedObject& self) { return self.object().name(); })
      .def_property_readonly("kernels",
                             [](const EmulatedObject& self) { return kernels_of(self.object()); })
      .def("disassemble", &EmulatedObject::disassemble, py::arg("kernel"))
      .def("launch", &EmulatedObject::launch, py::arg("kernel"), py::arg("workgroups"),
           py::arg("workgroup_size"), py::arg("arguments"), py::arg("memory"),
           py::arg("dynamic_lds") = 0, py::arg("quantum") = py::none(),
           py::arg("reverse") = py::none());
}

}  // namespace mha_sink
