// Matrix instructions D = A B + C. EXEC and the float mode are ignored; fp32 accumulation by fused
// multiply-adds in ascending k, one rounding each (the hardware's own order is not published).
#include "emulator/simd/float_lanes.h"
#include "emulator/simd/operands.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

#if defined(__AVX512F__)
using Vector = __m512;
inline Vector load_vector(const void* p) { return _mm512_loadu_ps(p); }
inline void store_vector(void* p, Vector x) { _mm512_storeu_ps(p, x); }
template <bool>
inline Vector multiply_add(float a, Vector b, Vector c) {
  return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c);
}
#elif defined(__FMA__)
using Vector = __m256;
inline Vector load_vector(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
inline void store_vector(void* p, Vector x) { _mm256_storeu_ps(static_cast<float*>(p), x); }
template <bool>
inline Vector multiply_add(float a, Vector b, Vector c) {
  return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
}
#else
struct Vector {
  float value[4];
};
inline Vector load_vector(const void* p) {
  Vector x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
inline void store_vector(void* p, const Vector& x) { __builtin_memcpy(p, &x, sizeof x); }
// An exact product makes the sum's rounding the only one: the same bits as fma, and no fma needed.
template <bool products_exact>
inline Vector multiply_add(float a, const Vector& b, const Vector& c) {
  Vector result;
  for (int i = 0; i < 4; ++i) {
    result.value[i] =
        products_exact ? a * b.value[i] + c.value[i] : fused(a, b.value[i], c.value[i]);
  }
  return result;
}
#endif
inline constexpr int kWidth = sizeof(Vector) / sizeof(float);

enum class Element { bf16, f16, f32 };

// A and B are stored alike: the lane's row of A (column of B) is lane % extent, and each of the
// 64 / extent groups of lanes holds consecutive k. Shapes and layouts: facts verified by running
// compiled kernels of Triton and aiter.
template <int extent_, int registers_, Element element_>
struct Shape {
  static constexpr int kExtent = extent_;        // rows of A and D, columns of B and D
  static constexpr int kRegisters = registers_;  // of A and of B
  static constexpr Element kElement = element_;
  static constexpr int kGroups = kLanes / kExtent;
  static constexpr int kPerRegister = kElement == Element::f32 ? 1 : 2;
  static constexpr int kDepth = kGroups * kRegisters * kPerRegister;
  static constexpr int kResultRegisters = kExtent * kExtent / kLanes;
};

// A or B as fp32, k by k: row k holds the operand's `extent` values for that k.
template <class S>
struct alignas(64) Panel {
  float row[S::kDepth][S::kExtent];
};

template <class S>
void unpack(const Instruction& instruction, const Wave& wave, const Operand& operand,
            Panel<S>& panel) {
  for (int r = 0; r < S::kRegisters; ++r) {
    const uint32_t* lanes = vector_register(instruction, wave, operand, static_cast<uint32_t>(r));
    for (int group = 0; group < S::kGroups; ++group) {
      const int k = (group * S::kRegisters + r) * S::kPerRegister;
      for (int i = 0; i < S::kExtent; ++i) {
        const uint32_t bits = lanes[group * S::kExtent + i];
        if constexpr (S::kElement == Element::f32) {
          panel.row[k][i] = as_float(bits);
        } else if constexpr (S::kElement == Element::bf16) {
          panel.row[k][i] = as_float(bits << 16);
          panel.row[k + 1][i] = as_float(bits & 0xffff0000u);
        } else {
          panel.row[k][i] = half_to_float(bits & 0xffffu);
          panel.row[k + 1][i] = half_to_float(bits >> 16);
        }
      }
    }
  }
}

// C and D: register r, lanes group * extent ..: row 4 * groups * (r / 4) + 4 * group + r % 4.
template <class S>
constexpr int row_of(int r, int group) {
  return 4 * S::kGroups * (r / 4) + 4 * group + r % 4;
}

#if !defined(__FMA__) && !defined(__ARM_FEATURE_FMA)
// Products of two 16-bit floats have at most 22 significant bits: exact in fp32 while both factors
// are zero or within 2^+-62, so that the product stays normal.
template <class S>
bool products_exact(const Panel<S>& a, const Panel<S>& b) {
  if (S::kElement == Element::f32) return false;
  bool outside = false;
  for (int k = 0; k < S::kDepth; ++k) {
    for (int i = 0; i < S::kExtent; ++i) {
      for (const float x : {a.row[k][i], b.row[k][i]}) {
        const uint32_t magnitude = bits_of(x) & ~kSign;
        outside |= (magnitude != 0) & (magnitude - bits_of(0x1p-62f) > (124u << 23));
      }
    }
  }
  return !outside;
}
#endif

// c and d: one pointer to 64 lanes for each result register; d may be c.
template <class S, bool products_exact>
void multiply(const Panel<S>& a, const Panel<S>& b, const uint32_t* const* c, uint32_t* const* d) {
  constexpr int kVectors = S::kExtent / kWidth;
  // Rows at a time: enough independent accumulators to cover the latency of fma (4 cycles, 2 a
  // cycle), few enough for 16 vector registers.
  constexpr int kRows = kVectors >= 4 ? 2 : 4;
  for (int r = 0; r < S::kResultRegisters; r += kRows) {
    for (int group = 0; group < S::kGroups; ++group) {
      const int first = group * S::kExtent;
      Vector sum[kRows][kVectors];
      for (int i = 0; i < kRows; ++i) {
        for (int v = 0; v < kVectors; ++v) sum[i][v] = load_vector(c[r + i] + first + v * kWidth);
      }
      for (int k = 0; k < S::kDepth; ++k) {
        for (int v = 0; v < kVectors; ++v) {
          const Vector column = load_vector(b.row[k] + v * kWidth);
          for (int i = 0; i < kRows; ++i) {
            sum[i][v] =
                multiply_add<products_exact>(a.row[k][row_of<S>(r + i, group)], column, sum[i][v]);
          }
        }
      }
      for (int i = 0; i < kRows; ++i) {
        for (int v = 0; v < kVectors; ++v) store_vector(d[r + i] + first + v * kWidth, sum[i][v]);
      }
    }
  }
}

template <class S>
void mfma(const Instruction& instruction, Wave& wave) {
  if (instruction.cbsz != 0 || instruction.abid != 0 || instruction.blgp != 0) {
    unsupported(instruction, "cbsz, abid or blgp");
  }
  Panel<S> a, b;
  unpack(instruction, wave, instruction.src[0], a);
  unpack(instruction, wave, instruction.src[1], b);

  const Operand& source = instruction.src[2];
  const Operand& result = instruction.dst;
  const bool overlaps = source.kind == result.kind && source.index != result.index &&
                        source.index < result.index + S::kResultRegisters &&
                        result.index < source.index + S::kResultRegisters;
  // LLVM allocates such registers for results of 128 bits (Triton's kernels have them) and forbids
  // them for larger ones, whose first results are written before the last of C is read.
  constexpr bool kReadsAllFirst = S::kResultRegisters <= 4;
  if (overlaps && !kReadsAllFirst) unsupported(instruction, "C that overlaps D without being D");
  VectorRegister filled;
  const uint32_t* c[S::kResultRegisters];
  uint32_t* d[S::kResultRegisters];
  if (!is_vector(source)) {
    broadcast(static_cast<uint32_t>(scalar(instruction, wave, source)), filled);
  }
  for (uint32_t r = 0; r < S::kResultRegisters; ++r) {
    c[r] = is_vector(source) ? vector_register(instruction, wave, source, r) : filled.lane;
    d[r] = vector_register(instruction, wave, result, r);
  }
  VectorRegister before[kReadsAllFirst ? S::kResultRegisters : 1];
  if constexpr (kReadsAllFirst) {
    for (int r = 0; overlaps && r < S::kResultRegisters; ++r) {
      __builtin_memcpy(before[r].lane, c[r], sizeof before[r].lane);
      c[r] = before[r].lane;
    }
  }
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  multiply<S, false>(a, b, c, d);
#else
  products_exact(a, b) ? multiply<S, true>(a, b, c, d) : multiply<S, false>(a, b, c, d);
#endif
}

}  // namespace

void fill_mfma(HandlerTable& t) {
  t[Op::v_mfma_f32_32x32x16_bf16] = mfma<Shape<32, 4, Element::bf16>>;
  t[Op::v_mfma_f32_16x16x32_bf16] = mfma<Shape<16, 4, Element::bf16>>;
  t[Op::v_mfma_f32_32x32x8_bf16] = mfma<Shape<32, 2, Element::bf16>>;
  t[Op::v_mfma_f32_16x16x16_bf16] = mfma<Shape<16, 2, Element::bf16>>;
  t[Op::v_mfma_f32_32x32x16_f16] = mfma<Shape<32, 4, Element::f16>>;
  t[Op::v_mfma_f32_16x16x32_f16] = mfma<Shape<16, 4, Element::f16>>;
  t[Op::v_mfma_f32_32x32x8_f16] = mfma<Shape<32, 2, Element::f16>>;
  t[Op::v_mfma_f32_16x16x16_f16] = mfma<Shape<16, 2, Element::f16>>;
  t[Op::v_mfma_f32_32x32x2_f32] = mfma<Shape<32, 1, Element::f32>>;
  t[Op::v_mfma_f32_16x16x4_f32] = mfma<Shape<16, 1, Element::f32>>;
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
