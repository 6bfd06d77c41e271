#include "emulator/access_counter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "emulator/lds_banks.h"
#include "emulator/memory_access.h"

namespace mha_sink::emulator {
namespace {

constexpr uint8_t kRead = 1, kWritten = 2;
// What LDS-DMA writes in a clock: consecutive dwords over 32 banks.
constexpr uint32_t kLdsWriteBytes = 128;

uint8_t touch_of(AccessKind kind) {
  switch (kind) {
    case AccessKind::load:
      return kRead;
    case AccessKind::store:
      return kWritten;
    default:
      return kRead | kWritten;
  }
}

}  // namespace

AccessCounts& AccessCounts::operator+=(const AccessCounts& other) {
  sites.resize(std::max(sites.size(), other.sites.size()));
  for (size_t i = 0; i < other.sites.size(); ++i) {
    sites[i].bytes += other.sites[i].bytes;
    sites[i].lines += other.sites[i].lines;
    sites[i].lds_bytes += other.sites[i].lds_bytes;
    sites[i].lds_clocks += other.sites[i].lds_clocks;
    sites[i].lds_least_clocks += other.sites[i].lds_least_clocks;
  }
  for (const auto& [name, counts] : other.buffers) {
    BufferCounts& total = buffers[name];
    total.lines += counts.lines;
    total.lines_read += counts.lines_read;
    total.lines_written += counts.lines_written;
    total.workgroup_lines += counts.workgroup_lines;
  }
  return *this;
}

class AccessCounter::ThreadCounter final : public Observer {
 public:
  explicit ThreadCounter(AccessCounter& totals)
      : totals_(totals), sites_(totals.sites_.size()), regions_(totals.regions_.size()) {
    for (const Instruction& instruction : totals.kernel_.program) {
      shapes_.push_back(access_shape(instruction));
    }
    for (size_t i = 0; i < regions_.size(); ++i) {
      regions_[i].touched.resize(totals.regions_[i].touched.size());
      regions_[i].last_workgroup.resize(totals.regions_[i].touched.size());
    }
  }

  void start(const Workgroup&, std::span<Wave>) override { ++workgroup_; }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    const AccessShape& shape = shapes_[pc];
    if (shape.space == MemorySpace::none || shape.space == MemorySpace::scratch) return;
    SiteCounts& site = sites_[pc];
    for (unsigned which = 0; which < shape.accesses; ++which) {
      const LaneAddresses addresses = lane_addresses(instruction, shape, wave, which);
      if (shape.space == MemorySpace::lds) {
        count_lds(site, shape, addresses);
      } else {
        count_global(site, shape, addresses);
      }
    }
    if (shape.lds_dma) {
      const uint64_t bytes = uint64_t{shape.dma_bytes} * std::popcount(wave.exec());
      const uint64_t clocks = (bytes + kLdsWriteBytes - 1) / kLdsWriteBytes;
      site.lds_bytes += bytes;
      site.lds_clocks += clocks;
      site.lds_least_clocks += clocks;
    }
  }

  void finish() override {
    const std::lock_guard lock(totals_.mutex_);
    AccessCounts sum;
    sum.sites = std::move(totals_.sites_);
    sum += AccessCounts{std::move(sites_), {}};
    totals_.sites_ = std::move(sum.sites);
    for (size_t i = 0; i < regions_.size(); ++i) {
      Region& total = totals_.regions_[i];
      total.workgroup_lines += regions_[i].workgroup_lines;
      for (size_t line = 0; line < total.touched.size(); ++line) {
        total.touched[line] |= regions_[i].touched[line];
      }
    }
  }

 private:
  using Line = std::pair<size_t, uint64_t>;  // index of the region, line in it
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  struct Lines {
    std::vector<uint8_t> touched;
    std::vector<uint32_t> last_workgroup;  // that touched the line, numbered from 1
    uint64_t workgroup_lines = 0;
  };

  void count_lds(SiteCounts& site, const AccessShape& shape, const LaneAddresses& addresses) {
    const LdsClocks clocks =
        lds_clocks(shape.kind, shape.bytes, addresses.lanes, addresses.address);
    site.lds_bytes += uint64_t{shape.bytes} * std::popcount(addresses.lanes);
    site.lds_clocks += clocks.clocks;
    site.lds_least_clocks += clocks.least;
  }

  void count_global(SiteCounts& site, const AccessShape& shape, const LaneAddresses& addresses) {
    std::array<Line, 2 * kLanes> lines;
    size_t used = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((addresses.lanes >> lane & 1) == 0) continue;
      const uint32_t bytes = addresses.bytes(lane, shape.bytes);
      if (bytes == 0) continue;
      site.bytes += bytes;
      const Line first = line_of(addresses.address[lane]);
      const Line last = line_of(addresses.address[lane] + bytes - 1);
      // Neighbours mostly share their line.
      if (used == 0 || lines[used - 1] != first) lines[used++] = first;
      if (last != first) lines[used++] = last;
    }
    std::sort(lines.begin(), lines.begin() + used);
    const auto end = std::unique(lines.begin(), lines.begin() + used);
    site.lines += end - lines.begin();
    std::for_each(lines.begin(), end, [&](Line line) { touch(line, touch_of(shape.kind)); });
  }

  // Kernel arguments and constants lie in no region: kNone, and lines of the address space.
  Line line_of(uint64_t address) {
    const std::vector<Region>& all = totals_.regions_;
    const auto has = [&](size_t i) {
      return i < all.size() && address >= all[i].begin && address < all[i].end;
    };
    if (!has(last_region_)) {
      const auto found = std::partition_point(
          all.begin(), all.end(), [&](const Region& region) { return region.end <= address; });
      const size_t index = static_cast<size_t>(found - all.begin());
      if (!has(index)) return {kNone, address / kLineBytes};
      last_region_ = index;
    }
    return {last_region_, (address - all[last_region_].begin) / kLineBytes};
  }

  void touch(Line line, uint8_t how) {
    if (line.first == kNone) return;
    Lines& lines = regions_[line.first];
    lines.touched[line.second] |= how;
    if (lines.last_workgroup[line.second] != workgroup_) {
      lines.last_workgroup[line.second] = workgroup_;
      ++lines.workgroup_lines;
    }
  }

  AccessCounter& totals_;
  std::vector<AccessShape> shapes_;
  std::vector<SiteCounts> sites_;
  std::vector<Lines> regions_;
  uint32_t workgroup_ = 0;
  size_t last_region_ = kNone;
};

AccessCounter::AccessCounter(const Kernel& kernel, std::span<const MemoryRange> memory)
    : kernel_(kernel), sites_(kernel.program.size()) {
  std::vector<MemoryRange> ranges(memory.begin(), memory.end());
  std::erase_if(ranges, [](const MemoryRange& range) { return range.bytes == 0; });
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  for (const MemoryRange& range : ranges) {
    const uint64_t end = range.begin + range.bytes;
    if (!regions_.empty() && range.begin < regions_.back().end) {
      Region& last = regions_.back();
      last.name += "+" + range.name;
      last.end = std::max(last.end, end);
    } else {
      regions_.push_back({range.name, range.begin, end, {}});
    }
  }
  for (Region& region : regions_) {
    region.touched.resize((region.end - region.begin + kLineBytes - 1) / kLineBytes);
  }
}

AccessCounter::~AccessCounter() = default;

ObserverFactory AccessCounter::observers() {
  return [this] { return std::make_unique<ThreadCounter>(*this); };
}

AccessCounts AccessCounter::counts() const {
  AccessCounts counts{sites_, {}};
  for (const Region& region : regions_) {
    BufferCounts& buffer = counts.buffers[region.name];
    for (const uint8_t touched : region.touched) {
      buffer.lines += touched != 0;
      buffer.lines_read += (touched & kRead) != 0;
      buffer.lines_written += (touched & kWritten) != 0;
    }
    buffer.workgroup_lines += region.workgroup_lines;
  }
  return counts;
}

}  // namespace mha_sink::emulator
