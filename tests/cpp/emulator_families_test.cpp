// Layouts, lane patterns and special cases of the emulator's vector families, at every SIMD level
// that this processor has, and all levels against each other bit for bit.
#include <cmath>
#include <functional>
#include <iterator>

#include "wave_fixture.h"

namespace mha_sink::test {
namespace {

constexpr uint64_t kSomeLanes = 0x8f0f'1234'5555'fff1u;

std::string label(SimdLevel level, const std::string& what) {
  return std::string(to_string(level)) + ": " + what;
}

double half_value(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) size = fraction == 0 ? INFINITY : NAN;
  return bits & 0x8000 ? -size : size;
}

double bfloat_value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// Where the elements of A (of B, with the column for the row) and of D are.
struct Place {
  int reg, lane, half;
};
struct MatrixShape {
  Op op;
  int extent, depth;
  enum { bf16, f16, f32 } type;

  Place input(int row, int k) const {
    const int per_lane = depth / (kLanes / extent);
    const int in_lane = k % per_lane, lane = row + extent * (k / per_lane);
    return type == f32 ? Place{in_lane, lane, 0} : Place{in_lane / 2, lane, in_lane % 2};
  }
  Place output(int row, int column) const {
    if (extent == 16) return {row % 4, 16 * (row / 4) + column, 0};
    return {4 * (row / 8) + row % 4, 32 * (row / 4 % 2) + column, 0};
  }
};

void test_mfma(SimdLevel level, const HandlerTable& table) {
  const MatrixShape shapes[] = {
      {Op::v_mfma_f32_32x32x16_bf16, 32, 16, MatrixShape::bf16},
      {Op::v_mfma_f32_16x16x32_bf16, 16, 32, MatrixShape::bf16},
      {Op::v_mfma_f32_32x32x8_bf16, 32, 8, MatrixShape::bf16},
      {Op::v_mfma_f32_16x16x16_bf16, 16, 16, MatrixShape::bf16},
      {Op::v_mfma_f32_32x32x16_f16, 32, 16, MatrixShape::f16},
      {Op::v_mfma_f32_16x16x32_f16, 16, 32, MatrixShape::f16},
      {Op::v_mfma_f32_32x32x8_f16, 32, 8, MatrixShape::f16},
      {Op::v_mfma_f32_16x16x16_f16, 16, 16, MatrixShape::f16},
      {Op::v_mfma_f32_32x32x2_f32, 32, 2, MatrixShape::f32},
      {Op::v_mfma_f32_16x16x4_f32, 16, 4, MatrixShape::f32},
  };
  std::mt19937 random(7);
  for (const MatrixShape& shape : shapes) {
    for (int variant = 0; variant < 4; ++variant) {
      TestWave test;
      for (uint32_t i = 0; i < kRegisters; ++i) {
        for (int lane = 0; lane < kLanes; ++lane) {
          uint32_t bits = std::bit_cast<uint32_t>(
              static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 300.0f);
          // Two bf16 or fp16 values of magnitude 2^-3 .. 2^3.
          if (i < 24 && shape.type != MatrixShape::f32) {
            const uint32_t low = shape.type == MatrixShape::bf16 ? 0x3e00 : 0x3000;
            const uint32_t span = shape.type == MatrixShape::bf16 ? 0x300 : 0x1800;
            bits = (low + random() % span) | (random() % 2) << 15 |
                   ((low + random() % span) | (random() % 2) << 15) << 16;
          }
          test.vgpr[i].lane[lane] = test.agpr[i].lane[lane] = bits;
        }
      }
      // EXEC and the float mode do not matter.
      test.wave.write64(kExec, variant == 1 ? kSomeLanes : ~uint64_t{0});
      test.wave.mode.flush_f32 = variant == 1;
      Instruction instruction = instruction_for(shape.op);
      const unsigned inputs = dwords(opcode_row(shape.op).source[0]);
      const unsigned outputs = dwords(opcode_row(shape.op).destination);
      instruction.src[0] = variant == 2 ? agpr(8, inputs) : vgpr(8, inputs);
      instruction.src[1] = variant == 2 ? agpr(16, inputs) : vgpr(16, inputs);
      instruction.src[2] = variant == 3 ? constant(0x3f800000) : vgpr(64, outputs);
      instruction.dst = vgpr(variant == 0 ? 64 : 96, outputs);
      if (variant == 2) instruction.dst = agpr(96, outputs);
      const TestWave before = test;
      execute(table, instruction, test);

      const auto element = [&](int operand, int row, int k) -> double {
        const Place place = shape.input(row, k);
        const uint32_t bits =
            before.vgpr[8 + 8 * operand + place.reg].lane[place.lane] >> (16 * place.half);
        if (shape.type == MatrixShape::f32) return std::bit_cast<float>(bits);
        return shape.type == MatrixShape::bf16 ? bfloat_value(bits & 0xffff)
                                               : half_value(bits & 0xffff);
      };
      double worst = 0;
      for (int row = 0; row < shape.extent; ++row) {
        for (int column = 0; column < shape.extent; ++column) {
          const Place place = shape.output(row, column);
          const float c = variant == 3
                              ? 1.0f
                              : std::bit_cast<float>(before.vgpr[64 + place.reg].lane[place.lane]);
          double exact = c, size = std::abs(c);
          for (int k = 0; k < shape.depth; ++k) {
            const double product = element(0, row, k) * element(1, column, k);
            exact += product;
            size += std::abs(product);
          }
          const VectorRegister* file = variant == 2 ? test.agpr.get() : test.vgpr.get();
          const float d =
              std::bit_cast<float>(file[(variant == 0 ? 64 : 96) + place.reg].lane[place.lane]);
          // One rounding of 2^-24 for each of `depth` partial sums.
          worst = std::max(worst, std::abs(d - exact) / (size * shape.depth * 0x1p-24));
          if (!(worst <= 1)) worst = INFINITY;
        }
      }
      expect(worst <= 1,
             label(level, std::string(mnemonic(shape.op)) + " variant " + std::to_string(variant) +
                              ": error " + std::to_string(worst) + " of the bound"));
    }
  }
  TestWave test;
  Instruction instruction = instruction_for(Op::v_mfma_f32_16x16x32_bf16);
  instruction.cbsz = 1;
  expect_throw<EmulationError>([&] { execute(table, instruction, test); }, "cbsz",
                               label(level, "cbsz on a bf16 MFMA"));
}

struct DppCase {
  int control;
  std::function<int(int)> from;  // negative: no source lane
};

void test_dpp(SimdLevel level, const HandlerTable& table) {
  std::vector<DppCase> cases;
  for (int control : {0x00, 0xe4, 0xb1, 0x4e, 0x1b, 0xff, 0x93}) {
    cases.push_back({control, [control](int l) { return l / 4 * 4 + (control >> l % 4 * 2 & 3); }});
  }
  for (int n = 1; n < 16; ++n) {
    cases.push_back({0x100 + n, [n](int l) { return l % 16 + n < 16 ? l + n : -1; }});
    cases.push_back({0x110 + n, [n](int l) { return l % 16 - n >= 0 ? l - n : -1; }});
    cases.push_back({0x120 + n, [n](int l) { return l / 16 * 16 + (l % 16 + 16 - n) % 16; }});
  }
  for (int n = 0; n < 16; ++n) {
    cases.push_back({0x150 + n, [n](int l) { return l / 16 * 16 + n; }});
  }
  cases.push_back({0x130, [](int l) { return l == 63 ? -1 : l + 1; }});
  cases.push_back({0x134, [](int l) { return (l + 1) % 64; }});
  cases.push_back({0x138, [](int l) { return l == 0 ? -1 : l - 1; }});
  cases.push_back({0x13c, [](int l) { return (l + 63) % 64; }});
  cases.push_back({0x140, [](int l) { return l / 16 * 16 + 15 - l % 16; }});
  cases.push_back({0x141, [](int l) { return l / 8 * 8 + 7 - l % 8; }});
  cases.push_back({0x142, [](int l) { return l < 16 ? -1 : l / 16 * 16 - 1; }});
  cases.push_back({0x143, [](int l) { return l < 32 ? -1 : 31; }});
  std::mt19937 random(3);
  for (const DppCase& c : cases) {
    for (int variant = 0; variant < 8; ++variant) {
      TestWave test;
      randomize(test, random);
      const uint64_t exec = variant & 1 ? kSomeLanes : ~uint64_t{0};
      test.wave.write64(kExec, exec);
      Instruction instruction = instruction_for(Op::v_add_u32);
      instruction.dpp = Dpp::dpp16;
      instruction.dpp_ctrl = static_cast<uint16_t>(c.control);
      instruction.bound_ctrl = variant & 2;
      if (variant & 4) {
        instruction.row_mask = 0xa;
        instruction.bank_mask = 0x7;
      }
      // In place, as reductions do.
      if (variant == 3) instruction.dst = instruction.src[0];
      TestWave before = test;
      execute(table, instruction, test);
      bool right = true;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int from = c.from(lane);
        const bool valid = from >= 0 && (exec >> from & 1);
        bool written = (exec >> lane & 1) && (valid || instruction.bound_ctrl) &&
                       (instruction.row_mask >> lane / 16 & 1) &&
                       (instruction.bank_mask >> lane / 4 % 4 & 1);
        const uint32_t sum = (valid ? before.v(8, from) : 0) + before.v(16, lane);
        const unsigned d = instruction.dst.index;
        right = right && test.v(d, lane) == (written ? sum : before.v(d, lane));
      }
      expect(right, label(level, "DPP control " + std::to_string(c.control) + " variant " +
                                     std::to_string(variant)));
    }
  }
  TestWave test;
  Instruction instruction = instruction_for(Op::v_add_u32);
  instruction.dpp = Dpp::dpp16;
  for (int control : {0x100, 0x110, 0x120, 0x131, 0x144, 0x160}) {
    instruction.dpp_ctrl = static_cast<uint16_t>(control);
    expect_throw<EmulationError>([&] { execute(table, instruction, test); }, "DPP control",
                                 label(level, "DPP control " + std::to_string(control)));
  }
}

void test_cross_lane(SimdLevel level, const HandlerTable& table) {
  std::mt19937 random(5);
  for (Op op : {Op::v_permlane16_swap_b32, Op::v_permlane32_swap_b32}) {
    const int width = op == Op::v_permlane16_swap_b32 ? 16 : 32;
    TestWave test;
    randomize(test, random);
    test.wave.write64(kExec, kSomeLanes);
    TestWave before = test;
    execute(table, instruction_for(op), test);
    bool right = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      const bool upper = lane / width % 2 == 1;
      right = right && test.v(40, lane) == (upper ? before.v(8, lane - width) : before.v(40, lane));
      right = right && test.v(8, lane) == (upper ? before.v(8, lane) : before.v(40, lane + width));
    }
    expect(right, label(level, std::string(mnemonic(op))));
  }
  TestWave test;
  randomize(test, random);
  test.wave.write64(kExec, uint64_t{1} << 9 | uint64_t{1} << 50);
  execute(table, instruction_for(Op::v_readfirstlane_b32), test);
  expect(test.wave.sgpr[20] == test.v(8, 9), label(level, "v_readfirstlane_b32"));
  execute(table, instruction_for(Op::v_readlane_b32), test);
  expect(test.wave.sgpr[20] == test.v(8, 37), label(level, "v_readlane_b32"));
  execute(table, instruction_for(Op::v_writelane_b32), test);
  expect(test.v(40, 37) == test.wave.sgpr[12], label(level, "v_writelane_b32"));
  test.wave.write64(kExec, 0);
  execute(table, instruction_for(Op::v_readfirstlane_b32), test);
  expect(test.wave.sgpr[20] == test.v(8, 0), label(level, "v_readfirstlane_b32 without lanes"));

  // The usual pair counts the lanes below: the lane's own number when all bits are set.
  test.wave.write64(kExec, ~uint64_t{0});
  Instruction low = instruction_for(Op::v_mbcnt_lo_u32_b32);
  low.src[0] = constant(~uint64_t{0});
  low.src[1] = constant(0);
  Instruction high = instruction_for(Op::v_mbcnt_hi_u32_b32);
  high.src[0] = constant(~uint64_t{0});
  high.src[1] = vgpr(40);
  execute(table, low, test);
  execute(table, high, test);
  bool right = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    right = right && test.v(40, lane) == static_cast<uint32_t>(lane);
  }
  expect(right, label(level, "v_mbcnt_lo and v_mbcnt_hi give the lane number"));
}

// The nearer of the two neighbours, ties to the even one.
uint32_t nearest_bfloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t down = bits >> 16, up = down + 1;
  const double below = std::abs(bfloat_value(down)), size = std::abs(static_cast<double>(x));
  // Above the largest finite value the next step is where 2^128 would be.
  const double above = (up & 0x7fff) == 0x7f80 ? 0x1p128 : std::abs(bfloat_value(up));
  if (size - below < above - size) return down;
  if (size - below > above - size) return up;
  return down % 2 == 0 ? down : up;
}

void test_bfloat(SimdLevel level, const HandlerTable& table) {
  std::vector<float> values = {
      0.0f,        -0.0f,     1.0f,        0x1.fep0f, 0x1.01p0f, 0x1.03p0f,       0x1.0101p0f,
      0x1p-149f,   0x1p-133f, 0x1.8p-134f, 0x1p-134f, 0x1p-126f, 0x1.fffffep127f, -0x1.fefffep127f,
      0x1.ffp127f, INFINITY,  -INFINITY};
  std::mt19937 random(11);
  while (values.size() < 64 * 64) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) values.push_back(x);
  }
  bool right = true;
  for (size_t first = 0; first < values.size(); first += kLanes) {
    TestWave test;
    for (int lane = 0; lane < kLanes; ++lane) {
      test.set(8, lane, values[first + lane]);
      test.set(16, lane, -values[first + lane]);
    }
    execute(table, instruction_for(Op::v_cvt_pk_bf16_f32), test);
    for (int lane = 0; lane < kLanes; ++lane) {
      const float x = values[first + lane];
      const uint32_t expected =
          std::isinf(x) ? std::bit_cast<uint32_t>(x) >> 16 : nearest_bfloat(x);
      right = right && test.v(40, lane) == (expected | (expected ^ 0x8000) << 16);
    }
  }
  expect(right, label(level, "v_cvt_pk_bf16_f32 rounds to nearest even"));

  TestWave test;
  const uint32_t nans[] = {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0xff80ffffu, kPoison};
  for (int lane = 0; lane < kLanes; ++lane) {
    test.v(8, lane) = nans[lane % std::size(nans)];
    test.v(16, lane) = nans[(lane + 1) % std::size(nans)];
  }
  execute(table, instruction_for(Op::v_cvt_pk_bf16_f32), test);
  for (int lane = 0; lane < kLanes; ++lane) {
    right = right && std::isnan(bfloat_value(test.v(40, lane) & 0xffff)) &&
            std::isnan(bfloat_value(test.v(40, lane) >> 16));
  }
  expect(right, label(level, "v_cvt_pk_bf16_f32 keeps NaN"));
}

void test_exp(SimdLevel level, const HandlerTable& table) {
  double worst = 0;
  std::mt19937 random(13);
  TestWave test;
  for (int round = 0; round < 4096; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double unit = static_cast<double>(random()) / 0x1p32;
      const double x = round % 2 ? 254 * unit - 126 : 2 * unit - 1;
      test.set(8, lane, static_cast<float>(x));
    }
    execute(table, instruction_for(Op::v_exp_f32), test);
    for (int lane = 0; lane < kLanes; ++lane) {
      const double exact = std::exp2(static_cast<double>(test.f(8, lane)));
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      worst = std::max(worst, std::abs(test.f(40, lane) - exact) / ulp);
    }
  }
  expect(worst <= 1, label(level, "v_exp_f32 is off by " + std::to_string(worst) + " ulp"));

  const struct {
    float x, result;
  } cases[] = {{0.0f, 1.0f},       {-0.0f, 1.0f},        {1.0f, 2.0f},         {127.0f, 0x1p127f},
               {128.0f, INFINITY}, {INFINITY, INFINITY}, {-126.0f, 0x1p-126f}, {-126.5f, 0.0f},
               {-200.0f, 0.0f},    {-INFINITY, 0.0f},    {0x1p-149f, 1.0f},    {10.0f, 1024.0f}};
  for (const auto& c : cases) {
    test.set(8, 0, c.x);
    execute(table, instruction_for(Op::v_exp_f32), test);
    expect(test.f(40, 0) == c.result, label(level, "v_exp_f32 of " + std::to_string(c.x)));
  }
  test.set(8, 0, NAN);
  execute(table, instruction_for(Op::v_exp_f32), test);
  expect(std::isnan(test.f(40, 0)), label(level, "v_exp_f32 of NaN"));
}

bool same_or_both_nan(uint32_t a, uint32_t b, OperandType type) {
  if (a == b) return true;
  const auto nan32 = [](uint32_t x) { return std::isnan(std::bit_cast<float>(x)); };
  const auto nan16 = [](uint32_t x) { return (x & 0x7fff) > 0x7c00; };
  // Packed bf16 is not listed: it is converted by integer operations, exactly alike everywhere.
  if (type == OperandType::f16 || type == OperandType::pk_f16 || type == OperandType::b32) {
    const bool low = (a & 0xffff) == (b & 0xffff) || (nan16(a) && nan16(b));
    return low && (a >> 16 == b >> 16 || (nan16(a >> 16) && nan16(b >> 16)));
  }
  // A NaN double has its exponent in the high dword; its low dword is payload.
  return nan32(a) && nan32(b);
}

bool is_vector_format(Format format) {
  return format == Format::vop1 || format == Format::vop2 || format == Format::vopc ||
         format == Format::vop3 || format == Format::vop3p || format == Format::mai;
}

// Every vector instruction gives the same bits at every level: under full and partial EXEC, both
// float modes. Only which NaN comes out of two NaN operands is left to the host.
void test_levels_agree(const std::vector<SimdLevel>& levels) {
  const HandlerTable reference = handlers_for(levels.front());
  std::mt19937 random(17);
  for (size_t l = 1; l < levels.size(); ++l) {
    const HandlerTable table = handlers_for(levels[l]);
    for (size_t index = 0; index < static_cast<size_t>(Op::count); ++index) {
      const Op op = static_cast<Op>(index);
      const OpcodeRow& row = opcode_row(op);
      if (!is_vector_format(row.format)) continue;
      expect((reference.handler[index] == nullptr) == (table.handler[index] == nullptr),
             std::string(row.name) + " has a handler at one level only");
      if (reference.handler[index] == nullptr) continue;
      for (int round = 0; round < 8; ++round) {
        TestWave a;
        randomize(a, random);
        a.wave.write64(kExec, round % 2 ? kSomeLanes : ~uint64_t{0});
        a.wave.mode.ieee = round & 2;
        a.wave.mode.flush_f32 = round & 4;
        Instruction instruction = instruction_for(op);
        instruction.simm = static_cast<int32_t>(random() % 256);
        TestWave b = a;
        execute(reference, instruction, a);
        execute(table, instruction, b);
        bool same = true;
        for (uint32_t i = 0; i < kRegisters; ++i) {
          const bool low_dword = row.destination == OperandType::f64 && i == 40;
          for (int lane = 0; lane < kLanes; ++lane) {
            const bool high_is_nan = low_dword && (a.v(41, lane) & 0x7fffffff) >= 0x7ff00000 &&
                                     (b.v(41, lane) & 0x7fffffff) >= 0x7ff00000;
            same = same &&
                   (high_is_nan || same_or_both_nan(a.v(i, lane), b.v(i, lane), row.destination));
            same = same && a.agpr[i].lane[lane] == b.agpr[i].lane[lane];
          }
        }
        same = same && std::equal(std::begin(a.wave.sgpr), std::end(a.wave.sgpr), b.wave.sgpr);
        expect(same, label(levels[l], std::string(row.name) + " differs from baseline in round " +
                                          std::to_string(round)));
      }
    }
  }
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  const std::vector<SimdLevel> levels = supported_levels();
  for (SimdLevel level : levels) {
    const HandlerTable table = handlers_for(level);
    test_mfma(level, table);
    test_dpp(level, table);
    test_cross_lane(level, table);
    test_bfloat(level, table);
    test_exp(level, table);
  }
  test_levels_agree(levels);
  return summary();
}
