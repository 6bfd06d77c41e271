// Scalar ALU: SOP1, SOP2, SOPC and SOPK (CDNA3 ISA, "Scalar ALU Operations").
#include "emulator/salu.h"

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include "emulator/error.h"
#include "emulator/wave.h"

namespace mha_sink::emulator {
namespace {

uint64_t special_value(const Operand& operand, const Wave& wave) {
  constexpr unsigned kVccz = 251, kExecz = 252;
  if (operand.index == kVccz) return wave.vcc() == 0;
  if (operand.index == kExecz) return wave.exec() == 0;
  return wave.scc;
}

template <typename T>
T read(const Operand& operand, const Wave& wave) {
  switch (operand.kind) {
    case OperandKind::sgpr:
      if constexpr (sizeof(T) == 8) return static_cast<T>(wave.read64(operand.index));
      return static_cast<T>(wave.sgpr[operand.index]);
    case OperandKind::constant:
      return static_cast<T>(operand.constant);
    default:
      return static_cast<T>(special_value(operand, wave));
  }
}

template <typename T>
void write(const Operand& operand, Wave& wave, T value) {
  if constexpr (sizeof(T) == 8) {
    wave.write64(operand.index, static_cast<uint64_t>(value));
  } else {
    wave.sgpr[operand.index] = static_cast<uint32_t>(value);
  }
}

// `compute` returns the result; SCC becomes "result is not zero" where kSetsScc.
template <typename D, typename S, bool kSetsScc, auto compute>
void unary(const Instruction& i, Wave& wave) {
  D result = static_cast<D>(compute(read<S>(i.src[0], wave)));
  write<D>(i.dst, wave, result);
  if constexpr (kSetsScc) wave.scc = result != 0;
}

template <typename D, typename S0, typename S1, bool kSetsScc, auto compute>
void binary(const Instruction& i, Wave& wave) {
  D result = static_cast<D>(compute(read<S0>(i.src[0], wave), read<S1>(i.src[1], wave)));
  write<D>(i.dst, wave, result);
  if constexpr (kSetsScc) wave.scc = result != 0;
}

// Sums whose SCC is the carry (unsigned) or the overflow (signed) of the exact result.
template <typename Wide, auto compute>
void carry(const Instruction& i, Wave& wave) {
  using Narrow = std::conditional_t<std::is_signed_v<Wide>, int32_t, uint32_t>;
  Wide exact = compute(Wide{read<Narrow>(i.src[0], wave)}, Wide{read<Narrow>(i.src[1], wave)},
                       Wide{wave.scc});
  write<uint32_t>(i.dst, wave, static_cast<uint32_t>(exact));
  wave.scc = exact != Wide{static_cast<Narrow>(exact)};
}

// SCC says whether the first operand was chosen.
template <typename T, auto predicate>
void choose(const Instruction& i, Wave& wave) {
  T first = read<T>(i.src[0], wave), second = read<T>(i.src[1], wave);
  wave.scc = predicate(first, second);
  write<T>(i.dst, wave, wave.scc ? first : second);
}

template <typename S0, typename S1, auto predicate>
void compare(const Instruction& i, Wave& wave) {
  wave.scc = predicate(read<S0>(i.src[0], wave), read<S1>(i.src[1], wave));
}

// The immediate is sign-extended for signed compares and zero-extended for unsigned ones.
template <typename T, auto predicate>
void compare_immediate(const Instruction& i, Wave& wave) {
  T immediate =
      std::is_signed_v<T> ? static_cast<T>(i.simm) : static_cast<T>(static_cast<uint16_t>(i.simm));
  wave.scc = predicate(read<T>(i.src[0], wave), immediate);
}

// D = exec; exec = compute(source, exec); SCC = exec is not zero.
template <auto compute>
void save_exec(const Instruction& i, Wave& wave) {
  uint64_t saved = wave.exec(), source = read<uint64_t>(i.src[0], wave);
  uint64_t result = compute(source, saved);
  wave.write64(i.dst.index, saved);
  wave.write64(kExec, result);
  wave.scc = result != 0;
}

// Both D and exec receive the result.
template <auto compute>
void write_exec(const Instruction& i, Wave& wave) {
  uint64_t result = compute(read<uint64_t>(i.src[0], wave), wave.exec());
  wave.write64(i.dst.index, result);
  wave.write64(kExec, result);
  wave.scc = result != 0;
}

template <typename T>
void conditional_select(const Instruction& i, Wave& wave) {
  write<T>(i.dst, wave, read<T>(i.src[wave.scc ? 0 : 1], wave));
}

template <typename T>
void conditional_move(const Instruction& i, Wave& wave) {
  if (wave.scc) write<T>(i.dst, wave, read<T>(i.src[0], wave));
}

template <typename T, bool kSet>
void set_bit(const Instruction& i, Wave& wave) {
  T bit = T{1} << (read<uint32_t>(i.src[0], wave) & (8 * sizeof(T) - 1));
  T old = read<T>(i.dst, wave);
  write<T>(i.dst, wave, kSet ? old | bit : old & ~bit);
}

template <typename T>
T reverse_bits(T value) {
  T result = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i) result |= (value >> i & 1) << (8 * sizeof(T) - 1 - i);
  return result;
}

template <typename T>
int32_t first_one(T value) {
  return value ? std::countr_zero(value) : -1;
}

template <typename T>
int32_t leading_zeros(T value) {
  return value ? std::countl_zero(value) : -1;
}

// Leading bits equal to the sign; -1 when all are.
template <typename T>
int32_t leading_signs(T value) {
  T sign_removed = static_cast<std::make_signed_t<T>>(value) < 0 ? ~value : value;
  return leading_zeros(sign_removed);
}

// The second operand packs offset (bits 4:0 or 5:0) and width (bits 22:16).
template <typename T>
T bitfield_extract(T value, uint32_t field) {
  constexpr unsigned kBits = 8 * sizeof(T);
  unsigned offset = field & (kBits - 1), width = field >> 16 & 0x7f;
  if (width == 0) return 0;
  if (width > kBits - offset) width = kBits - offset;
  using Unsigned = std::make_unsigned_t<T>;
  auto top_aligned = static_cast<Unsigned>(value) << (kBits - offset - width);
  return static_cast<T>(static_cast<T>(top_aligned) >> (kBits - width));
}

template <typename T>
T bitfield_mask(uint32_t width, uint32_t offset) {
  constexpr unsigned kBits = 8 * sizeof(T);
  return ((T{1} << (width & (kBits - 1))) - 1) << (offset & (kBits - 1));
}

template <int kShift>
void shift_add(const Instruction& i, Wave& wave) {
  uint64_t sum =
      (uint64_t{read<uint32_t>(i.src[0], wave)} << kShift) + read<uint32_t>(i.src[1], wave);
  write<uint32_t>(i.dst, wave, static_cast<uint32_t>(sum));
  wave.scc = sum >> 32 != 0;
}

void bit_replicate(const Instruction& i, Wave& wave) {
  uint64_t source = read<uint32_t>(i.src[0], wave), result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (source >> bit & 1) * (uint64_t{3} << 2 * bit);
  wave.write64(i.dst.index, result);
}

// The decoder put the address of the next instruction there.
void get_pc(const Instruction& i, Wave& wave) { wave.write64(i.dst.index, i.src[0].constant); }

void add_immediate(const Instruction& i, Wave& wave) {
  int64_t exact = int64_t{read<int32_t>(i.dst, wave)} + i.simm;
  write<int32_t>(i.dst, wave, static_cast<int32_t>(exact));
  wave.scc = exact != int64_t{static_cast<int32_t>(exact)};
}

void multiply_immediate(const Instruction& i, Wave& wave) {
  write<uint32_t>(i.dst, wave, read<uint32_t>(i.dst, wave) * static_cast<uint32_t>(i.simm));
}

void move_immediate(const Instruction& i, Wave& wave) { write<int32_t>(i.dst, wave, i.simm); }

void conditional_move_immediate(const Instruction& i, Wave& wave) {
  if (wave.scc) write<int32_t>(i.dst, wave, i.simm);
}

// The hardware register MODE as FloatMode keeps it (CDNA3 ISA, "Mode register").
constexpr unsigned kModeRegister = 1;
constexpr uint32_t kDx10Clamp = 1u << 8, kIeee = 1u << 9, kModeledBits = 0x3ff;

uint32_t mode_bits(const FloatMode& mode) {
  return mode.round | (mode.flush_f32 ? 0u : 3u << 4) | (mode.flush_f16_f64 ? 0u : 3u << 6) |
         (mode.dx10_clamp ? kDx10Clamp : 0) | (mode.ieee ? kIeee : 0);
}

struct HardwareField {
  unsigned offset, width;
  uint32_t mask() const { return static_cast<uint32_t>((uint64_t{1} << width) - 1) << offset; }
};

HardwareField mode_field(const Instruction& i) {
  unsigned number = static_cast<unsigned>(i.simm) & 0x3f;
  if (number != kModeRegister) {
    throw EmulationError(to_string(i) + ": hardware register " + std::to_string(number) +
                         " is not supported, only MODE (1)");
  }
  HardwareField field{static_cast<unsigned>(i.simm) >> 6 & 0x1f,
                      (static_cast<unsigned>(i.simm) >> 11 & 0x1f) + 1};
  if (field.offset + field.width > 32) field.width = 32 - field.offset;
  return field;
}

void get_register(const Instruction& i, Wave& wave) {
  HardwareField field = mode_field(i);
  write<uint32_t>(i.dst, wave, (mode_bits(wave.mode) & field.mask()) >> field.offset);
}

void set_register(const Instruction& i, Wave& wave) {
  HardwareField field = mode_field(i);
  uint32_t old = mode_bits(wave.mode);
  uint32_t value = read<uint32_t>(i.src[0], wave) << field.offset & field.mask();
  uint32_t bits = (old & ~field.mask()) | value;
  uint32_t single = bits >> 4 & 3, other = bits >> 6 & 3;
  if ((bits & 0xf) || (single != 0 && single != 3) || (other != 0 && other != 3) ||
      (bits & ~kModeledBits)) {
    throw EmulationError(to_string(i) + " sets MODE to " + std::to_string(bits) +
                         ": only round to nearest, both or no denormals, DX10_CLAMP and IEEE are "
                         "supported");
  }
  wave.mode.flush_f32 = single == 0;
  wave.mode.flush_f16_f64 = other == 0;
  wave.mode.dx10_clamp = (bits & kDx10Clamp) != 0;
  wave.mode.ieee = (bits & kIeee) != 0;
}

void refuse_jump(const Instruction& i, Wave&) {
  throw EmulationError(to_string(i) + ": jumps to computed addresses are not supported");
}

constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kAndNot = [](auto a, auto b) { return a & ~b; };
constexpr auto kOrNot = [](auto a, auto b) { return a | ~b; };
constexpr auto kNotAnd = [](auto a, auto b) { return ~a & b; };
constexpr auto kNotOr = [](auto a, auto b) { return ~a | b; };
constexpr auto kNand = [](auto a, auto b) { return ~(a & b); };
constexpr auto kNor = [](auto a, auto b) { return ~(a | b); };
constexpr auto kXnor = [](auto a, auto b) { return ~(a ^ b); };
constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kUnequal = [](auto a, auto b) { return a != b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kGreaterEqual = [](auto a, auto b) { return a >= b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kLessEqual = [](auto a, auto b) { return a <= b; };
constexpr auto kSame = [](auto a) { return a; };
constexpr auto kNot = [](auto a) { return ~a; };
constexpr auto kShiftLeft = [](auto a, uint32_t n) { return a << (n & (8 * sizeof(a) - 1)); };
constexpr auto kShiftRight = [](auto a, uint32_t n) { return a >> (n & (8 * sizeof(a) - 1)); };
constexpr auto kBitClear = [](auto a, uint32_t n) { return !(a >> (n & (8 * sizeof(a) - 1)) & 1); };
constexpr auto kBitSet = [](auto a, uint32_t n) {
  return (a >> (n & (8 * sizeof(a) - 1)) & 1) != 0;
};
constexpr auto kExtract = [](auto a, uint32_t field) { return bitfield_extract(a, field); };

void fill_moves_and_bits(HandlerTable& t) {
  t[Op::s_mov_b32] = unary<uint32_t, uint32_t, false, kSame>;
  t[Op::s_mov_b64] = unary<uint64_t, uint64_t, false, kSame>;
  t[Op::s_cmov_b32] = conditional_move<uint32_t>;
  t[Op::s_cmov_b64] = conditional_move<uint64_t>;
  t[Op::s_cselect_b32] = conditional_select<uint32_t>;
  t[Op::s_cselect_b64] = conditional_select<uint64_t>;
  t[Op::s_not_b32] = unary<uint32_t, uint32_t, true, kNot>;
  t[Op::s_not_b64] = unary<uint64_t, uint64_t, true, kNot>;
  t[Op::s_brev_b32] = unary<uint32_t, uint32_t, false, reverse_bits<uint32_t>>;
  t[Op::s_brev_b64] = unary<uint64_t, uint64_t, false, reverse_bits<uint64_t>>;
  constexpr auto kZeros = [](auto a) { return std::popcount(static_cast<decltype(a)>(~a)); };
  constexpr auto kOnes = [](auto a) { return std::popcount(a); };
  t[Op::s_bcnt0_i32_b32] = unary<uint32_t, uint32_t, true, kZeros>;
  t[Op::s_bcnt0_i32_b64] = unary<uint32_t, uint64_t, true, kZeros>;
  t[Op::s_bcnt1_i32_b32] = unary<uint32_t, uint32_t, true, kOnes>;
  t[Op::s_bcnt1_i32_b64] = unary<uint32_t, uint64_t, true, kOnes>;
  constexpr auto kFirstZero = [](auto a) { return first_one(static_cast<decltype(a)>(~a)); };
  t[Op::s_ff0_i32_b32] = unary<uint32_t, uint32_t, false, kFirstZero>;
  t[Op::s_ff0_i32_b64] = unary<uint32_t, uint64_t, false, kFirstZero>;
  t[Op::s_ff1_i32_b32] = unary<uint32_t, uint32_t, false, first_one<uint32_t>>;
  t[Op::s_ff1_i32_b64] = unary<uint32_t, uint64_t, false, first_one<uint64_t>>;
  t[Op::s_flbit_i32_b32] = unary<uint32_t, uint32_t, false, leading_zeros<uint32_t>>;
  t[Op::s_flbit_i32_b64] = unary<uint32_t, uint64_t, false, leading_zeros<uint64_t>>;
  t[Op::s_flbit_i32] = unary<uint32_t, uint32_t, false, leading_signs<uint32_t>>;
  t[Op::s_flbit_i32_i64] = unary<uint32_t, uint64_t, false, leading_signs<uint64_t>>;
  t[Op::s_sext_i32_i8] = unary<int32_t, int32_t, false, [](int32_t a) { return int8_t(a); }>;
  t[Op::s_sext_i32_i16] = unary<int32_t, int32_t, false, [](int32_t a) { return int16_t(a); }>;
  t[Op::s_bitset0_b32] = set_bit<uint32_t, false>;
  t[Op::s_bitset0_b64] = set_bit<uint64_t, false>;
  t[Op::s_bitset1_b32] = set_bit<uint32_t, true>;
  t[Op::s_bitset1_b64] = set_bit<uint64_t, true>;
  constexpr auto kAbsolute = [](uint32_t a) { return a >> 31 ? 0 - a : a; };
  t[Op::s_abs_i32] = unary<uint32_t, uint32_t, true, kAbsolute>;
  t[Op::s_bitreplicate_b64_b32] = bit_replicate;
  t[Op::s_getpc_b64] = get_pc;
  t[Op::s_setpc_b64] = refuse_jump;
  t[Op::s_swappc_b64] = refuse_jump;
}

void fill_exec(HandlerTable& t) {
  t[Op::s_and_saveexec_b64] = save_exec<kAnd>;
  t[Op::s_or_saveexec_b64] = save_exec<kOr>;
  t[Op::s_xor_saveexec_b64] = save_exec<kXor>;
  t[Op::s_andn2_saveexec_b64] = save_exec<kAndNot>;
  t[Op::s_orn2_saveexec_b64] = save_exec<kOrNot>;
  t[Op::s_nand_saveexec_b64] = save_exec<kNand>;
  t[Op::s_nor_saveexec_b64] = save_exec<kNor>;
  t[Op::s_xnor_saveexec_b64] = save_exec<kXnor>;
  t[Op::s_andn1_saveexec_b64] = save_exec<kNotAnd>;
  t[Op::s_orn1_saveexec_b64] = save_exec<kNotOr>;
  t[Op::s_andn1_wrexec_b64] = write_exec<kNotAnd>;
  t[Op::s_andn2_wrexec_b64] = write_exec<kAndNot>;
}

void fill_arithmetic(HandlerTable& t) {
  constexpr auto kAdd = [](auto a, auto b, auto) { return a + b; };
  constexpr auto kSubtract = [](auto a, auto b, auto) { return a - b; };
  t[Op::s_add_u32] = carry<uint64_t, kAdd>;
  t[Op::s_sub_u32] = carry<uint64_t, kSubtract>;
  t[Op::s_add_i32] = carry<int64_t, kAdd>;
  t[Op::s_sub_i32] = carry<int64_t, kSubtract>;
  t[Op::s_addc_u32] = carry<uint64_t, [](uint64_t a, uint64_t b, uint64_t c) { return a + b + c; }>;
  t[Op::s_subb_u32] = carry<uint64_t, [](uint64_t a, uint64_t b, uint64_t c) { return a - b - c; }>;
  t[Op::s_min_i32] = choose<int32_t, kLess>;
  t[Op::s_min_u32] = choose<uint32_t, kLess>;
  t[Op::s_max_i32] = choose<int32_t, kGreater>;
  t[Op::s_max_u32] = choose<uint32_t, kGreater>;
  t[Op::s_mul_i32] =
      binary<uint32_t, uint32_t, uint32_t, false, [](uint32_t a, uint32_t b) { return a * b; }>;
  t[Op::s_mul_hi_u32] = binary<uint32_t, uint32_t, uint32_t, false,
                               [](uint32_t a, uint32_t b) { return (uint64_t{a} * b >> 32); }>;
  t[Op::s_mul_hi_i32] = binary<int32_t, int32_t, int32_t, false,
                               [](int32_t a, int32_t b) { return (int64_t{a} * b >> 32); }>;
  constexpr auto kDistance = [](int32_t a, int32_t b) {
    auto difference = static_cast<uint32_t>(a) - static_cast<uint32_t>(b);
    return difference >> 31 ? 0 - difference : difference;
  };
  t[Op::s_absdiff_i32] = binary<uint32_t, int32_t, int32_t, true, kDistance>;
  t[Op::s_lshl1_add_u32] = shift_add<1>;
  t[Op::s_lshl2_add_u32] = shift_add<2>;
  t[Op::s_lshl3_add_u32] = shift_add<3>;
  t[Op::s_lshl4_add_u32] = shift_add<4>;
  t[Op::s_pack_ll_b32_b16] = binary<uint32_t, uint32_t, uint32_t, false,
                                    [](uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; }>;
  t[Op::s_pack_lh_b32_b16] =
      binary<uint32_t, uint32_t, uint32_t, false,
             [](uint32_t a, uint32_t b) { return (a & 0xffff) | (b & 0xffff0000); }>;
  t[Op::s_pack_hh_b32_b16] =
      binary<uint32_t, uint32_t, uint32_t, false,
             [](uint32_t a, uint32_t b) { return (a >> 16) | (b & 0xffff0000); }>;
}

template <auto compute>
void fill_logic_pair(HandlerTable& t, Op narrow, Op wide) {
  t[narrow] = binary<uint32_t, uint32_t, uint32_t, true, compute>;
  t[wide] = binary<uint64_t, uint64_t, uint64_t, true, compute>;
}

void fill_logic_and_shifts(HandlerTable& t) {
  fill_logic_pair<kAnd>(t, Op::s_and_b32, Op::s_and_b64);
  fill_logic_pair<kOr>(t, Op::s_or_b32, Op::s_or_b64);
  fill_logic_pair<kXor>(t, Op::s_xor_b32, Op::s_xor_b64);
  fill_logic_pair<kAndNot>(t, Op::s_andn2_b32, Op::s_andn2_b64);
  fill_logic_pair<kOrNot>(t, Op::s_orn2_b32, Op::s_orn2_b64);
  fill_logic_pair<kNand>(t, Op::s_nand_b32, Op::s_nand_b64);
  fill_logic_pair<kNor>(t, Op::s_nor_b32, Op::s_nor_b64);
  fill_logic_pair<kXnor>(t, Op::s_xnor_b32, Op::s_xnor_b64);
  t[Op::s_lshl_b32] = binary<uint32_t, uint32_t, uint32_t, true, kShiftLeft>;
  t[Op::s_lshl_b64] = binary<uint64_t, uint64_t, uint32_t, true, kShiftLeft>;
  t[Op::s_lshr_b32] = binary<uint32_t, uint32_t, uint32_t, true, kShiftRight>;
  t[Op::s_lshr_b64] = binary<uint64_t, uint64_t, uint32_t, true, kShiftRight>;
  t[Op::s_ashr_i32] = binary<int32_t, int32_t, uint32_t, true, kShiftRight>;
  t[Op::s_ashr_i64] = binary<int64_t, int64_t, uint32_t, true, kShiftRight>;
  t[Op::s_bfm_b32] = binary<uint32_t, uint32_t, uint32_t, false, bitfield_mask<uint32_t>>;
  t[Op::s_bfm_b64] = binary<uint64_t, uint32_t, uint32_t, false, bitfield_mask<uint64_t>>;
  t[Op::s_bfe_u32] = binary<uint32_t, uint32_t, uint32_t, true, kExtract>;
  t[Op::s_bfe_i32] = binary<int32_t, int32_t, uint32_t, true, kExtract>;
  t[Op::s_bfe_u64] = binary<uint64_t, uint64_t, uint32_t, true, kExtract>;
  t[Op::s_bfe_i64] = binary<int64_t, int64_t, uint32_t, true, kExtract>;
}

// Six predicates in opcode order, as SOPC and SOPK both have them.
template <typename T>
void fill_compares(HandlerTable& t, Op first, Op first_immediate) {
  const Handler handlers[] = {compare<T, T, kEqual>,   compare<T, T, kUnequal>,
                              compare<T, T, kGreater>, compare<T, T, kGreaterEqual>,
                              compare<T, T, kLess>,    compare<T, T, kLessEqual>};
  const Handler immediates[] = {compare_immediate<T, kEqual>,   compare_immediate<T, kUnequal>,
                                compare_immediate<T, kGreater>, compare_immediate<T, kGreaterEqual>,
                                compare_immediate<T, kLess>,    compare_immediate<T, kLessEqual>};
  for (int i = 0; i < 6; ++i) {
    t[static_cast<Op>(static_cast<int>(first) + i)] = handlers[i];
    t[static_cast<Op>(static_cast<int>(first_immediate) + i)] = immediates[i];
  }
}

void fill_compares_and_immediates(HandlerTable& t) {
  fill_compares<int32_t>(t, Op::s_cmp_eq_i32, Op::s_cmpk_eq_i32);
  fill_compares<uint32_t>(t, Op::s_cmp_eq_u32, Op::s_cmpk_eq_u32);
  t[Op::s_cmp_eq_u64] = compare<uint64_t, uint64_t, kEqual>;
  t[Op::s_cmp_lg_u64] = compare<uint64_t, uint64_t, kUnequal>;
  t[Op::s_bitcmp0_b32] = compare<uint32_t, uint32_t, kBitClear>;
  t[Op::s_bitcmp1_b32] = compare<uint32_t, uint32_t, kBitSet>;
  t[Op::s_bitcmp0_b64] = compare<uint64_t, uint32_t, kBitClear>;
  t[Op::s_bitcmp1_b64] = compare<uint64_t, uint32_t, kBitSet>;
  t[Op::s_movk_i32] = move_immediate;
  t[Op::s_cmovk_i32] = conditional_move_immediate;
  t[Op::s_addk_i32] = add_immediate;
  t[Op::s_mulk_i32] = multiply_immediate;
  t[Op::s_getreg_b32] = get_register;
  t[Op::s_setreg_b32] = set_register;
  t[Op::s_setreg_imm32_b32] = set_register;
}

}  // namespace

void fill_salu(HandlerTable& table) {
  fill_moves_and_bits(table);
  fill_exec(table);
  fill_arithmetic(table);
  fill_logic_and_shifts(table);
  fill_compares_and_immediates(table);
  fill_control(table);
}

}  // namespace mha_sink::emulator
