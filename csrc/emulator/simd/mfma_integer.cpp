// Matrix instructions on bytes: D = A B + C in 32-bit integers, which wrap.
#include "emulator/simd/operands.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

// Layouts are those of the 16-bit floats with four elements a register: a lane of A holds the row
// lane % extent and consecutive k; of D, register r is row 4 * groups * (r / 4) + 4 * group + r
// % 4.
template <int extent, int registers>
void mfma_i8(const Instruction& instruction, Wave& wave) {
  if (instruction.cbsz != 0 || instruction.abid != 0 || instruction.blgp != 0) {
    unsupported(instruction, "cbsz, abid or blgp");
  }
  constexpr int kGroups = kLanes / extent, kDepth = kGroups * registers * 4;
  constexpr int kResults = extent * extent / kLanes;
  int32_t operands[2][kDepth][extent];
  for (int i = 0; i < 2; ++i) {
    for (int r = 0; r < registers; ++r) {
      const uint32_t* lanes =
          vector_register(instruction, wave, instruction.src[i], static_cast<uint32_t>(r));
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int byte = 0; byte < 4; ++byte) {
          const int k = (lane / extent * registers + r) * 4 + byte;
          operands[i][k][lane % extent] = static_cast<int8_t>(lanes[lane] >> (8 * byte));
        }
      }
    }
  }
  const auto row_of = [](int r, int group) { return 4 * kGroups * (r / 4) + 4 * group + r % 4; };
  const Operand& source = instruction.src[2];
  uint32_t sum[extent][extent];
  for (int r = 0; r < kResults; ++r) {
    VectorRegister filled;
    const uint32_t* lanes =
        is_vector(source)
            ? vector_register(instruction, wave, source, static_cast<uint32_t>(r))
            : broadcast(static_cast<uint32_t>(scalar(instruction, wave, source)), filled);
    for (int lane = 0; lane < kLanes; ++lane) {
      sum[row_of(r, lane / extent)][lane % extent] = lanes[lane];
    }
  }
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < extent; ++row) {
      const int32_t factor = operands[0][k][row];
      for (int column = 0; column < extent; ++column) {
        sum[row][column] += static_cast<uint32_t>(factor * operands[1][k][column]);
      }
    }
  }
  for (int r = 0; r < kResults; ++r) {
    uint32_t* lanes = vector_register(instruction, wave, instruction.dst, static_cast<uint32_t>(r));
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = sum[row_of(r, lane / extent)][lane % extent];
    }
  }
}

}  // namespace

void fill_mfma_integer(HandlerTable& t) {
  t[Op::v_mfma_i32_16x16x32_i8] = mfma_i8<16, 2>;
  t[Op::v_mfma_i32_16x16x64_i8] = mfma_i8<16, 4>;
  t[Op::v_mfma_i32_32x32x16_i8] = mfma_i8<32, 2>;
  t[Op::v_mfma_i32_32x32x32_i8] = mfma_i8<32, 4>;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
