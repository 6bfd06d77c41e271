// Damaged code objects, launches and calls: each gives a result or a named error, never a crash, a
// hang or a write to memory that the launch may not write.
//
//   fuzz_test [first seed [count]]   in batches of processes; 1000 cases from seed 0 by default
//   fuzz_test seed                   without a batch, for a debugger, when count is 0
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "emulator/code_object.h"
#include "emulator/error.h"
#include "fuzz_call.h"
#include "fuzz_corpus.h"
#include "fuzz_mutate.h"
#include "mha_sink/error.h"

namespace mha_sink::test {
namespace {

using emulator::CodeObject;
using emulator::EmulationError;
using emulator::Kernel;

constexpr uint64_t kBatch = 100;
constexpr unsigned kSecondsPerCase = 60;   // a hundred times what the slowest takes under ASan
constexpr long kMebibytesPerBatch = 2048;  // the first thousand cases need 150 under ASan
constexpr int kTooMuchMemory = 3;          // exit status

// Shared by parent and child.
struct Progress {
  uint64_t seed;  // of the case that runs
  uint64_t ran, refused, failed;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void require_prefix(const std::string& message, const std::string& prefix) {
  require(message.starts_with(prefix), "an error that does not say where: " + message);
}

// What a call refuses, it refuses by an argument's name before anything runs: a kernel that faults
// on arguments that were accepted is a finding.
void require_argument(const std::string& message) {
  const auto has = [&](const char* part) { return message.find(part) != std::string::npos; };
  const bool named = has(": ") && !message.starts_with(": ") && !message.starts_with("kernel ");
  const bool refused =
      (has(" given, ") && message.ends_with(" needed")) || has(" is not supported; supported: ");
  require((named && refused) || message.starts_with("workspace_alloc returned null"),
          "an error that names no argument: " + message);
}

class Fuzzer {
 public:
  explicit Fuzzer(Corpus& corpus) : corpus_(corpus) {
    std::map<std::string, std::vector<uint8_t>> code;
    for (const RecordedLaunch& launch : corpus.launches()) {
      const Layout& layout = layouts_.emplace_back(launch.object);
      const auto text = launch.object.begin() + static_cast<ptrdiff_t>(layout.text.offset);
      std::vector<uint8_t> bytes(text, text + static_cast<ptrdiff_t>(layout.text.bytes));
      const auto [first, inserted] = code.try_emplace(launch.kernel, bytes);
      expect(inserted || first->second == bytes, "line tables change no code: " + launch.kernel);
    }
  }

  // True when it ran to its end, false when it was refused. Any other exception is a finding.
  bool run(uint64_t seed) {
    Dice dice(seed);
    emulator::set_thread_count(dice.once_in(4) ? 2 : 1);
    corpus_.restore();
    switch (seed % 4) {
      case 0:
        return run_object(dice, [&](std::vector<uint8_t>& file, size_t index) {
          damage_structure(dice, file, layouts_[index]);
        });
      case 1:
        return run_object(dice, [&](std::vector<uint8_t>& file, size_t index) {
          const size_t donor = dice.below(layouts_.size());
          damage_code(dice, file, layouts_[index], corpus_.launches()[donor], layouts_[donor]);
        });
      case 2:
        return run_launch(dice);
      default:
        return run_call(dice);
    }
  }

 private:
  template <class Damage>
  bool run_object(Dice& dice, Damage damage) {
    const size_t index = dice.below(layouts_.size());
    const RecordedLaunch& original = corpus_.launches()[index];
    std::vector<uint8_t> file = original.object;
    for (uint64_t left = 1 + dice.below(4); left > 0; --left) damage(file, index);
    std::unique_ptr<CodeObject> object;
    try {
      object = std::make_unique<CodeObject>(file, "damaged");
    } catch (const EmulationError& error) {
      require_prefix(error.what(), "code object damaged: ");
      return false;
    }
    DamagedLaunch launch(original);
    bool ran = true;
    for (const Kernel& kernel : object->kernels()) {
      for (const emulator::Instruction& instruction : kernel.program) {
        describe(kernel, instruction);
      }
      static_profile(kernel);
      ran &= launch_one(*object, kernel, launch.refreshed());
    }
    return ran;
  }

  bool run_launch(Dice& dice) {
    const RecordedLaunch& original = dice.pick(corpus_.launches());
    const CodeObject object(original.object, original.kernel);
    DamagedLaunch launch(original);
    for (uint64_t left = 1 + dice.below(3); left > 0; --left) damage_launch(dice, launch);
    return launch_one(object, object.kernel(original.kernel), launch.refreshed());
  }

  bool launch_one(const CodeObject& object, const Kernel& kernel, emulator::LaunchSpec& spec) {
    emulator::Profile profile;
    spec.profile = &profile;
    bool ran = true;
    try {
      launch(object, kernel, spec);
    } catch (const EmulationError& error) {
      require_prefix(error.what(), "kernel ");
      ran = false;
    }
    for (const emulator::MemoryRange& buffer : spec.memory) {
      require(buffer.writable || corpus_.unchanged(buffer.begin, buffer.bytes),
              "the launch changed the read-only " + buffer.name);
    }
    return ran;
  }

  bool run_call(Dice& dice) {
    const DamagedCall call(
        dice, *std::next(corpus_.problems().begin(),
                         static_cast<ptrdiff_t>(dice.below(corpus_.problems().size()))));
    try {
      if (mha_bwd(call.args(), {}) < 0) {
        require_argument(unsupported_reason());
        return false;
      }
    } catch (const Error& error) {
      require_argument(error.what());
      return false;
    }
    return true;
  }

  Corpus& corpus_;
  std::vector<Layout> layouts_;
};

// Runs [first, end), or until one ends the process.
[[noreturn]] void run_batch(Fuzzer& fuzzer, uint64_t first, uint64_t end, Progress& progress) {
  for (uint64_t seed = first; seed < end; ++seed) {
    progress.seed = seed;
    alarm(kSecondsPerCase);
    try {
      ++(fuzzer.run(seed) ? progress.ran : progress.refused);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "FAILED: seed %lu: %s\n", seed, error.what());
      ++progress.failed;
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    if (usage.ru_maxrss / 1024 > kMebibytesPerBatch) std::_Exit(kTooMuchMemory);
  }
  std::_Exit(0);
}

std::string fate(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    return "did not end in " + std::to_string(kSecondsPerCase) + " seconds";
  }
  if (WIFSIGNALED(status)) return std::string("died of ") + strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) == kTooMuchMemory) {
    return "took more than " + std::to_string(kMebibytesPerBatch) + " MiB";
  }
  return "exited with " + std::to_string(WEXITSTATUS(status));
}

void run_all(Fuzzer& fuzzer, uint64_t first, uint64_t count) {
  void* shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("mmap failed");
  auto& progress = *new (shared) Progress{};
  uint64_t seed = first;
  while (seed < first + count) {
    const uint64_t end = std::min(seed + kBatch, first + count);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child == 0) run_batch(fuzzer, seed, end, progress);
    int status = 0;
    waitpid(child, &status, 0);
    const bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (died) {
      std::fprintf(stderr, "FAILED: seed %lu %s\n", progress.seed, fate(status).c_str());
      ++progress.failed;
    }
    seed = died ? progress.seed + 1 : end;
  }
  std::printf("%lu cases from seed %lu: %lu ran, %lu were refused, %lu failed\n", count, first,
              progress.ran, progress.refused, progress.failed);
  expect(progress.failed == 0, "every damaged case gives a result or a named error");
  expect(progress.ran > 0 && progress.refused > 0, "cases of both outcomes");
}

uint64_t number(const char* text) {
  uint64_t value = 0;
  const char* end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end) {
    std::fprintf(stderr, "usage: fuzz_test [first seed [count]]\n");
    std::exit(2);
  }
  return value;
}

}  // namespace
}  // namespace mha_sink::test

int main(int argc, char** argv) {
  using namespace mha_sink::test;
  const uint64_t first = argc > 1 ? number(argv[1]) : 0, count = argc > 2 ? number(argv[2]) : 1000;
  // Damage makes endless loops; the largest wave of the corpus runs 6000 instructions.
  setenv("MHA_SINK_MAX_INSTRUCTIONS", "20000", 0);
  mha_sink::emulator::set_thread_count(1);
  Corpus corpus;
  Fuzzer fuzzer(corpus);
  if (count == 0) {
    std::printf("seed %lu %s\n", first, fuzzer.run(first) ? "ran" : "was refused");
    return summary();
  }
  run_all(fuzzer, first, count);
  return summary();
}
