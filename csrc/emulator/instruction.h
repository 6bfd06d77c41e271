// One decoded gfx950 instruction: what the decoder writes and every instruction family reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mha_sink::emulator {

class Wave;
struct Instruction;

// Executes one instruction for all 64 lanes of a wave. Throws EmulationError.
using Handler = void (*)(const Instruction&, Wave&);

// Base mnemonics, without the _e32/_e64/_dpp suffix that names an encoding.
enum class Op : uint16_t {
#define MHA_SINK_OP(format, opcode, name, ...) name,
#include "emulator/opcodes.inc"
#undef MHA_SINK_OP
  count
};

enum class Format : uint8_t {
  sop1,
  sop2,
  sopc,
  sopk,
  sopp,
  smem,
  vop1,
  vop2,
  vopc,
  vop3,
  vop3p,
  mai,
  ds,
  mubuf,
  flat
};

enum class OperandKind : uint8_t {
  none,
  sgpr,  // index in the ISA's scalar numbering: vcc 106, m0 124, exec 126
  vgpr,
  agpr,
  constant,  // inline constant or literal: the bits are in Operand::constant
  special    // vccz 251, execz 252, scc 253: index holds the ISA's number
};

struct Operand {
  OperandKind kind = OperandKind::none;
  uint8_t dwords = 1;
  uint16_t index = 0;
  // Bits of a constant as this operand's type sees them: a 16-bit float inline constant arrives in
  // the low half, a 64-bit one in all 64 bits, an integer sign-extended to 64 bits.
  uint64_t constant = 0;
};

enum class Dpp : uint8_t { none, dpp16 };

// Sub-dword addressing of VOP1, VOP2 and VOPC: the part of each source that is read, extended to a
// dword, and the part of the destination that is written.
struct Sdwa {
  enum class Part : uint8_t { byte0, byte1, byte2, byte3, word0, word1, dword };
  enum class Rest : uint8_t { zero, sign, keep };  // what the destination's other bits become

  bool used = false;
  Part dst = Part::dword, src[2] = {Part::dword, Part::dword};
  Rest rest = Rest::zero;
  uint8_t sext = 0;  // bit i: source i is sign-extended
};

// Memory fields are meaningful for smem, ds, mubuf and flat only; VALU fields for vop* and mai.
struct Instruction {
  Handler handler = nullptr;  // null: decoded, but this build cannot execute it
  Op op = Op::count;
  Format format = Format::sopp;
  uint8_t bytes = 4;     // encoded size
  uint32_t address = 0;  // byte offset from the start of the code object's text
  uint32_t target = 0;   // branches: index of the target instruction in the program
  int32_t simm = 0;      // SOPP/SOPK immediate; v_bitop3: the truth table

  Operand dst;   // vdst, sdst, vdata of a load, or none
  Operand sdst;  // second destination: carry-out of VOP3B, v_div_scale; VOPC writes dst
  Operand
      src[3];  // VOP2 carry-in is src[2]; MFMA C is src[2]; ds: src[0] address, src[1..2] data;
               // mubuf/flat: src[0] vaddr, src[1] vdata of stores and atomics, src[2] saddr/srsrc
  Operand soffset;  // mubuf, smem

  uint8_t neg = 0, abs = 0;           // bit i: source i (VOP3); VOP3P: neg is neg_lo
  uint8_t neg_hi = 0;                 // VOP3P
  uint8_t op_sel = 0, op_sel_hi = 0;  // bit i: source i; op_sel bit 3: destination half
  bool clamp = false;
  uint8_t omod = 0;
  uint8_t cbsz = 0, abid = 0, blgp = 0;  // mai

  Dpp dpp = Dpp::none;
  uint16_t dpp_ctrl = 0;
  uint8_t row_mask = 0xf, bank_mask = 0xf;
  bool bound_ctrl = false;
  Sdwa sdwa;

  int32_t offset = 0;  // bytes; ds read2/write2: offset0 | offset1 << 8, unscaled
  bool offen = false, idxen = false, lds = false;
  bool sc0 = false, sc1 = false, nt = false;  // sc0 on an atomic: return the old value
};

std::string_view mnemonic(Op op);

// Mnemonic and operands in the assembler's spelling, for error messages and listings.
std::string to_string(const Instruction& instruction);

}  // namespace mha_sink::emulator
