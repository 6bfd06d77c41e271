// Reads of what nobody wrote: registers, lane by lane, and LDS, byte by byte.
//
// Compilers move undefined values about (spills, phis, lanes that a select drops) and compute with
// them on the SALU before a condition drops the result, so that is no finding: moves, selects, LDS
// loads and the SALU hand the mark on, and what is reported is the first vector instruction that
// computes with it, or what addresses memory with it, branches on it, makes EXEC of it or stores
// it to LDS or global memory. SGPRs are followed bit by bit through bitwise operations, because
// lane masks are merged out of undefined ones. A register counts as written once a part of it is.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <unordered_map>

#include "emulator/sanitize.h"

namespace mha_sink::emulator {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};

// What an instruction does with undefined sources.
enum class Rule : uint8_t {
  report,
  move,    // one source, all lanes in place
  select,  // v_cndmask
  swap,    // exchanges lanes or registers of two operands
  first,   // v_readfirstlane, v_readlane
  lane,    // v_writelane
  scalar,  // SALU operation, bit by bit where it is bitwise
  wide,    // the low half of the result needs low halves only
  ignore   // sources are not looked at, and the destination is defined
};

Rule rule_of(const Instruction& i) {
  switch (i.op) {
    case Op::v_mov_b32:
    case Op::v_mov_b64:
    case Op::v_accvgpr_read_b32:
    case Op::v_accvgpr_write_b32:
    case Op::v_accvgpr_mov_b32:
      return i.sdwa.used || i.dpp != Dpp::none ? Rule::report : Rule::move;
    case Op::v_pk_mov_b32:
      return Rule::ignore;
    case Op::v_cndmask_b32:
      return i.sdwa.used || i.dpp != Dpp::none ? Rule::report : Rule::select;
    case Op::v_swap_b32:
    case Op::v_permlane16_swap_b32:
    case Op::v_permlane32_swap_b32:
      return Rule::swap;
    case Op::v_readfirstlane_b32:
    case Op::v_readlane_b32:
      return Rule::first;
    case Op::v_writelane_b32:
      return Rule::lane;
    case Op::v_mad_u64_u32:
    case Op::v_mad_i64_i32:
    case Op::v_lshl_add_u64:
    case Op::v_lshlrev_b64:
      return Rule::wide;
    case Op::s_setreg_b32:
      return Rule::report;
    default:
      if (i.format <= Format::sopk) return Rule::scalar;
      if (i.format == Format::flat && mnemonic(i.op).starts_with("scratch_store")) {
        return Rule::ignore;
      }
      return Rule::report;
  }
}

struct Origin {
  uint32_t pc = 0, byte = 0;  // the LDS load, and the first byte that nobody wrote
};

struct WaveShadow {
  std::array<uint64_t, kRegisterIds> lanes{};  // of vector registers: the lanes that are written
  std::array<uint32_t, kSccId + 1> bits{};     // of scalar registers: the bits that are
  std::unordered_map<RegisterId, Origin> origins;
};

class UninitCheck final : public Observer {
 public:
  explicit UninitCheck(Program program) : program_(std::move(program)) {
    for (const Instruction& instruction : program_->kernel.program) {
      rules_.push_back(rule_of(instruction));
    }
  }

  void start(const Workgroup& workgroup, std::span<Wave> waves) override {
    lds_.assign((workgroup.lds.size() + 3) / 4, 0);
    waves_.assign(waves.size(), WaveShadow{});
    for (const Wave& wave : waves) {
      WaveShadow& shadow = waves_[wave.index];
      // What the launch puts into registers differs from their poison.
      for (int id = 0; id < kSccId; ++id) shadow.bits[id] = wave.sgpr[id] == kPoison ? 0 : ~0u;
      shadow.lanes[kVgprIds] = wave.exec();
    }
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    WaveShadow& shadow = waves_[wave.index];
    const Sanitized& sanitized = program_->instructions[pc];
    switch (rules_[pc]) {
      case Rule::report:
        return report(pc, instruction, sanitized, wave, shadow);
      case Rule::move:
        return move(instruction, wave, shadow);
      case Rule::select:
        return select(instruction, sanitized, wave, shadow);
      case Rule::swap:
        return swap(instruction, wave, shadow);
      case Rule::first:
        return read_lane(instruction, wave, shadow);
      case Rule::lane:
        return write_lane(instruction, shadow);
      case Rule::scalar:
        return scalar(instruction, sanitized, wave, shadow);
      case Rule::wide:
        return wide(instruction, sanitized, wave, shadow);
      case Rule::ignore:
        return define(sanitized, wave.exec(), shadow);
    }
  }

 private:
  // Clamped: damaged code may name a tuple that ends outside the register file.
  static RegisterId vector_id(const Operand& operand, unsigned dword = 0) {
    const unsigned file = operand.kind == OperandKind::vgpr ? kVgprIds : kAgprIds;
    return static_cast<RegisterId>(
        std::min<unsigned>(file + operand.index + dword, kRegisterIds - 1));
  }
  static bool is_vector(const Operand& operand) {
    return operand.kind == OperandKind::vgpr || operand.kind == OperandKind::agpr;
  }

  // The lanes in which a dword of an operand is defined.
  static uint64_t lanes_of(const Operand& operand, unsigned dword, const WaveShadow& shadow) {
    if (is_vector(operand)) return shadow.lanes[vector_id(operand, dword)];
    return bits_of(operand, dword, shadow) == ~0u ? kAll : 0;
  }
  static uint32_t bits_of(const Operand& operand, unsigned dword, const WaveShadow& shadow) {
    if (operand.kind != OperandKind::sgpr) return ~0u;
    return shadow.bits[operand.index + dword];
  }

  static void assign(uint64_t& lanes, uint64_t exec, uint64_t value) {
    lanes = (lanes & ~exec) | (value & exec);
  }

  static void define(const Sanitized& sanitized, uint64_t exec, WaveShadow& shadow) {
    const uint64_t mask = sanitized.kind == InstructionClass::mfma ? kAll : exec;
    for (const RegisterRange& range : sanitized.footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        id < kVgprIds ? static_cast<void>(shadow.bits[id] = ~0u)
                      : static_cast<void>(shadow.lanes[id] |= mask);
      }
    }
  }

  void report(uint32_t pc, const Instruction& instruction, const Sanitized& sanitized,
              const Wave& wave, WaveShadow& shadow) {
    const uint64_t exec = sanitized.kind == InstructionClass::mfma ? kAll : wave.exec();
    for (const RegisterRange& range : sanitized.footprint.reads()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        check(instruction, range, id, exec, shadow);
      }
    }
    const AccessShape& shape = sanitized.shape;
    if (shape.lds_dma) mark_dma(instruction, shape, wave);
    if (shape.space == MemorySpace::lds && shape.kind == AccessKind::load) {
      return load_lds(pc, instruction, shape, wave, shadow);
    }
    if (shape.space == MemorySpace::lds) write_lds(instruction, shape, wave);
    define(sanitized, exec, shadow);
  }

  void check(const Instruction& instruction, const RegisterRange& range, RegisterId id,
             uint64_t exec, const WaveShadow& shadow) const {
    if (id < kVgprIds) {
      const uint32_t undefined = ~shadow.bits[id];
      if (undefined == 0) return;
      // A lane mask is read in the active lanes only.
      const bool mask = range.source == 2 && range.count == 2 &&
                        instruction.format != Format::smem && instruction.format >= Format::vop1 &&
                        instruction.format <= Format::vop3;
      const auto active = static_cast<uint32_t>(id == range.first ? exec : exec >> 32);
      if (mask && (undefined & active) == 0) return;
      if (id == kSccId || !mask) fail_scalar(id, undefined);
      fail_scalar(id, undefined & active);
    }
    const uint64_t undefined = exec & ~shadow.lanes[id];
    if (undefined == 0) return;
    // DPP takes other lanes' values; that it finds none at all is certain to be wrong.
    if (instruction.dpp != Dpp::none && range.source == 0 && shadow.lanes[id] != 0) return;
    // Lanes move: whether an undefined one is read depends on the addresses.
    if (moves_lanes(instruction) && shadow.lanes[id] != 0) return;
    fail_vector(id, undefined, shadow);
  }

  static bool moves_lanes(const Instruction& instruction) {
    return instruction.op == Op::ds_bpermute_b32 || instruction.op == Op::ds_permute_b32 ||
           instruction.op == Op::ds_swizzle_b32;
  }

  [[noreturn]] static void fail_scalar(RegisterId id, uint32_t undefined) {
    throw SanitizerError(
        "reads " + register_name(id) + ", " +
        (undefined == ~0u
             ? std::string("which nobody wrote")
             : "whose bit " + std::to_string(std::countr_zero(undefined)) + " nobody wrote"));
  }

  [[noreturn]] void fail_vector(RegisterId id, uint64_t undefined, const WaveShadow& shadow) const {
    std::string message = "reads " + register_name(id) + ", which nobody wrote in lane " +
                          std::to_string(std::countr_zero(undefined)) + " (" +
                          std::to_string(std::popcount(undefined)) + " such lanes)";
    const auto origin = shadow.origins.find(id);
    if (origin != shadow.origins.end()) {
      message += "; it came from LDS byte " + std::to_string(origin->second.byte) +
                 ", which nobody wrote, by " + program_->describe(origin->second.pc);
    }
    throw SanitizerError(message);
  }

  // Moves.

  static void move(const Instruction& instruction, const Wave& wave, WaveShadow& shadow) {
    for (unsigned dword = 0; dword < instruction.dst.dwords; ++dword) {
      const RegisterId to = vector_id(instruction.dst, dword);
      assign(shadow.lanes[to], wave.exec(), lanes_of(instruction.src[0], dword, shadow));
      if (is_vector(instruction.src[0])) {
        hand_on(vector_id(instruction.src[0], dword), to, shadow);
      }
    }
  }

  static void hand_on(RegisterId from, RegisterId to, WaveShadow& shadow) {
    if (shadow.origins.empty()) return;
    const auto origin = shadow.origins.find(from);
    if (origin != shadow.origins.end()) shadow.origins[to] = Origin(origin->second);
  }

  void select(const Instruction& instruction, const Sanitized& sanitized, const Wave& wave,
              WaveShadow& shadow) const {
    uint64_t mask = 0;
    for (const RegisterRange& range : sanitized.footprint.reads()) {
      if (range.source != 2) continue;
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        check(instruction, range, id, wave.exec(), shadow);
      }
      if (range.count == 2) mask = wave.read64(range.first);
    }
    const uint64_t zero = lanes_of(instruction.src[0], 0, shadow);
    const uint64_t one = lanes_of(instruction.src[1], 0, shadow);
    const RegisterId to = vector_id(instruction.dst);
    assign(shadow.lanes[to], wave.exec(), (mask & one) | (~mask & zero));
    for (int i = 0; i < 2; ++i) {
      if (is_vector(instruction.src[i])) hand_on(vector_id(instruction.src[i]), to, shadow);
    }
  }

  static void swap(const Instruction& instruction, const Wave& wave, WaveShadow& shadow) {
    uint64_t& a = shadow.lanes[vector_id(instruction.dst)];
    uint64_t& b = shadow.lanes[vector_id(instruction.src[0])];
    const uint64_t exec = wave.exec(), old_a = a, old_b = b;
    if (instruction.op == Op::v_swap_b32) {
      assign(a, exec, old_b);
      assign(b, exec, old_a);
      return;
    }
    // Odd rows of the destination change places with even rows of the source.
    const bool halves = instruction.op == Op::v_permlane32_swap_b32;
    const unsigned row = halves ? 32 : 16;
    const uint64_t even = halves ? 0x00000000ffffffffu : 0x0000ffff0000ffffu;
    a = (old_a & even) | ((old_b & even) << row);
    b = (old_b & ~even) | ((old_a & ~even) >> row);
  }

  static void read_lane(const Instruction& instruction, const Wave& wave, WaveShadow& shadow) {
    int lane = wave.exec() == 0 ? 0 : std::countr_zero(wave.exec());
    if (instruction.op == Op::v_readlane_b32) {
      const Operand& select = instruction.src[1];
      const uint64_t number = select.kind == OperandKind::constant ? select.constant
                              : select.kind == OperandKind::sgpr   ? wave.sgpr[select.index]
                                                                   : 0;
      lane = static_cast<int>(number % kLanes);
    }
    const uint64_t lanes = lanes_of(instruction.src[0], 0, shadow);
    shadow.bits[instruction.dst.index] = (lanes >> lane & 1) != 0 ? ~0u : 0;
  }

  static void write_lane(const Instruction& instruction, WaveShadow& shadow) {
    shadow.lanes[vector_id(instruction.dst)] = kAll;
  }

  // Scalar operations on bits.

  static uint32_t value_of(const Operand& operand, unsigned dword, const Wave& wave) {
    if (operand.kind == OperandKind::constant) {
      return static_cast<uint32_t>(operand.constant >> (32 * dword));
    }
    if (operand.kind != OperandKind::sgpr || operand.index + dword >= kSccId) return 0;
    return wave.sgpr[operand.index + dword];
  }

  static void scalar(const Instruction& i, const Sanitized& sanitized, const Wave& wave,
                     WaveShadow& shadow) {
    uint32_t result[2] = {};
    if (!bitwise(i, wave, shadow, result)) {
      bool defined = true;
      for (const RegisterRange& range : sanitized.footprint.reads()) {
        for (RegisterId id = range.first; id < range.first + range.count; ++id) {
          defined &= shadow.bits[id] == ~0u;
        }
      }
      result[0] = result[1] = defined ? ~0u : 0;
    }
    for (const RegisterRange& range : sanitized.footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        const bool all = (result[0] & result[1]) == ~0u;
        const uint32_t bits = id == kSccId ? (all ? ~0u : 0) : result[(id - range.first) & 1];
        if ((id == kExec || id == kExec + 1) && bits != ~0u) {
          throw SanitizerError("makes EXEC of what nobody wrote");
        }
        shadow.bits[id] = bits;
      }
    }
  }

  // For moves and operations on bits: sets which bits of the result are defined.
  static bool bitwise(const Instruction& i, const Wave& wave, const WaveShadow& shadow,
                      uint32_t (&result)[2]) {
    const std::string_view name = mnemonic(i.op);
    if (i.dst.kind != OperandKind::sgpr) return false;
    if (!name.ends_with("_b32") && !name.ends_with("_b64")) return false;
    const bool conditional = name.starts_with("s_cmov_") || name.starts_with("s_cselect_");
    if (conditional && shadow.bits[kSccId] == 0) return true;
    result[1] = ~0u;
    for (unsigned d = 0; d < i.dst.dwords; ++d) {
      const uint32_t a = bits_of(i.src[0], d, shadow), b = bits_of(i.src[1], d, shadow);
      const uint32_t x = value_of(i.src[0], d, wave), y = value_of(i.src[1], d, wave);
      if (name.starts_with("s_mov_") || name.starts_with("s_not_")) {
        result[d] = a;
      } else if (name.starts_with("s_cmov_")) {
        result[d] = wave.scc ? a : shadow.bits[i.dst.index + d];
      } else if (name.starts_with("s_cselect_")) {
        result[d] = wave.scc ? a : b;
      } else if (name.starts_with("s_andn2_b")) {
        result[d] = (a & b) | (a & ~x) | (b & y);
      } else if (name.starts_with("s_orn2_b")) {
        result[d] = (a & b) | (a & x) | (b & ~y);
      } else if (name.starts_with("s_and_b") || name.starts_with("s_nand_b")) {
        result[d] = (a & b) | (a & ~x) | (b & ~y);
      } else if (name.starts_with("s_or_b") || name.starts_with("s_nor_b")) {
        result[d] = (a & b) | (a & x) | (b & y);
      } else if (name.starts_with("s_xor_b") || name.starts_with("s_xnor_b")) {
        result[d] = a & b;
      } else if (name.starts_with("s_and_saveexec_b")) {
        // The old EXEC goes to the destination; bits that are 0 in it stay 0 in the new one.
        result[d] = a | ~wave.sgpr[kExec + d];
      } else {
        return false;
      }
    }
    return true;
  }

  // 64-bit operations whose upper result nobody needs get an undefined upper source.
  void wide(const Instruction& instruction, const Sanitized& sanitized, const Wave& wave,
            WaveShadow& shadow) const {
    uint64_t high = kAll;
    for (const RegisterRange& range : sanitized.footprint.reads()) {
      const bool halves = range.count == 2 && range.first >= kVgprIds;
      if (halves) high &= shadow.lanes[range.first + 1];
      for (RegisterId id = range.first; id < range.first + (halves ? 1 : range.count); ++id) {
        check(instruction, range, id, wave.exec(), shadow);
      }
    }
    define(sanitized, wave.exec(), shadow);
    assign(shadow.lanes[vector_id(instruction.dst, 1)], wave.exec(), high);
  }

  // LDS.

  void mark(uint64_t begin, uint64_t end) {
    if (begin >= end || end > lds_.size() * 4) return;
    for (uint64_t dword = begin / 4; dword * 4 < end; ++dword) {
      lds_[dword] |= mask(dword, begin, end);
    }
  }

  static uint8_t mask(uint64_t dword, uint64_t begin, uint64_t end) {
    uint32_t bytes = 0xf;
    if (dword * 4 < begin) bytes &= 0xfu << (begin - dword * 4);
    if (dword * 4 + 4 > end) bytes &= 0xfu >> (dword * 4 + 4 - end);
    return static_cast<uint8_t>(bytes & 0xf);
  }

  void mark_dma(const Instruction& instruction, const AccessShape& shape, const Wave& wave) {
    const uint64_t base = lds_dma_address(instruction, wave);
    for (uint64_t lanes = wave.exec(); lanes != 0; lanes &= lanes - 1) {
      const uint64_t begin = base + std::countr_zero(lanes) * uint64_t{shape.dma_bytes};
      mark(begin, begin + shape.dma_bytes);
    }
  }

  void write_lds(const Instruction& instruction, const AccessShape& shape, const Wave& wave) {
    for_each_access(instruction, shape, wave, [&](int lane, uint64_t begin, uint64_t end) {
      if (shape.kind == AccessKind::atomic && end <= lds_.size() * 4) {
        for (uint64_t dword = begin / 4; dword * 4 < end; ++dword) {
          if ((mask(dword, begin, end) & ~lds_[dword]) == 0) continue;
          throw SanitizerError("updates LDS byte " + std::to_string(begin) + " by lane " +
                               std::to_string(lane) + ", which nobody wrote");
        }
      }
      mark(begin, end);
    });
  }

  void load_lds(uint32_t pc, const Instruction& instruction, const AccessShape& shape,
                const Wave& wave, WaveShadow& shadow) {
    const uint64_t exec = wave.exec();
    const unsigned registers = instruction.dst.dwords / shape.accesses;
    const bool transposes = mnemonic(instruction.op).find("_tr_") != std::string_view::npos;
    for (unsigned d = 0; d < instruction.dst.dwords; ++d) {
      shadow.lanes[vector_id(instruction.dst, d)] |= exec;
      if (!shadow.origins.empty()) shadow.origins.erase(vector_id(instruction.dst, d));
    }
    for (unsigned which = 0; which < shape.accesses; ++which) {
      const LaneAddresses addresses = lane_addresses(instruction, shape, wave, which);
      for (uint64_t lanes = addresses.lanes; lanes != 0; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        const uint64_t begin = addresses.address[lane];
        const uint64_t end = begin + shape.bytes;
        if (end > lds_.size() * 4) continue;
        for (uint64_t dword = begin / 4; dword * 4 < end; ++dword) {
          if ((mask(dword, begin, end) & ~lds_[dword]) == 0) continue;
          const auto index = static_cast<unsigned>(dword - begin / 4);
          const unsigned d = which * registers + std::min(index, registers - 1);
          undefine(instruction, transposes, d, lane, {pc, static_cast<uint32_t>(dword * 4)},
                   shadow);
        }
      }
    }
  }

  // A transposing load spreads what a lane addresses over the 16 lanes around it.
  static void undefine(const Instruction& instruction, bool transposes, unsigned dword, int lane,
                       Origin origin, WaveShadow& shadow) {
    const uint64_t lanes = transposes ? uint64_t{0xffff} << (lane / 16 * 16) : uint64_t{1} << lane;
    const unsigned first = transposes ? 0 : dword;
    const unsigned last = transposes ? instruction.dst.dwords : dword + 1;
    for (unsigned d = first; d < last; ++d) {
      const RegisterId id = vector_id(instruction.dst, d);
      shadow.lanes[id] &= ~lanes;
      shadow.origins.emplace(id, origin);
    }
  }

  const Program program_;
  std::vector<Rule> rules_;
  std::vector<uint8_t> lds_;  // of each dword, the bytes that are written
  std::vector<WaveShadow> waves_;
};

}  // namespace

ObserverFactory uninit_check(Program program) {
  return [program = std::move(program)] { return std::make_unique<UninitCheck>(program); };
}

}  // namespace mha_sink::emulator
