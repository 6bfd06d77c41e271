// What the benchmark programs share: the device that they run on and their exit codes.
#pragma once

#include <functional>
#include <string>

#include "device/device.h"

namespace mha_sink::benchmark {

enum ExitCode { kOk = 0, kInvalidResult = 1, kBadArguments = 2, kNotSupported = 3, kCannotRun = 4 };

struct ChosenDevice {
  Device* device;
  std::string reason;  // why not another; empty when it was asked for
};

// "rocm", "emulated" or "auto": rocm where there is a GPU. HIP_VISIBLE_DEVICES chooses among
// several GPUs.
ChosenDevice choose_device(const std::string& wanted);

template <class Report>
ExitCode show(const Report& report, bool json) {
  json ? print_json(report) : print_text(report);
  return report.valid() ? kOk : kInvalidResult;
}

// The command's own exit code, or that of what it threw, with the message on stderr.
int exit_code(const char* program, const std::function<int()>& command);

}  // namespace mha_sink::benchmark
