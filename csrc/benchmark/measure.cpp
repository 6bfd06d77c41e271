#include "benchmark/measure.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "benchmark/device_buffer.h"
#include "device/proxy.h"

namespace mha_sink::benchmark {
namespace {

// Twice MI355X's last level, the 256 MB Infinity Cache.
constexpr size_t kFlushBytes = size_t{512} << 20;

struct Span {
  Event begin, end;
};

// A device that notes an event before and after each launch and memset.
class TimedDevice final : public DeviceProxy {
 public:
  using DeviceProxy::DeviceProxy;

  void launch(const KernelBinary& kernel, const LaunchDims& dims,
              std::span<const std::byte> arguments, std::span<const BufferRange> buffers,
              Stream stream) override {
    timed(kernel.name, stream, [&] { target_.launch(kernel, dims, arguments, buffers, stream); });
  }
  void memset(void* data, int value, size_t bytes, Stream stream) override {
    timed("memset", stream, [&] { target_.memset(data, value, bytes, stream); });
  }

  std::vector<std::pair<std::string, Span>> take_spans() { return std::exchange(spans_, {}); }

 private:
  template <class Work>
  void timed(const char* name, Stream stream, Work&& work) {
    Span span{target_.record(stream), nullptr};
    work();
    span.end = target_.record(stream);
    spans_.emplace_back(name, std::move(span));
  }

  std::vector<std::pair<std::string, Span>> spans_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The median over `repeats` calls, all enqueued before the first is waited for.
template <class Before>
double median_call(Device& device, const Call& call, int repeats, Before&& before) {
  std::vector<Span> spans;
  for (int i = 0; i < repeats; ++i) {
    before();
    Span span{device.record(nullptr), nullptr};
    call(device);
    span.end = device.record(nullptr);
    spans.push_back(std::move(span));
  }
  std::vector<double> times;
  for (const Span& span : spans) times.push_back(device.milliseconds(span.begin, span.end));
  return median(times);
}

std::vector<KernelTime> median_phases(Device& device, const Call& call, int repeats) {
  TimedDevice timed(device);
  std::vector<std::string> names;
  std::vector<std::vector<double>> times;
  for (int i = 0; i < repeats; ++i) {
    call(timed);
    const auto spans = timed.take_spans();
    times.resize(spans.size());
    names.clear();
    for (size_t phase = 0; phase < spans.size(); ++phase) {
      const auto& [name, span] = spans[phase];
      names.push_back(name);
      times[phase].push_back(device.milliseconds(span.begin, span.end));
    }
  }
  std::vector<KernelTime> phases;
  for (size_t phase = 0; phase < names.size(); ++phase) {
    phases.push_back({names[phase], median(times[phase])});
  }
  return phases;
}

}  // namespace

Timing measure_time(Device& device, const Call& call, int warmup, int repeats) {
  for (int i = 0; i < warmup; ++i) call(device);
  Timing timing;
  timing.repeats = repeats;
  timing.warm_ms = median_call(device, call, repeats, [] {});
  timing.phases = median_phases(device, call, repeats);
  DeviceBuffer flush(device, kFlushBytes);
  timing.flushed_ms = median_call(device, call, repeats, [&] { flush.poison(); });
  return timing;
}

Emulation count_instructions(Device& device, const Call& call) {
  using Clock = std::chrono::steady_clock;
  const ProfileSession session;
  const Clock::time_point start = Clock::now();
  call(device);
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  return {elapsed.count(), session.kernels()};
}

}  // namespace mha_sink::benchmark
