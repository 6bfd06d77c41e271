// Integer and bit operations on 16, 32 and 64 bits, moves, selects and carries.
#include "emulator/simd/lane_map.h"

namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

i32 low24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }
u32 low24(u32 x) { return x & 0xffffffu; }
u64 wide(u32 high, u32 low) { return u64{high} << 32 | low; }

template <class T>
T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
T middle(T a, T b, T c) {
  return larger(smaller(a, b), smaller(larger(a, b), c));
}

template <class T>
T limit(T x, T low, T high) {
  return x < low ? low : (x > high ? high : x);
}
i32 saturate(i64 x) { return static_cast<i32>(limit<i64>(x, INT32_MIN, INT32_MAX)); }

u32 reverse_bits(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

// Byte selectors 8..11 replicate the sign of an odd byte, 12 is 0x00 and above 0xff. The result is
// already in place: byte `position` of the word.
u32 permute_byte(u32 high, u32 low, u32 selectors, int position) {
  const u32 selector = selectors >> (8 * position) & 0xff;
  const u32 word = select((selector & 4) != 0, high, low);
  const u32 byte = word >> (8 * (selector & 3)) & 0xff;
  const u32 odd_word = select((selector & 2) != 0, high, low);
  const u32 sign = (0 - (odd_word >> (16 * (selector & 1) + 15) & 1)) & 0xff;
  const u32 fill = select(selector == 12, 0u, 0xffu);
  return select(selector < 8, byte, select(selector < 12, sign, fill)) << (8 * position);
}

u32 permute(u32 high, u32 low, u32 selectors) {
  return permute_byte(high, low, selectors, 0) | permute_byte(high, low, selectors, 1) |
         permute_byte(high, low, selectors, 2) | permute_byte(high, low, selectors, 3);
}

u32 distance(u32 a, u32 b) { return a > b ? a - b : b - a; }

// Sum of the distances of four bytes; with `masked` of those only whose second byte is not 0.
template <bool masked>
u32 byte_distances(u32 a, u32 b) {
  u32 sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const u32 reference = b >> shift & 0xff;
    sum += masked && reference == 0 ? 0 : distance(a >> shift & 0xff, reference);
  }
  return sum;
}

// Sum of the products of fields of `bits` bits.
template <int bits>
i32 signed_dot(u32 a, u32 b) {
  i32 sum = 0;
  for (int unused = 0; unused < 32; unused += bits) {
    sum += (static_cast<i32>(a << unused) >> (32 - bits)) *
           (static_cast<i32>(b << unused) >> (32 - bits));
  }
  return sum;
}
template <int bits>
u32 unsigned_dot(u32 a, u32 b) {
  u32 sum = 0;
  for (int unused = 0; unused < 32; unused += bits) {
    sum += (a << unused >> (32 - bits)) * (b << unused >> (32 - bits));
  }
  return sum;
}

// VOP3P's dot products. Those of two halves have selects; only the default ones are supported.
template <class F>
Handler dot(F) {
  return [](const Instruction& instruction, Wave& wave) {
    Instruction plain = instruction;
    const bool halves =
        instruction.op == Op::v_dot2_i32_i16 || instruction.op == Op::v_dot2_u32_u16;
    if (!halves || (instruction.op_sel & 3) == 0) plain.op_sel = 0;
    if (halves && (instruction.op_sel_hi & 3) != 3) unsupported(instruction, "op_sel_hi");
    map_handler<F, MapOptions{}>(plain, wave);
  };
}

// Adds and subtracts saturate with the clamp modifier.
template <class Plain, class Saturating>
Handler map_with_clamp(Plain, Saturating) {
  return [](const Instruction& instruction, Wave& wave) {
    if (!instruction.clamp) return map_handler<Plain, MapOptions{}>(instruction, wave);
    Instruction unclamped = instruction;
    unclamped.clamp = false;
    map_handler<Saturating, MapOptions{}>(unclamped, wave);
  };
}

// Any function of three bits: bit 4a + 2b + c of the truth table is its value (ISA, V_BITOP3_B32).
template <bool halves>
void bitop3(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 0, 0, false);
  const unsigned table = static_cast<unsigned>(instruction.simm);
  Scratch scratch[3];
  const u32* source[3];
  uint64_t active = wave.exec();
  for (int i = 0; i < 3; ++i) source[i] = source_dword(instruction, wave, i, scratch[i].lo);
  if (instruction.dpp != Dpp::none) {
    active &= apply_dpp(instruction, wave, source[0], scratch[0].lo);
  }
  u32 minterm[8];
  for (int i = 0; i < 8; ++i) minterm[i] = table >> i & 1 ? ~0u : 0;
  VectorRegister result;
  MHA_SINK_FOR_LANES(lane) {
    const u32 a = source[0][lane], b = source[1][lane], c = source[2][lane];
    const u32 without_a = (~b & ((~c & minterm[0]) | (c & minterm[1]))) |
                          (b & ((~c & minterm[2]) | (c & minterm[3])));
    const u32 with_a = (~b & ((~c & minterm[4]) | (c & minterm[5]))) |
                       (b & ((~c & minterm[6]) | (c & minterm[7])));
    result.lane[lane] = (~a & without_a) | (a & with_a);
  }
  if constexpr (halves) {
    store_half(active, false, result.lane, vector_register(instruction, wave, instruction.dst));
  } else {
    store_dword(instruction, wave, active, result.lane);
  }
}

void select_by_mask(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 3, 0, false);
  uint64_t active = wave.exec();
  Scratch scratch[2];
  const Source no = fetch<float>(instruction, wave, 0, scratch[0], active);
  const Source yes = fetch<float>(instruction, wave, 1, scratch[1], active);
  VectorRegister select;
  expand(scalar(instruction, wave, instruction.src[2]), select);
  u32* const destination = vector_register(instruction, wave, instruction.dst);
  VectorRegister result;
  u32* const out = active == kAllLanes ? destination : result.lane;
  MHA_SINK_FOR_LANES(lane) {
    out[lane] = (yes.lo[lane] & select.lane[lane]) | (no.lo[lane] & ~select.lane[lane]);
  }
  if (active != kAllLanes) store_masked(active, out, destination);
}

// Sums and differences with a carry: Combine(a, b, carry_in) returns 33 significant bits, the
// carry or borrow above the result.
template <class Combine, bool carry_in>
void with_carry_handler(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 0, 0, false);
  Scratch scratch[2];
  const u32* a = source_dword(instruction, wave, 0, scratch[0].lo);
  if (instruction.dpp != Dpp::none &&
      (apply_dpp(instruction, wave, a, scratch[0].lo) & wave.exec()) != wave.exec()) {
    unsupported(instruction, "a carry of lanes that DPP disables");
  }
  const u32* b = source_dword(instruction, wave, 1, scratch[1].lo);
  VectorRegister carry, result, carry_out;
  expand(carry_in ? scalar(instruction, wave, instruction.src[2]) : 0, carry);
  MHA_SINK_FOR_LANES(lane) {
    const u64 value = Combine{}(u64{a[lane]}, u64{b[lane]}, u64{carry.lane[lane] & 1});
    result.lane[lane] = static_cast<u32>(value);
    carry_out.lane[lane] = static_cast<u32>(value >> 32) << 31;
  }
  const uint64_t active = wave.exec();
  store_dword(instruction, wave, active, result.lane);
  write_mask(instruction, wave, instruction.sdst, collect(carry_out) & active);
}

template <bool carry_in, class Combine>
Handler with_carry(Combine) {
  return with_carry_handler<Combine, carry_in>;
}

template <class Product>
void multiply_add_64(const Instruction& instruction, Wave& wave) {
  require_modifiers(instruction, 0, 0, false);
  if (instruction.dpp != Dpp::none) unsupported(instruction, "DPP on a 64-bit instruction");
  Scratch scratch[3];
  const u32* a = source_dword(instruction, wave, 0, scratch[0].lo);
  const u32* b = source_dword(instruction, wave, 1, scratch[1].lo);
  const Source c = source_qword(instruction, wave, 2, scratch[2]);
  Scratch result;
  uint64_t carry = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    using Factor = std::conditional_t<std::is_signed_v<Product>, i32, u32>;
    const Product product = static_cast<Product>(static_cast<Factor>(a[lane])) *
                            static_cast<Product>(static_cast<Factor>(b[lane]));
    const u64 addend = wide(c.hi[lane], c.lo[lane]);
    const u64 sum = static_cast<u64>(product) + addend;
    // Bit 64 of the sum of both operands extended to 65 bits.
    const bool unsigned_carry = sum < addend;
    const bool signs = std::is_signed_v<Product> && ((product < 0) != (addend >> 63 != 0));
    carry |= u64{unsigned_carry != signs} << lane;
    result.lo.lane[lane] = static_cast<u32>(sum);
    result.hi.lane[lane] = static_cast<u32>(sum >> 32);
  }
  const uint64_t active = wave.exec();
  store_dword(instruction, wave, active, result.lo.lane);
  store_dword(instruction, wave, active, result.hi.lane, 1);
  write_mask(instruction, wave, instruction.sdst, carry & active);
}

void fill_32(HandlerTable& t) {
  t[Op::v_mov_b32] = map([](u32 a) { return a; });
  t[Op::v_accvgpr_mov_b32] = t[Op::v_mov_b32];
  t[Op::v_accvgpr_read_b32] = t[Op::v_mov_b32];
  t[Op::v_accvgpr_write_b32] = t[Op::v_mov_b32];
  t[Op::v_not_b32] = map([](u32 a) { return ~a; });
  t[Op::v_bfrev_b32] = map([](u32 a) { return reverse_bits(a); });
  t[Op::v_ffbh_u32] = map([](u32 a) { return a == 0 ? -1 : __builtin_clz(a); });
  t[Op::v_ffbl_b32] = map([](u32 a) { return a == 0 ? -1 : __builtin_ctz(a); });
  t[Op::v_ffbh_i32] = map([](i32 a) {
    const u32 differs = static_cast<u32>(a ^ (a >> 31));
    return differs == 0 ? -1 : __builtin_clz(differs);
  });

  t[Op::v_add_u32] = map_with_clamp([](u32 a, u32 b) { return a + b; },
                                    [](u32 a, u32 b) { return a + b < a ? ~0u : a + b; });
  t[Op::v_sub_u32] = map_with_clamp([](u32 a, u32 b) { return a - b; },
                                    [](u32 a, u32 b) { return a < b ? 0 : a - b; });
  t[Op::v_subrev_u32] = map_with_clamp([](u32 a, u32 b) { return b - a; },
                                       [](u32 a, u32 b) { return b < a ? 0 : b - a; });
  t[Op::v_add_i32] = map_with_clamp([](u32 a, u32 b) { return a + b; },
                                    [](i32 a, i32 b) { return saturate(i64{a} + b); });
  t[Op::v_sub_i32] = map_with_clamp([](u32 a, u32 b) { return a - b; },
                                    [](i32 a, i32 b) { return saturate(i64{a} - b); });
  t[Op::v_and_b32] = map([](u32 a, u32 b) { return a & b; });
  t[Op::v_or_b32] = map([](u32 a, u32 b) { return a | b; });
  t[Op::v_xor_b32] = map([](u32 a, u32 b) { return a ^ b; });
  t[Op::v_xnor_b32] = map([](u32 a, u32 b) { return ~(a ^ b); });
  t[Op::v_min_i32] = map([](i32 a, i32 b) { return smaller(a, b); });
  t[Op::v_max_i32] = map([](i32 a, i32 b) { return larger(a, b); });
  t[Op::v_min_u32] = map([](u32 a, u32 b) { return smaller(a, b); });
  t[Op::v_max_u32] = map([](u32 a, u32 b) { return larger(a, b); });
  t[Op::v_lshlrev_b32] = map([](u32 a, u32 b) { return b << (a & 31); });
  t[Op::v_lshrrev_b32] = map([](u32 a, u32 b) { return b >> (a & 31); });
  t[Op::v_ashrrev_i32] = map([](u32 a, i32 b) { return b >> (a & 31); });
  t[Op::v_mul_i32_i24] =
      map([](i32 a, i32 b) { return static_cast<u32>(low24(a)) * static_cast<u32>(low24(b)); });
  t[Op::v_mul_u32_u24] = map([](u32 a, u32 b) { return low24(a) * low24(b); });
  t[Op::v_mul_hi_i32_i24] =
      map([](i32 a, i32 b) { return static_cast<i32>(i64{low24(a)} * low24(b) >> 32); });
  t[Op::v_mul_hi_u32_u24] =
      map([](u32 a, u32 b) { return static_cast<u32>(u64{low24(a)} * low24(b) >> 32); });
  t[Op::v_mul_lo_u32] = map([](u32 a, u32 b) { return a * b; });
  t[Op::v_mul_hi_u32] = map([](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); });
  t[Op::v_mul_hi_i32] = map([](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); });
  t[Op::v_bcnt_u32_b32] =
      map([](u32 a, u32 b) { return static_cast<u32>(__builtin_popcount(a)) + b; });
  t[Op::v_bfm_b32] = map([](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); });
  t[Op::v_cvt_pk_u16_u32] =
      map([](u32 a, u32 b) { return smaller(a, 0xffffu) | smaller(b, 0xffffu) << 16; });
  t[Op::v_cvt_pk_i16_i32] = map([](i32 a, i32 b) {
    return (static_cast<u32>(limit(a, -32768, 32767)) & 0xffffu) |
           static_cast<u32>(limit(b, -32768, 32767)) << 16;
  });

  t[Op::v_mad_i32_i24] = map([](i32 a, i32 b, u32 c) {
    return static_cast<u32>(low24(a)) * static_cast<u32>(low24(b)) + c;
  });
  t[Op::v_mad_u32_u24] = map([](u32 a, u32 b, u32 c) { return low24(a) * low24(b) + c; });
  t[Op::v_add3_u32] = map([](u32 a, u32 b, u32 c) { return a + b + c; });
  t[Op::v_lshl_add_u32] = map([](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; });
  t[Op::v_add_lshl_u32] = map([](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); });
  t[Op::v_lshl_or_b32] = map([](u32 a, u32 b, u32 c) { return a << (b & 31) | c; });
  t[Op::v_and_or_b32] = map([](u32 a, u32 b, u32 c) { return (a & b) | c; });
  t[Op::v_or3_b32] = map([](u32 a, u32 b, u32 c) { return a | b | c; });
  t[Op::v_xad_u32] = map([](u32 a, u32 b, u32 c) { return (a ^ b) + c; });
  t[Op::v_bfe_u32] =
      map([](u32 a, u32 b, u32 c) { return a >> (b & 31) & ((1u << (c & 31)) - 1); });
  t[Op::v_bfe_i32] = map([](i32 a, u32 b, u32 c) {
    const u32 width = c & 31;
    const u32 field = static_cast<u32>(a >> (b & 31)) & ((1u << width) - 1);
    const u32 sign = width == 0 ? 0 : 1u << (width - 1);
    return (field ^ sign) - sign;
  });
  t[Op::v_bfi_b32] = map([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); });
  t[Op::v_alignbit_b32] =
      map([](u32 a, u32 b, u32 c) { return static_cast<u32>(wide(a, b) >> (c & 31)); });
  t[Op::v_alignbyte_b32] =
      map([](u32 a, u32 b, u32 c) { return static_cast<u32>(wide(a, b) >> (8 * (c & 3))); });
  t[Op::v_perm_b32] = map([](u32 a, u32 b, u32 c) { return permute(a, b, c); });
  t[Op::v_min3_i32] = map([](i32 a, i32 b, i32 c) { return smaller(smaller(a, b), c); });
  t[Op::v_max3_i32] = map([](i32 a, i32 b, i32 c) { return larger(larger(a, b), c); });
  t[Op::v_med3_i32] = map([](i32 a, i32 b, i32 c) { return middle(a, b, c); });
  t[Op::v_min3_u32] = map([](u32 a, u32 b, u32 c) { return smaller(smaller(a, b), c); });
  t[Op::v_max3_u32] = map([](u32 a, u32 b, u32 c) { return larger(larger(a, b), c); });
  t[Op::v_med3_u32] = map([](u32 a, u32 b, u32 c) { return middle(a, b, c); });
  t[Op::v_bitop3_b32] = bitop3<false>;
  t[Op::v_cndmask_b32] = select_by_mask;
}

void fill_sums(HandlerTable& t) {
  constexpr MapOptions kAccumulate{.accumulate = true};
  t[Op::v_sad_u8] = map([](u32 a, u32 b, u32 c) { return byte_distances<false>(a, b) + c; });
  t[Op::v_sad_hi_u8] =
      map([](u32 a, u32 b, u32 c) { return (byte_distances<false>(a, b) << 16) + c; });
  t[Op::v_msad_u8] = map([](u32 a, u32 b, u32 c) { return byte_distances<true>(a, b) + c; });
  t[Op::v_sad_u16] = map([](u32 a, u32 b, u32 c) {
    return distance(a & 0xffffu, b & 0xffffu) + distance(a >> 16, b >> 16) + c;
  });
  t[Op::v_sad_u32] = map([](u32 a, u32 b, u32 c) { return distance(a, b) + c; });

  // Accumulation wraps: as unsigned numbers. Two products of 16 bits may wrap as well.
  constexpr auto kDotI16 = [](u32 a, u32 b, u32 c) {
    const auto product = [](u32 x, u32 y) {
      return static_cast<u32>((static_cast<i32>(x) >> 16) * (static_cast<i32>(y) >> 16));
    };
    return product(a, b) + product(a << 16, b << 16) + c;
  };
  constexpr auto kDotI8 = [](u32 a, u32 b, u32 c) {
    return static_cast<u32>(signed_dot<8>(a, b)) + c;
  };
  constexpr auto kDotI4 = [](u32 a, u32 b, u32 c) {
    return static_cast<u32>(signed_dot<4>(a, b)) + c;
  };
  t[Op::v_dot2_i32_i16] = dot(kDotI16);
  t[Op::v_dot2_u32_u16] = dot([](u32 a, u32 b, u32 c) { return unsigned_dot<16>(a, b) + c; });
  t[Op::v_dot4_i32_i8] = dot(kDotI8);
  t[Op::v_dot4_u32_u8] = dot([](u32 a, u32 b, u32 c) { return unsigned_dot<8>(a, b) + c; });
  t[Op::v_dot8_i32_i4] = dot(kDotI4);
  t[Op::v_dot8_u32_u4] = dot([](u32 a, u32 b, u32 c) { return unsigned_dot<4>(a, b) + c; });
  t[Op::v_dot2c_i32_i16] = map<kAccumulate>(kDotI16);
  t[Op::v_dot4c_i32_i8] = map<kAccumulate>(kDotI8);
  t[Op::v_dot8c_i32_i4] = map<kAccumulate>(kDotI4);
  t[Op::v_sat_pk_u8_i16] = map([](u32 a) {
    const u32 low = static_cast<u32>(limit(static_cast<i32>(a << 16) >> 16, 0, 255));
    return U16{low | static_cast<u32>(limit(static_cast<i32>(a) >> 16, 0, 255)) << 8};
  });
}

void fill_carry(HandlerTable& t) {
  t[Op::v_add_co_u32] = with_carry<false>([](u64 a, u64 b, u64) { return a + b; });
  t[Op::v_addc_co_u32] = with_carry<true>([](u64 a, u64 b, u64 c) { return a + b + c; });
  t[Op::v_sub_co_u32] = with_carry<false>([](u64 a, u64 b, u64) { return a - b; });
  t[Op::v_subb_co_u32] = with_carry<true>([](u64 a, u64 b, u64 c) { return a - b - c; });
  t[Op::v_subrev_co_u32] = with_carry<false>([](u64 a, u64 b, u64) { return b - a; });
  t[Op::v_subbrev_co_u32] = with_carry<true>([](u64 a, u64 b, u64 c) { return b - a - c; });
  t[Op::v_mad_u64_u32] = multiply_add_64<u64>;
  t[Op::v_mad_i64_i32] = multiply_add_64<i64>;
}

void fill_64(HandlerTable& t) {
  t[Op::v_mov_b64] = map([](u64 a) { return a; });
  t[Op::v_lshl_add_u64] = map([](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; });
  t[Op::v_lshlrev_b64] = map([](u32 a, u64 b) { return b << (a & 63); });
  t[Op::v_lshrrev_b64] = map([](u32 a, u64 b) { return b >> (a & 63); });
  t[Op::v_ashrrev_i64] = map([](u32 a, i64 b) { return b >> (a & 63); });
}

void fill_16(HandlerTable& t) {
  constexpr MapOptions kHalves{.halves = true};
  t[Op::v_add_u16] = map([](U16 a, U16 b) { return U16{a.value + b.value}; });
  t[Op::v_sub_u16] = map([](U16 a, U16 b) { return U16{a.value - b.value}; });
  t[Op::v_subrev_u16] = map([](U16 a, U16 b) { return U16{b.value - a.value}; });
  t[Op::v_mul_lo_u16] = map([](U16 a, U16 b) { return U16{a.value * b.value}; });
  t[Op::v_lshlrev_b16] = map([](U16 a, U16 b) { return U16{b.value << (a.value & 15)}; });
  t[Op::v_lshrrev_b16] = map([](U16 a, U16 b) { return U16{b.value >> (a.value & 15)}; });
  t[Op::v_ashrrev_i16] = map([](U16 a, I16 b) { return I16{b.value >> (a.value & 15)}; });
  t[Op::v_min_u16] = map([](U16 a, U16 b) { return U16{smaller(a.value, b.value)}; });
  t[Op::v_max_u16] = map([](U16 a, U16 b) { return U16{larger(a.value, b.value)}; });
  t[Op::v_min_i16] = map([](I16 a, I16 b) { return I16{smaller(a.value, b.value)}; });
  t[Op::v_max_i16] = map([](I16 a, I16 b) { return I16{larger(a.value, b.value)}; });

  t[Op::v_add_i16] = map<kHalves>([](U16 a, U16 b) { return U16{a.value + b.value}; });
  t[Op::v_sub_i16] = map<kHalves>([](U16 a, U16 b) { return U16{a.value - b.value}; });
  t[Op::v_mad_u32_u16] = map<kHalves>([](U16 a, U16 b, u32 c) { return a.value * b.value + c; });
  t[Op::v_mad_i32_i16] =
      map<kHalves>([](I16 a, I16 b, u32 c) { return static_cast<u32>(a.value * b.value) + c; });
  const auto multiply_add = [](U16 a, U16 b, U16 c) { return U16{a.value * b.value + c.value}; };
  t[Op::v_mad_u16] = map<kHalves>(multiply_add);
  t[Op::v_mad_i16] = t[Op::v_mad_u16];  // the low 16 bits do not depend on the signs
  t[Op::v_mad_legacy_u16] = map(multiply_add);
  t[Op::v_mad_legacy_i16] = t[Op::v_mad_legacy_u16];
  t[Op::v_min3_u16] = map<kHalves>(
      [](U16 a, U16 b, U16 c) { return U16{smaller(smaller(a.value, b.value), c.value)}; });
  t[Op::v_max3_u16] = map<kHalves>(
      [](U16 a, U16 b, U16 c) { return U16{larger(larger(a.value, b.value), c.value)}; });
  t[Op::v_med3_u16] =
      map<kHalves>([](U16 a, U16 b, U16 c) { return U16{middle(a.value, b.value, c.value)}; });
  t[Op::v_min3_i16] = map<kHalves>(
      [](I16 a, I16 b, I16 c) { return I16{smaller(smaller(a.value, b.value), c.value)}; });
  t[Op::v_max3_i16] = map<kHalves>(
      [](I16 a, I16 b, I16 c) { return I16{larger(larger(a.value, b.value), c.value)}; });
  t[Op::v_med3_i16] =
      map<kHalves>([](I16 a, I16 b, I16 c) { return I16{middle(a.value, b.value, c.value)}; });
  t[Op::v_bitop3_b16] = bitop3<true>;
}

}  // namespace

void fill_valu_integer(HandlerTable& table) {
  fill_32(table);
  fill_sums(table);
  fill_carry(table);
  fill_64(table);
  fill_16(table);
}

}  // namespace mha_sink::emulator::MHA_SINK_SIMD_LEVEL
