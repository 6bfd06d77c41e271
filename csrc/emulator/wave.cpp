#include "emulator/wave.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "emulator/memory_fault.h"

namespace mha_sink::emulator {
namespace {

// vmcnt has six bits on gfx9: the hardware stalls the wave rather than issue a 64th operation.
constexpr size_t kMaxOutstanding = 63;

bool overlap(const PendingVmem::Piece& left, const PendingVmem::Piece& right) {
  return left.lds_address < right.lds_address + right.bytes &&
         right.lds_address < left.lds_address + left.bytes;
}

void deliver_oldest(std::deque<PendingVmem>& queue, std::vector<uint8_t>& lds) {
  const PendingVmem oldest = std::move(queue.front());
  queue.pop_front();
  for (const PendingVmem::Piece& piece : oldest.pieces) {
    std::memcpy(lds.data() + piece.lds_address, oldest.data.data() + piece.data_offset,
                piece.bytes);
    // Bytes that a younger operation also targets stay undefined until that one lands.
    for (const PendingVmem& younger : queue) {
      for (const PendingVmem::Piece& other : younger.pieces) {
        if (overlap(piece, other)) {
          fill_poison(lds.data() + other.lds_address, other.bytes);
        }
      }
    }
  }
}

// Copied from: memcpy fills whole workgroups of registers faster than a loop that -O2 leaves
// scalar.
constexpr auto kPoisonBlock = [] {
  std::array<uint32_t, 1024> block{};
  block.fill(kPoison);
  return block;
}();

}  // namespace

void fill_poison(void* data, size_t bytes) {
  auto* begin = static_cast<uint8_t*>(data);
  for (size_t done = 0; done < bytes; done += sizeof(kPoisonBlock)) {
    std::memcpy(begin + done, kPoisonBlock.data(), std::min(bytes - done, sizeof(kPoisonBlock)));
  }
}

void Wave::issue_vmem() {
  if (vmem.size() >= kMaxOutstanding) wait_vmem(kMaxOutstanding - 1);
  vmem.emplace_back();
}

void Wave::issue_lds_dma(uint64_t lds_address, uint32_t lane_bytes, const uint8_t* data,
                         uint64_t lanes) {
  PendingVmem pending;
  std::vector<uint8_t>& lds = workgroup->lds;
  for (uint64_t left = lanes; left != 0;) {
    const uint32_t first = std::countr_zero(left);
    const uint32_t count = std::countr_one(left >> first);
    const uint64_t begin = lds_address + uint64_t{first} * lane_bytes;
    const uint32_t bytes = count * lane_bytes;
    if (begin + bytes > lds.size()) {
      const uint64_t fits = begin < lds.size() ? (lds.size() - begin) / lane_bytes : 0;
      throw_lds_fault(*this, static_cast<int>(first + fits), begin + fits * lane_bytes, lane_bytes,
                      "DMA write");
    }
    pending.pieces.push_back({static_cast<uint32_t>(begin), bytes, first * lane_bytes});
    left &= first + count == 64 ? 0 : ~uint64_t{0} << (first + count);
  }
  if (!pending.pieces.empty()) {
    pending.data.assign(data, data + size_t{kLanes} * lane_bytes);
    for (const PendingVmem::Piece& piece : pending.pieces) {
      fill_poison(lds.data() + piece.lds_address, piece.bytes);
    }
  }
  if (vmem.size() >= kMaxOutstanding) wait_vmem(kMaxOutstanding - 1);
  vmem.push_back(std::move(pending));
}

void Wave::wait_vmem(size_t outstanding) {
  while (vmem.size() > outstanding) deliver_oldest(vmem, workgroup->lds);
}

}  // namespace mha_sink::emulator
