// dq = scale * dq_acc, rounded to the tensor's type.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/math.h"
#include "hip/mha/params.h"
#include "hip/tile/lds_tile.h"

namespace mha_sink::mha {

using namespace tile;

template <int kHeadDim>
struct ConvertDq {
  static constexpr int kThreads = 256;
  static constexpr int kRowLanes = kHeadDim / 8;  // 8 elements a lane: one 16-byte store
  static constexpr int kPassRows = kThreads / kRowLanes;

  static MHA_SINK_DEVICE void run(const ConvertDqParams& p) {
    const int row0 = workgroup_id_x() * kRowPadding;
    const int head = workgroup_id_y(), batch = workgroup_id_z();
    const int rows = min(p.seqlen_q - row0, kRowPadding);
    const int column = thread_id() % kRowLanes * 8;
    const float* acc = p.dq_acc +
                       ((int64_t{batch} * p.nhead_q + head) * p.seqlen_q_padded + row0) * kHeadDim +
                       column;
    bf16* first = static_cast<bf16*>(p.dq.data) + batch * p.dq.batch_stride +
                  row0 * p.dq.seqlen_stride + head * p.dq.nhead_stride;
    const Buffer dq = row_buffer<kHeadDim>(first, p.dq.seqlen_stride, rows);
    for (int row = thread_id() / kRowLanes; row < rows; row += kPassRows) {
      const f32x4 low = *reinterpret_cast<const f32x4*>(acc + row * kHeadDim) * p.scale;
      const f32x4 high = *reinterpret_cast<const f32x4*>(acc + row * kHeadDim + 4) * p.scale;
      const u32x4 packed = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]),
                            pack_bf16(high[0], high[1]), pack_bf16(high[2], high[3])};
      buffer_store_16_bytes(dq, row * static_cast<int>(p.dq.seqlen_stride) * 2 + column * 2,
                            packed);
    }
  }
};

}  // namespace mha_sink::mha
