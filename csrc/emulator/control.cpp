// SOPP: branches, waits, barriers and the end of the program.
#include <string>

#include "emulator/error.h"
#include "emulator/salu.h"

namespace mha_sink::emulator {
namespace {

void branch(const Instruction& i, Wave& wave) { wave.pc = i.target; }

template <auto condition>
void branch_if(const Instruction& i, Wave& wave) {
  if (condition(wave)) wave.pc = i.target;
}

// vmcnt is split: bits 3:0 and 15:14. Everything else the counters cover is complete already.
void wait_count(const Instruction& i, Wave& wave) {
  auto immediate = static_cast<uint16_t>(i.simm);
  wave.wait_vmem((immediate & 0xfu) | (immediate >> 14 << 4));
}

void barrier(const Instruction&, Wave& wave) { wave.at_barrier = true; }

void end_program(const Instruction&, Wave& wave) { wave.ended = true; }

// Timing, scheduling and instruction-cache control have no effect on results.
void nothing(const Instruction&, Wave&) {}

void refuse_unless_zero(const Instruction& i, Wave&) {
  if (i.simm) throw EmulationError(to_string(i) + " would stop the wave, which is not supported");
}

void trap(const Instruction& i, Wave&) {
  throw EmulationError(to_string(i) + " was executed: the kernel aborts");
}

void refuse_message(const Instruction& i, Wave&) {
  throw EmulationError(to_string(i) + ": messages are not supported");
}

}  // namespace

void fill_control(HandlerTable& t) {
  t[Op::s_branch] = branch;
  t[Op::s_cbranch_scc0] = branch_if<[](const Wave& w) { return !w.scc; }>;
  t[Op::s_cbranch_scc1] = branch_if<[](const Wave& w) { return w.scc; }>;
  t[Op::s_cbranch_vccz] = branch_if<[](const Wave& w) { return w.vcc() == 0; }>;
  t[Op::s_cbranch_vccnz] = branch_if<[](const Wave& w) { return w.vcc() != 0; }>;
  t[Op::s_cbranch_execz] = branch_if<[](const Wave& w) { return w.exec() == 0; }>;
  t[Op::s_cbranch_execnz] = branch_if<[](const Wave& w) { return w.exec() != 0; }>;
  t[Op::s_waitcnt] = wait_count;
  t[Op::s_barrier] = barrier;
  t[Op::s_endpgm] = end_program;
  t[Op::s_trap] = trap;
  t[Op::s_sethalt] = refuse_unless_zero;
  t[Op::s_setkill] = refuse_unless_zero;
  t[Op::s_sendmsg] = refuse_message;
  t[Op::s_sendmsghalt] = refuse_message;
  for (Op op : {Op::s_nop, Op::s_wakeup, Op::s_sleep, Op::s_setprio, Op::s_icache_inv,
                Op::s_incperflevel, Op::s_decperflevel}) {
    t[op] = nothing;
  }
}

}  // namespace mha_sink::emulator
