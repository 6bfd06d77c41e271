// Vector ALU instructions against scalar references written from the ISA's description, lane by
// lane, with modifiers, float modes and partial EXEC, at every SIMD level that this processor has.
#include <algorithm>
#include <cmath>
#include <functional>

#include "wave_fixture.h"

namespace mha_sink::test {
namespace {

constexpr uint64_t kSomeLanes = 0x70ff'0003'aaaa'1235u;

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

float as_float(u32 bits) { return std::bit_cast<float>(bits); }
u32 as_bits(float x) { return std::bit_cast<u32>(x); }

bool same_float(u32 a, u32 b) {
  return a == b || (std::isnan(as_float(a)) && std::isnan(as_float(b)));
}

std::string label(SimdLevel level, Op op, const std::string& what = "") {
  return std::string(to_string(level)) + ": " + std::string(mnemonic(op)) + " " + what;
}

struct IntegerCase {
  Op op;
  std::function<u32(u32, u32, u32)> result;
};

i32 sign24(u32 x) { return static_cast<i32>(x << 8) >> 8; }
u64 pair(u32 high, u32 low) { return u64{high} << 32 | low; }

u32 field_at(u32 value, u32 offset, u32 width) {
  u32 result = 0;
  for (u32 i = 0; i < width && offset + i < 32; ++i) result |= (value >> (offset + i) & 1) << i;
  return result;
}

u32 permuted(u32 a, u32 b, u32 selectors) {
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 selector = selectors >> 8 * i & 255;
    const auto byte = [&](u32 n) { return static_cast<u32>(pair(a, b) >> 8 * n & 255); };
    u32 value = 255;
    if (selector < 8) value = byte(selector);
    if (selector >= 8 && selector < 12) value = byte(2 * (selector - 8) + 1) >> 7 ? 255 : 0;
    if (selector == 12) value = 0;
    result |= value << 8 * i;
  }
  return result;
}

u32 clamp16(i64 x, i64 low, i64 high) {
  return static_cast<u32>(x < low ? low : x > high ? high : x) & 0xffff;
}

const IntegerCase kInteger[] = {
    {Op::v_mov_b32, [](u32 a, u32, u32) { return a; }},
    {Op::v_not_b32, [](u32 a, u32, u32) { return ~a; }},
    {Op::v_bfrev_b32,
     [](u32 a, u32, u32) {
       u32 r = 0;
       for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
       return r;
     }},
    {Op::v_ffbh_u32,
     [](u32 a, u32, u32) { return a ? static_cast<u32>(std::countl_zero(a)) : ~0u; }},
    {Op::v_ffbl_b32,
     [](u32 a, u32, u32) { return a ? static_cast<u32>(std::countr_zero(a)) : ~0u; }},
    {Op::v_ffbh_i32,
     [](u32 a, u32, u32) {
       for (u32 i = 1; i < 32; ++i) {
         if ((a >> (31 - i) & 1) != a >> 31) return i;
       }
       return ~0u;
     }},
    {Op::v_add_u32, [](u32 a, u32 b, u32) { return a + b; }},
    {Op::v_sub_u32, [](u32 a, u32 b, u32) { return a - b; }},
    {Op::v_subrev_u32, [](u32 a, u32 b, u32) { return b - a; }},
    {Op::v_and_b32, [](u32 a, u32 b, u32) { return a & b; }},
    {Op::v_or_b32, [](u32 a, u32 b, u32) { return a | b; }},
    {Op::v_xor_b32, [](u32 a, u32 b, u32) { return a ^ b; }},
    {Op::v_xnor_b32, [](u32 a, u32 b, u32) { return ~(a ^ b); }},
    {Op::v_min_i32, [](u32 a, u32 b, u32) { return i32(a) < i32(b) ? a : b; }},
    {Op::v_max_i32, [](u32 a, u32 b, u32) { return i32(a) > i32(b) ? a : b; }},
    {Op::v_min_u32, [](u32 a, u32 b, u32) { return std::min(a, b); }},
    {Op::v_max_u32, [](u32 a, u32 b, u32) { return std::max(a, b); }},
    {Op::v_lshlrev_b32, [](u32 a, u32 b, u32) { return b << a % 32; }},
    {Op::v_lshrrev_b32, [](u32 a, u32 b, u32) { return b >> a % 32; }},
    {Op::v_ashrrev_i32, [](u32 a, u32 b, u32) { return u32(i32(b) >> a % 32); }},
    {Op::v_mul_i32_i24, [](u32 a, u32 b, u32) { return u32(i64{sign24(a)} * sign24(b)); }},
    {Op::v_mul_hi_i32_i24, [](u32 a, u32 b, u32) { return u32(i64{sign24(a)} * sign24(b) >> 32); }},
    {Op::v_mul_u32_u24,
     [](u32 a, u32 b, u32) { return u32(u64{a % 0x1000000} * (b % 0x1000000)); }},
    {Op::v_mul_lo_u32, [](u32 a, u32 b, u32) { return u32(u64{a} * b); }},
    {Op::v_mul_hi_u32, [](u32 a, u32 b, u32) { return u32(u64{a} * b >> 32); }},
    {Op::v_mul_hi_i32, [](u32 a, u32 b, u32) { return u32(i64{i32(a)} * i32(b) >> 32); }},
    {Op::v_bcnt_u32_b32, [](u32 a, u32 b, u32) { return b + u32(std::popcount(a)); }},
    {Op::v_bfm_b32, [](u32 a, u32 b, u32) { return ((1u << a % 32) - 1) << b % 32; }},
    {Op::v_cvt_pk_u16_u32,
     [](u32 a, u32 b, u32) { return clamp16(a, 0, 65535) | clamp16(b, 0, 65535) << 16; }},
    {Op::v_cvt_pk_i16_i32,
     [](u32 a, u32 b, u32) {
       return clamp16(i32(a), -32768, 32767) | clamp16(i32(b), -32768, 32767) << 16;
     }},
    {Op::v_mad_i32_i24, [](u32 a, u32 b, u32 c) { return u32(i64{sign24(a)} * sign24(b)) + c; }},
    {Op::v_mad_u32_u24,
     [](u32 a, u32 b, u32 c) { return u32(u64{a % 0x1000000} * (b % 0x1000000)) + c; }},
    {Op::v_add3_u32, [](u32 a, u32 b, u32 c) { return a + b + c; }},
    {Op::v_lshl_add_u32, [](u32 a, u32 b, u32 c) { return (a << b % 32) + c; }},
    {Op::v_add_lshl_u32, [](u32 a, u32 b, u32 c) { return (a + b) << c % 32; }},
    {Op::v_lshl_or_b32, [](u32 a, u32 b, u32 c) { return (a << b % 32) | c; }},
    {Op::v_and_or_b32, [](u32 a, u32 b, u32 c) { return (a & b) | c; }},
    {Op::v_or3_b32, [](u32 a, u32 b, u32 c) { return a | b | c; }},
    {Op::v_xad_u32, [](u32 a, u32 b, u32 c) { return (a ^ b) + c; }},
    {Op::v_bfe_u32, [](u32 a, u32 b, u32 c) { return field_at(a, b % 32, c % 32); }},
    {Op::v_bfe_i32,
     [](u32 a, u32 b, u32 c) {
       // Beyond bit 31 the sign continues.
       const u32 width = c % 32;
       const u64 extended = u64(i64{i32(a)}) >> b % 32;
       return width == 0 ? 0 : u32(i64(extended << (64 - width)) >> (64 - width));
     }},
    {Op::v_bfi_b32, [](u32 a, u32 b, u32 c) { return (b & a) | (c & ~a); }},
    {Op::v_alignbit_b32, [](u32 a, u32 b, u32 c) { return u32(pair(a, b) >> c % 32); }},
    {Op::v_alignbyte_b32, [](u32 a, u32 b, u32 c) { return u32(pair(a, b) >> c % 4 * 8); }},
    {Op::v_perm_b32, permuted},
    {Op::v_min3_u32, [](u32 a, u32 b, u32 c) { return std::min({a, b, c}); }},
    {Op::v_max3_i32, [](u32 a, u32 b, u32 c) { return u32(std::max({i32(a), i32(b), i32(c)})); }},
    {Op::v_med3_i32,
     [](u32 a, u32 b, u32 c) {
       i32 sorted[] = {i32(a), i32(b), i32(c)};
       std::sort(sorted, sorted + 3);
       return u32(sorted[1]);
     }},
    {Op::v_add_u16, [](u32 a, u32 b, u32) { return (a + b) & 0xffff; }},
    {Op::v_mul_lo_u16, [](u32 a, u32 b, u32) { return ((a & 0xffff) * (b & 0xffff)) & 0xffff; }},
    {Op::v_lshrrev_b16, [](u32 a, u32 b, u32) { return (b & 0xffff) >> a % 16; }},
    {Op::v_ashrrev_i16, [](u32 a, u32 b, u32) { return u32(int16_t(b) >> a % 16) & 0xffff; }},
    {Op::v_mad_u32_u16, [](u32 a, u32 b, u32 c) { return (a & 0xffff) * (b & 0xffff) + c; }},
    {Op::v_pk_add_u16,
     [](u32 a, u32 b, u32) { return ((a + b) & 0xffff) | ((a >> 16) + (b >> 16)) << 16; }},
    {Op::v_pk_max_i16,
     [](u32 a, u32 b, u32) {
       const auto high = [](u32 x) { return int16_t(x >> 16); };
       return u32(uint16_t(std::max(int16_t(a), int16_t(b)))) |
              u32(uint16_t(std::max(high(a), high(b)))) << 16;
     }},
    {Op::v_cvt_f32_i32, [](u32 a, u32, u32) { return as_bits(float(double(i32(a)))); }},
    {Op::v_cvt_f32_u32, [](u32 a, u32, u32) { return as_bits(float(double(a))); }},
    {Op::v_cvt_f32_ubyte2, [](u32 a, u32, u32) { return as_bits(float(a >> 16 & 255)); }},
};

void test_integer(SimdLevel level, const HandlerTable& table) {
  std::mt19937 random(1);
  for (const IntegerCase& c : kInteger) {
    bool right = true;
    for (int round = 0; round < 12; ++round) {
      TestWave test;
      randomize(test, random);
      const u64 exec = round % 3 == 1 ? kSomeLanes : ~u64{0};
      test.wave.write64(kExec, exec);
      Instruction instruction = instruction_for(c.op);
      if (c.op == Op::v_perm_b32) {
        for (int lane = 0; lane < kLanes; ++lane) test.v(24, lane) &= 0x0f0f0f0f;
      }
      if (round == 2) instruction.src[0] = sgpr(13);
      if (round == 5) instruction.dst = instruction.src[0];
      TestWave before = test;
      execute(table, instruction, test);
      for (int lane = 0; lane < kLanes; ++lane) {
        const u32 a = round == 2 ? before.wave.sgpr[13] : before.v(8, lane);
        const u32 expected = exec >> lane & 1 ? c.result(a, before.v(16, lane), before.v(24, lane))
                                              : before.v(instruction.dst.index, lane);
        right = right && test.v(instruction.dst.index, lane) == expected;
      }
    }
    expect(right, label(level, c.op));
  }
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

bool signaling(float x) { return std::isnan(x) && (as_bits(x) & 0x400000) == 0; }

float min_max(float a, float b, bool ieee, bool maximum) {
  if (ieee && (signaling(a) || signaling(b))) return NAN;
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == 0 && b == 0) return std::signbit(a) != maximum ? a : b;
  return (a < b) != maximum ? a : b;
}

struct FloatCase {
  Op op;
  std::function<float(float, float, float, bool ieee)> result;
};

const FloatCase kFloat[] = {
    {Op::v_add_f32, [](float a, float b, float, bool) { return a + b; }},
    {Op::v_sub_f32, [](float a, float b, float, bool) { return a - b; }},
    {Op::v_subrev_f32, [](float a, float b, float, bool) { return b - a; }},
    {Op::v_mul_f32, [](float a, float b, float, bool) { return a * b; }},
    {Op::v_fma_f32, [](float a, float b, float c, bool) { return std::fma(a, b, c); }},
    {Op::v_min_f32, [](float a, float b, float, bool m) { return min_max(a, b, m, false); }},
    {Op::v_max_f32, [](float a, float b, float, bool m) { return min_max(a, b, m, true); }},
    {Op::v_max3_f32,
     [](float a, float b, float c, bool m) { return min_max(min_max(a, b, m, true), c, m, true); }},
    {Op::v_floor_f32, [](float a, float, float, bool) { return std::floor(a); }},
    {Op::v_ceil_f32, [](float a, float, float, bool) { return std::ceil(a); }},
    {Op::v_trunc_f32, [](float a, float, float, bool) { return std::trunc(a); }},
    {Op::v_rndne_f32, [](float a, float, float, bool) { return std::nearbyint(a); }},
    {Op::v_rcp_f32, [](float a, float, float, bool) { return flushed(1.0f / flushed(a)); }},
    {Op::v_sqrt_f32, [](float a, float, float, bool) { return std::sqrt(flushed(a)); }},
};

// Sources and results with neg, abs, clamp and denormal flush, in the order that the ISA gives.
void test_float(SimdLevel level, const HandlerTable& table) {
  std::mt19937 random(2);
  for (const FloatCase& c : kFloat) {
    bool right = true;
    for (int round = 0; round < 48; ++round) {
      TestWave test;
      randomize(test, random);
      const bool flush = round & 1, ieee = round & 2, clamp = round % 5 == 4;
      test.wave.mode.flush_f32 = flush;
      test.wave.mode.ieee = ieee;
      const u64 exec = round & 4 ? kSomeLanes : ~u64{0};
      test.wave.write64(kExec, exec);
      Instruction instruction = instruction_for(c.op);
      const unsigned sources = (1u << opcode_row(c.op).sources) - 1;
      instruction.neg = static_cast<uint8_t>(random() & sources);
      instruction.abs = static_cast<uint8_t>(round & 8 ? random() & sources : 0);
      instruction.clamp = clamp;
      TestWave before = test;
      execute(table, instruction, test);
      for (int lane = 0; lane < kLanes; ++lane) {
        float source[3];
        for (int i = 0; i < 3; ++i) {
          u32 bits = before.v(8 + 8 * static_cast<u32>(i), lane);
          if (instruction.abs >> i & 1) bits &= 0x7fffffff;
          if (instruction.neg >> i & 1) bits ^= 0x80000000;
          source[i] = flush ? flushed(as_float(bits)) : as_float(bits);
        }
        float value = c.result(source[0], source[1], source[2], ieee);
        if (flush) value = flushed(value);
        if (clamp) value = value > 1 ? 1 : value > 0 ? value : 0.0f;  // DX10: NaN becomes 0
        const u32 expected = exec >> lane & 1 ? as_bits(value) : before.v(40, lane);
        right = right && same_float(test.v(40, lane), expected);
      }
    }
    expect(right, label(level, c.op, "with modifiers"));
  }
  TestWave test;
  Instruction instruction = instruction_for(Op::v_and_b32);
  instruction.neg = 1;
  expect_throw<EmulationError>([&] { execute(table, instruction, test); }, "modifiers",
                               label(level, instruction.op, "with neg"));
}

void test_compare(SimdLevel level, const HandlerTable& table) {
  struct Case {
    Op op, with_exec;
    std::function<bool(u32, u32)> result;
  };
  const auto floats = [](auto compare) {
    return [compare](u32 a, u32 b) { return compare(as_float(a), as_float(b)); };
  };
  const Case cases[] = {
      {Op::v_cmp_lt_i32, Op::v_cmpx_lt_i32, [](u32 a, u32 b) { return i32(a) < i32(b); }},
      {Op::v_cmp_lt_u32, Op::v_cmpx_lt_u32, [](u32 a, u32 b) { return a < b; }},
      {Op::v_cmp_ne_u32, Op::v_cmpx_ne_u32, [](u32 a, u32 b) { return a != b; }},
      {Op::v_cmp_ge_i16, Op::v_cmpx_ge_i16, [](u32 a, u32 b) { return int16_t(a) >= int16_t(b); }},
      {Op::v_cmp_t_i32, Op::v_cmpx_t_i32, [](u32, u32) { return true; }},
      {Op::v_cmp_le_f32, Op::v_cmpx_le_f32, floats([](float a, float b) { return a <= b; })},
      {Op::v_cmp_lg_f32, Op::v_cmpx_lg_f32,
       floats([](float a, float b) { return !std::isunordered(a, b) && a != b; })},
      {Op::v_cmp_u_f32, Op::v_cmpx_u_f32,
       floats([](float a, float b) { return std::isunordered(a, b); })},
      {Op::v_cmp_nlt_f32, Op::v_cmpx_nlt_f32,
       floats([](float a, float b) { return std::isunordered(a, b) || a >= b; })},
      {Op::v_cmp_class_f32, Op::v_cmpx_class_f32, [](u32 a, u32 mask) {
         const float x = as_float(a);
         int bit = 0;
         switch (std::fpclassify(x)) {
           case FP_NAN:
             return (mask >> (signaling(x) ? 0 : 1) & 1) != 0;
           case FP_INFINITE:
             bit = 9;
             break;
           case FP_NORMAL:
             bit = 8;
             break;
           case FP_SUBNORMAL:
             bit = 7;
             break;
           default:
             bit = 6;
         }
         return (mask >> (std::signbit(x) ? 11 - bit : bit) & 1) != 0;
       }}};
  std::mt19937 random(3);
  for (const Case& c : cases) {
    for (int round = 0; round < 6; ++round) {
      for (Op op : {c.op, c.with_exec}) {
        TestWave test;
        randomize(test, random);
        const u64 exec = round % 2 ? kSomeLanes : ~u64{0};
        test.wave.write64(kExec, exec);
        u64 expected = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
          if (round == 0) test.v(16, lane) = test.v(8, lane);
          const u64 result = c.result(test.v(8, lane), test.v(16, lane));
          expected |= (result & exec >> lane & 1) << lane;
        }
        execute(table, instruction_for(op), test);
        expect(test.wave.vcc() == expected, label(level, op, "lane mask"));
        expect(test.wave.exec() == (op == c.op ? exec : expected), label(level, op, "EXEC"));
      }
    }
  }
}

void test_carry_and_select(SimdLevel level, const HandlerTable& table) {
  struct Case {
    Op op;
    std::function<u64(u64 a, u64 b, u64 carry)> result;  // bit 32: carry or borrow
  };
  const Case cases[] = {
      {Op::v_add_co_u32, [](u64 a, u64 b, u64) { return a + b; }},
      {Op::v_addc_co_u32, [](u64 a, u64 b, u64 c) { return a + b + c; }},
      {Op::v_sub_co_u32, [](u64 a, u64 b, u64) { return u64{b > a} << 32 | u32(a - b); }},
      {Op::v_subb_co_u32,
       [](u64 a, u64 b, u64 c) { return u64{b + c > a} << 32 | u32(a - b - c); }},
      {Op::v_subbrev_co_u32,
       [](u64 a, u64 b, u64 c) { return u64{a + c > b} << 32 | u32(b - a - c); }}};
  std::mt19937 random(4);
  for (int round = 0; round < 8; ++round) {
    const u64 exec = round % 2 ? kSomeLanes : ~u64{0};
    for (const Case& c : cases) {
      TestWave test;
      randomize(test, random);
      test.wave.write64(kExec, exec);
      TestWave before = test;
      execute(table, instruction_for(c.op), test);
      u64 carries = 0;
      bool right = true;
      for (int lane = 0; lane < kLanes; ++lane) {
        const u64 value =
            c.result(before.v(8, lane), before.v(16, lane), before.wave.vcc() >> lane & 1);
        const bool active = exec >> lane & 1;
        carries |= (active ? value >> 32 & 1 : 0) << lane;
        right = right && test.v(40, lane) == (active ? u32(value) : before.v(40, lane));
      }
      expect(right && test.wave.read64(30) == carries, label(level, c.op));
    }
    TestWave test;
    randomize(test, random);
    test.wave.write64(kExec, exec);
    TestWave before = test;
    execute(table, instruction_for(Op::v_cndmask_b32), test);
    bool right = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      const u32 chosen = before.v(before.wave.vcc() >> lane & 1 ? 16 : 8, lane);
      right = right && test.v(40, lane) == (exec >> lane & 1 ? chosen : before.v(40, lane));
    }
    expect(right, label(level, Op::v_cndmask_b32));

    // 64-bit results that overlap a source by one register.
    TestWave narrow(before);
    Instruction shift_add = instruction_for(Op::v_lshl_add_u64);
    shift_add.dst = vgpr(9, 2);
    execute(table, shift_add, narrow);
    TestWave wide(before);
    execute(table, instruction_for(Op::v_mad_u64_u32), wide);
    right = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      const u64 c = pair(before.v(25, lane), before.v(24, lane));
      const u64 sum = (pair(before.v(9, lane), before.v(8, lane)) << (before.v(16, lane) & 7)) + c;
      const u64 product = u64{before.v(8, lane)} * before.v(16, lane) + c;
      if (!(exec >> lane & 1)) continue;
      right = right && pair(narrow.v(10, lane), narrow.v(9, lane)) == sum &&
              pair(wide.v(41, lane), wide.v(40, lane)) == product &&
              (wide.wave.read64(30) >> lane & 1) == (product < c);
    }
    expect(right, label(level, Op::v_lshl_add_u64, "and v_mad_u64_u32"));
  }
}

void test_bitop3(SimdLevel level, const HandlerTable& table) {
  std::mt19937 random(6);
  TestWave test;
  randomize(test, random);
  for (int truth = 0; truth < 256; ++truth) {
    Instruction instruction = instruction_for(Op::v_bitop3_b32);
    instruction.simm = truth;
    execute(table, instruction, test);
    u32 expected = 0;
    for (int bit = 0; bit < 32; ++bit) {
      const u32 index = (test.v(8, 5) >> bit & 1) * 4 + (test.v(16, 5) >> bit & 1) * 2 +
                        (test.v(24, 5) >> bit & 1);
      expected |= (static_cast<u32>(truth) >> index & 1) << bit;
    }
    expect(test.v(40, 5) == expected, label(level, instruction.op, std::to_string(truth)));
  }
}

void test_packed_f32(SimdLevel level, const HandlerTable& table) {
  std::mt19937 random(8);
  for (int round = 0; round < 64; ++round) {
    TestWave test;
    randomize(test, random);
    Instruction instruction = instruction_for(Op::v_pk_fma_f32);
    instruction.op_sel = random() & 7;
    instruction.op_sel_hi = random() & 7;
    instruction.neg = random() & 7;
    instruction.neg_hi = random() & 7;
    if (round & 1) instruction.dst = vgpr(16, 2);
    TestWave before = test;
    execute(table, instruction, test);
    bool right = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      for (u32 r = 0; r < 2; ++r) {
        float source[3];
        for (u32 i = 0; i < 3; ++i) {
          const u32 high = (r == 0 ? instruction.op_sel : instruction.op_sel_hi) >> i & 1;
          const u32 negate = (r == 0 ? instruction.neg : instruction.neg_hi) >> i & 1;
          source[i] = as_float(before.v(8 + 8 * i + high, lane) ^ negate << 31);
        }
        right = right && same_float(test.v(instruction.dst.index + r, lane),
                                    as_bits(std::fma(source[0], source[1], source[2])));
      }
    }
    expect(right, label(level, instruction.op, "selects"));
  }
}

std::string hex(float x) {
  char text[32];
  std::snprintf(text, sizeof text, "%a", static_cast<double>(x));
  return text;
}

// The compiler's correctly rounded division: any mistake in v_div_scale, v_div_fmas or v_div_fixup
// shows as a wrong quotient.
void test_division(SimdLevel level, const HandlerTable& table) {
  std::mt19937 random(9);
  for (int round = 0; round < 64; ++round) {
    TestWave test;
    for (int lane = 0; lane < kLanes; ++lane) {
      test.v(0, lane) = round < 32 ? static_cast<u32>(random()) : interesting_bits(random);
      test.v(1, lane) = round < 32 ? static_cast<u32>(random()) : interesting_bits(random);
    }
    const auto run = [&](Op op, unsigned d, std::initializer_list<unsigned> sources, int neg = 0,
                         unsigned mask = 30) {
      Instruction instruction = instruction_for(op);
      instruction.dst = vgpr(d);
      int i = 0;
      for (unsigned s : sources) instruction.src[i++] = vgpr(s);
      instruction.neg = static_cast<uint8_t>(neg);
      if (instruction.sdst.kind != OperandKind::none) instruction.sdst = sgpr(mask, 2);
      execute(table, instruction, test);
    };
    for (int lane = 0; lane < kLanes; ++lane) test.set(7, lane, 1.0f);
    run(Op::v_div_scale_f32, 2, {1, 1, 0});           // scaled denominator
    run(Op::v_div_scale_f32, 3, {0, 1, 0}, 0, kVcc);  // scaled numerator
    run(Op::v_rcp_f32, 4, {2});
    run(Op::v_fma_f32, 5, {2, 4, 7}, 1);  // 1 - d r
    run(Op::v_fma_f32, 4, {5, 4, 4});
    run(Op::v_mul_f32, 6, {3, 4});
    run(Op::v_fma_f32, 5, {2, 6, 3}, 1);  // n - d q
    run(Op::v_fma_f32, 6, {5, 4, 6});
    run(Op::v_fma_f32, 5, {2, 6, 3}, 1);
    run(Op::v_div_fmas_f32, 6, {5, 4, 6});
    run(Op::v_div_fixup_f32, 6, {6, 1, 0});
    for (int lane = 0; lane < kLanes; ++lane) {
      const float exact = test.f(0, lane) / test.f(1, lane);
      expect(same_float(test.v(6, lane), as_bits(exact)),
             label(level, Op::v_div_fixup_f32,
                   hex(test.f(0, lane)) + " / " + hex(test.f(1, lane)) + " = " +
                       hex(test.f(6, lane))));
    }
  }
}

// Likewise for fp64, where a denormal quotient is rounded twice and not looked at.
void test_division_f64(SimdLevel level, const HandlerTable& table) {
  std::mt19937_64 random(10);
  for (int round = 0; round < 32; ++round) {
    TestWave test;
    const auto value = [&](u32 index, int lane) {
      return std::bit_cast<double>(pair(test.v(index + 1, lane), test.v(index, lane)));
    };
    const auto set = [&](u32 index, int lane, u64 bits) {
      test.v(index, lane) = static_cast<u32>(bits);
      test.v(index + 1, lane) = static_cast<u32>(bits >> 32);
    };
    for (int lane = 0; lane < kLanes; ++lane) {
      set(0, lane, random());
      set(2, lane, lane % 8 == 0 ? 0x7fe0'0000'0000'0001u : random());
      set(14, lane, std::bit_cast<u64>(1.0));
    }
    const auto run = [&](Op op, unsigned d, std::initializer_list<unsigned> sources, int neg = 0,
                         unsigned mask = 30) {
      Instruction instruction = instruction_for(op);
      instruction.dst = vgpr(d, 2);
      int i = 0;
      for (unsigned s : sources) instruction.src[i++] = vgpr(s, 2);
      instruction.neg = static_cast<uint8_t>(neg);
      if (instruction.sdst.kind != OperandKind::none) instruction.sdst = sgpr(mask, 2);
      execute(table, instruction, test);
    };
    run(Op::v_div_scale_f64, 4, {2, 2, 0});
    run(Op::v_rcp_f64, 6, {4});
    run(Op::v_fma_f64, 8, {4, 6, 14}, 1);
    run(Op::v_fma_f64, 6, {6, 8, 6});
    run(Op::v_fma_f64, 8, {4, 6, 14}, 1);
    run(Op::v_fma_f64, 6, {6, 8, 6});
    run(Op::v_div_scale_f64, 10, {0, 2, 0}, 0, kVcc);
    run(Op::v_mul_f64, 12, {10, 6});
    run(Op::v_fma_f64, 8, {4, 12, 10}, 1);
    run(Op::v_div_fmas_f64, 12, {8, 6, 12});
    run(Op::v_div_fixup_f64, 12, {12, 2, 0});
    for (int lane = 0; lane < kLanes; ++lane) {
      const double exact = value(0, lane) / value(2, lane), result = value(12, lane);
      if (std::fpclassify(exact) == FP_SUBNORMAL) continue;
      expect(result == exact || (std::isnan(result) && std::isnan(exact)),
             label(level, Op::v_div_fixup_f64,
                   std::to_string(std::bit_cast<u64>(value(0, lane))) + " / " +
                       std::to_string(std::bit_cast<u64>(value(2, lane)))));
    }
  }
}

// All halves there and back, and every tie between neighbours.
void test_half(SimdLevel level, const HandlerTable& table) {
  bool exact = true, ties = true;
  TestWave test;
  for (u32 first = 0; first < 0x7c00; first += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) test.v(8, lane) = first + static_cast<u32>(lane);
    execute(table, instruction_for(Op::v_cvt_f32_f16), test);
    Instruction narrow = instruction_for(Op::v_cvt_f16_f32);
    narrow.src[0] = vgpr(40);
    narrow.dst = vgpr(41);
    execute(table, narrow, test);
    for (int lane = 0; lane < kLanes; ++lane) {
      const u32 half = first + static_cast<u32>(lane);
      const int exponent = static_cast<int>(half >> 10);
      const float value = exponent == 0
                              ? std::ldexp(static_cast<float>(half), -24)
                              : std::ldexp(static_cast<float>(1024 + half % 1024), exponent - 25);
      exact = exact && test.f(40, lane) == value && test.v(41, lane) == half;
      const float step = std::ldexp(1.0f, std::max(exponent, 1) - 25);
      test.set(8, lane, -(value + step / 2));
    }
    narrow.src[0] = vgpr(8);
    execute(table, narrow, test);
    for (int lane = 0; lane < kLanes; ++lane) {
      const u32 half = first + static_cast<u32>(lane);
      ties = ties && test.v(41, lane) == (0x8000 | (half + half % 2));
    }
  }
  expect(exact, label(level, Op::v_cvt_f16_f32, "of every half"));
  expect(ties, label(level, Op::v_cvt_f16_f32, "of every tie"));
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  using namespace mha_sink::test;
  for (SimdLevel level : supported_levels()) {
    const HandlerTable table = handlers_for(level);
    test_integer(level, table);
    test_float(level, table);
    test_compare(level, table);
    test_carry_and_select(level, table);
    test_bitop3(level, table);
    test_packed_f32(level, table);
    test_division(level, table);
    test_division_f64(level, table);
    test_half(level, table);
  }
  return summary();
}
