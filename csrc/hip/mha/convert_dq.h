// dq = scale * dq_acc, rounded to the tensor's type.
#pragma once

#include "hip/arch/buffer.h"
#include "hip/arch/math.h"
#include "hip/mha/params.h"
#include "hip/mha/sequence.h"
#include "hip/mha/tensor.h"

namespace mha_sink::mha {

template <Dtype kDtype>
struct ConvertDq {
  static constexpr int kThreads = 256;

  template <int kRowLanes>
  static MHA_SINK_DEVICE void run(const ConvertDqParams& p) {
    constexpr int kPassRows = kThreads / kRowLanes;
    const SequenceTile sequence(p.batch, kRowPadding, workgroup_id_x(), workgroup_id_z(), true);
    const int row0 = sequence.tile * kRowPadding, head = workgroup_id_y();
    const int rows = min(sequence.rows.seqlen_q - row0, kRowPadding);
    if (sequence.tile < 0 || rows <= 0) return;
    const int column = thread_id() % kRowLanes * 8;
    if (column >= p.hdim) return;
    const float* acc =
        sequence.accumulator(p.dq_acc, head, p.hdim) + int64_t{row0} * p.hdim + column;
    const Buffer dq =
        row_buffer(p.dq, sequence.batch, sequence.rows.first_query + row0, head, rows, p.hdim);
    for (int row = thread_id() / kRowLanes; row < rows; row += kPassRows) {
      const auto* source = reinterpret_cast<const f32x4*>(acc + row * p.hdim);
      const f32x4 low = source[0] * p.scale, high = source[1] * p.scale;
      const u32x4 packed = {pack<kDtype>(low[0], low[1]), pack<kDtype>(low[2], low[3]),
                            pack<kDtype>(high[0], high[1]), pack<kDtype>(high[2], high[3])};
      buffer_store_16_bytes(dq, row * row_bytes(p.dq) + column * 2, packed);
    }
  }
};

}  // namespace mha_sink::mha
