#include "benchmark/program.h"

#include <cstdio>
#include <exception>
#include <new>

#include "benchmark/options.h"
#include "host/checks.h"

namespace mha_sink::benchmark {

ChosenDevice choose_device(const std::string& wanted) {
  if (wanted == "emulated") return {&emulated_device(), ""};
  try {
    return {&rocm_device(0), ""};
  } catch (const Error& error) {
    if (wanted == "rocm") throw Unsupported(error.what());
    return {&emulated_device(), error.what()};
  }
}

int exit_code(const char* program, const std::function<int()>& command) {
  const auto complain = [&](const char* what, ExitCode code) {
    std::fprintf(stderr, "%s: %s\n", program, what);
    return code;
  };
  try {
    return command();
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

}  // namespace mha_sink::benchmark
