// What this library was built with. The build generates the definition.
#pragma once

namespace mha_sink {

struct BuildInfo {
  const char* version;
  const char* hip_compiler;         // command that compiled the kernels
  const char* hip_compiler_reason;  // why that one was chosen
  const char* hip_compiler_version;
  const char* hip_flags;
  const char* host_compiler;
};

const BuildInfo& build_info();

}  // namespace mha_sink
