// What the fake runtime knows: devices, their memory, streams, graphs and modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/code_object.h"
#include "emulator/launch.h"

#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

namespace fake_hip {

// A call that HIP would refuse: its status, and why in words.
struct Refused : std::runtime_error {
  Refused(hipError_t s, const std::string& why) : std::runtime_error(why), status(s) {}
  hipError_t status;
};

using Work = std::function<void()>;

struct Graph {
  int device = 0;
  std::vector<Work> work;
};

struct Stream {
  int device = 0;
  std::deque<Work> pending;
  std::unique_ptr<Graph> capture;
  bool invalidated = false;
};

struct Event {
  Stream* stream = nullptr;
  bool captured = false;
  double seconds = -1;  // when the stream reached it; negative: not yet
};

struct Module {
  int device;
  std::vector<uint8_t> elf;
  mha_sink::emulator::CodeObject object;
};

struct Function {
  std::shared_ptr<Module> module;
  const mha_sink::emulator::Kernel* kernel;
};

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  size_t mapped = 0;  // bytes of pages of our own; 0: the test's memory
};

struct Patch {
  std::string kernel;
  uint32_t offset;
  std::vector<uint32_t> words;
};

struct State {
  std::mutex mutex;
  int device_count = 2;
  std::map<uintptr_t, Allocation> memory;  // by first address
  std::map<int, Stream> default_streams;
  std::set<Stream*> streams;  // created ones
  std::set<Event*> events;
  std::set<Graph*> graphs;
  std::map<Module*, std::shared_ptr<Module>> modules;
  std::set<Function*> functions;
  std::vector<Patch> patches;
  std::map<std::string, int> calls;
  std::map<std::string, std::map<int, hipError_t>> failures;  // by function and its call
  std::map<int, hipError_t> broken;  // devices whose work has failed: every later wait says so
  std::string message;

  // The allocation of `device` that holds all of a range, or throws Refused.
  void check_memory(const void* data, size_t bytes, int device, const char* what) const;
  const Allocation* allocation_of(const void* data) const;
  Stream& stream(hipStream_t handle);
  bool capturing() const;
  // Throws Refused when any stream is captured, and invalidates the captures, as HIP does for what
  // is not permitted in one.
  void refuse_in_capture(const char* what);
  // To the stream's queue, or to the graph that is captured from it.
  void enqueue(Stream& stream, Work work);
  void finish(Stream& stream);
};

State& state();
int& current_device();  // of the thread

// The host may touch device memory while one lives.
class DeviceAtWork {
 public:
  DeviceAtWork();
  ~DeviceAtWork();
};

std::shared_ptr<Module> load_module(const void* image, int device);
// Throws Refused when `extra` is not exactly the kernel's explicit arguments.
std::vector<std::byte> kernel_arguments(const Function& function, void** parameters, void** extra);
void run(const Function& function, mha_sink::emulator::LaunchSpec spec);

}  // namespace fake_hip
