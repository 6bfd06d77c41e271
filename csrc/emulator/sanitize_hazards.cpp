// Distances between dependent instructions that the hardware does not enforce by itself.
//
// The rules and numbers are those that LLVM's GCNHazardRecognizer applies to gfx950 (its functions
// are named with each rule); here they are checked along the path that a wave takes, so inline
// assembly counts. A distance is in wait states: one an instruction, s_nop n is n + 1.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "emulator/sanitize.h"

namespace mha_sink::emulator {
namespace {

// Passes of four clocks through the matrix unit.
int matrix_passes(const Instruction& i) {
  const std::string_view name = mnemonic(i.op);
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (has("_4x4x")) return 2;
  if (has("_16x16x4_f32") || has("_16x16x1_4b") || has("_16x16x4_4b")) return 8;
  if (has("_16x16x")) return 4;
  if (has("_32x32x2_f32") || has("_2b_")) return 16;
  return 8;
}

// The XDL unit multiplies everything but fp32 and fp64.
bool is_xdl(std::string_view name) { return !name.ends_with("_f32") && !name.ends_with("_f64"); }

struct Static {
  bool mfma = false, xdl = false, valu = false, transcendental = false, dot = false;
  bool vmem = false, memory = false, salu = false, partial = false, permlane_swap = false;
  bool read_lane = false, write_lane = false, wide_store = false, dpp = false;
  int passes = 0;
};

Static classify_statically(const Instruction& i, const Sanitized& s) {
  const std::string_view name = mnemonic(i.op);
  Static result;
  result.mfma = s.kind == InstructionClass::mfma;
  result.xdl = result.mfma && is_xdl(name);
  result.passes = result.mfma ? matrix_passes(i) : 0;
  result.valu = s.vector_alu;
  result.transcendental = s.kind == InstructionClass::trans;
  result.dot = name.starts_with("v_dot");
  result.vmem = i.format == Format::mubuf || i.format == Format::flat;
  result.memory = result.vmem || i.format == Format::ds;
  result.salu = i.format <= Format::sopk;
  result.partial = (i.sdwa.used && i.sdwa.dst != Sdwa::Part::dword) ||
                   (i.format == Format::vop3 && (i.op_sel & 8) != 0);
  result.permlane_swap = i.op == Op::v_permlane16_swap_b32 || i.op == Op::v_permlane32_swap_b32;
  result.read_lane = i.op == Op::v_readlane_b32 || i.op == Op::v_readfirstlane_b32;
  result.write_lane = i.op == Op::v_writelane_b32;
  // A buffer store that takes its offset from an SGPR reads its data in time.
  result.wide_store = s.shape.kind == AccessKind::store && result.vmem && s.shape.bytes > 8 &&
                      i.soffset.kind != OperandKind::sgpr;
  result.dpp = i.dpp != Dpp::none;
  return result;
}

struct Event {
  uint64_t time = 0;  // wait states of the wave up to and including the instruction; 0: never
  uint32_t pc = 0;
};

struct WaveHistory {
  uint64_t now = 1;
  std::array<Event, kRegisterIds> valu_write{}, matrix_write{}, matrix_c_read{}, store_read{};
  std::array<Event, kRegisterIds> salu_write{};
  Event cmpx;
};

class HazardsCheck final : public Observer {
 public:
  explicit HazardsCheck(Program program) : program_(std::move(program)) {
    for (size_t pc = 0; pc < program_->instructions.size(); ++pc) {
      statics_.push_back(
          classify_statically(program_->kernel.program[pc], program_->instructions[pc]));
    }
  }

  void start(const Workgroup&, std::span<Wave> waves) override {
    waves_.assign(waves.size(), WaveHistory{});
  }

  void before(uint32_t pc, const Instruction& instruction, const Wave& wave) override {
    WaveHistory& history = waves_[wave.index];
    const Static& self = statics_[pc];
    const Footprint& footprint = program_->instructions[pc].footprint;
    if (self.valu || self.memory) {
      if (self.mfma) {
        check_matrix_sources(instruction, footprint, history);
      } else {
        check_matrix_results(pc, footprint, history);
      }
      if (self.valu) check_valu(pc, instruction, footprint, history);
      if (self.vmem) check_vmem(instruction, footprint, history);
    }
    record(pc, instruction, footprint, history);
  }

 private:
  // Fails unless `needed` wait states lie between the event and now.
  void require(const WaveHistory& history, const Event& event, int needed, RegisterId id,
               const char* rule) const {
    if (event.time == 0) return;
    const uint64_t between = history.now - event.time;
    if (between >= static_cast<uint64_t>(needed)) return;
    throw SanitizerError("hazard on " + register_name(id) + ": " + rule + " needs " +
                         std::to_string(needed) + " wait states after " +
                         program_->describe(event.pc) + ", there are " + std::to_string(between));
  }

  // checkMAIHazards90A
  void check_matrix_sources(const Instruction& instruction, const Footprint& footprint,
                            const WaveHistory& history) const {
    require(history, history.valu_write[kExec], 4, kExec, "an MFMA after a VALU write of EXEC");
    const bool xdl = is_xdl(mnemonic(instruction.op));
    for (const RegisterRange& range : footprint.reads()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        require(history, history.valu_write[id], 2, id, "an MFMA that reads a VALU result");
        const Event& write = history.matrix_write[id];
        if (write.time == 0) continue;
        const Static& writer = statics_[write.pc];
        const int gfx950 = writer.passes != 2 ? 1 : 0;
        if (range.source != 2) {
          require(history, write, writer.passes + (writer.xdl ? 3 + gfx950 : 2), id,
                  "an MFMA that reads an MFMA result as A or B");
        } else if (same_tile(write.pc, range)) {
          require(history, write, writer.passes == 2 ? 2 : 0, id,
                  "an MFMA that accumulates on a 4x4 result");
        } else if (!xdl || writer.xdl) {
          require(history, write, writer.passes + (writer.xdl ? 1 + gfx950 : 0), id,
                  "an MFMA that reads part of another's result as C");
        }
      }
    }
  }

  bool same_tile(uint32_t writer, const RegisterRange& range) const {
    const RegisterRange& written = program_->instructions[writer].footprint.writes()[0];
    return written.first == range.first && written.count == range.count;
  }

  // checkMAIVALUHazards
  void check_matrix_results(uint32_t pc, const Footprint& footprint,
                            const WaveHistory& history) const {
    const Static& self = statics_[pc];
    for (const RegisterRange& range : footprint.reads()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        const Event& write = history.matrix_write[id];
        if (write.time != 0) {
          require(history, write, result_latency(write.pc), id,
                  "a VALU or memory instruction that reads an MFMA result");
        }
        const Event& valu = history.valu_write[id];
        if (valu.time == 0 || !statics_[valu.pc].dot) continue;
        const bool same = program_->kernel.program[valu.pc].op == program_->kernel.program[pc].op;
        if (!same || (range.source >= 0 && range.source < 2)) {
          require(history, valu, 3, id, "a read of a dot product");
        }
      }
    }
    for (const RegisterRange& range : footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        const Event& write = history.matrix_write[id];
        if (write.time != 0) {
          require(history, write, result_latency(write.pc), id,
                  "a VALU or memory instruction that overwrites an MFMA result");
        }
        const Event& read = history.matrix_c_read[id];
        if (read.time != 0 && self.valu) {
          const int passes = statics_[read.pc].passes;
          require(history, read, passes == 2 ? 1 : passes - 1, id,
                  "a VALU instruction that overwrites an MFMA's C");
        }
      }
    }
  }

  int result_latency(uint32_t writer) const {
    const Static& w = statics_[writer];
    return w.passes + (w.xdl ? 3 + (w.passes != 2 ? 1 : 0) : 2);
  }

  void check_valu(uint32_t pc, const Instruction& instruction, const Footprint& footprint,
                  const WaveHistory& history) const {
    const Static& self = statics_[pc];
    for (const RegisterRange& range : footprint.reads()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        check_valu_read(self, instruction, range, id, history);
      }
    }
    if (self.read_lane || self.write_lane) {
      require(history, history.valu_write[kExec], 4, kExec,
              "a lane access after a VALU write of EXEC (checkVALUHazards)");
    }
    if (self.dpp) {
      require(history, history.valu_write[kExec], 5, kExec,
              "DPP after a VALU write of EXEC (checkDPPHazards)");
    }
    if (self.permlane_swap) {
      require(history, history.cmpx, 4, kExec, "a lane swap after v_cmpx (checkPermlaneHazards)");
    }
    for (const RegisterRange& range : footprint.writes()) {
      for (RegisterId id = range.first; id < range.first + range.count; ++id) {
        require(history, history.store_read[id], 2, id,
                "overwriting the data of a store of more than 8 bytes (checkVALUHazards)");
      }
    }
  }

  void check_valu_read(const Static& self, const Instruction& instruction,
                       const RegisterRange& range, RegisterId id,
                       const WaveHistory& history) const {
    const Event& write = history.valu_write[id];
    if (write.time == 0 || history.now - write.time >= 5) return;
    const Static& writer = statics_[write.pc];
    if (id < kVgprIds) {
      require(history, write, 2, id,
              "a VALU read of an SGPR that a VALU instruction wrote (checkVALUHazards)");
      if (instruction.op == Op::v_div_fmas_f32 || instruction.op == Op::v_div_fmas_f64) {
        require(history, write, 4, id, "v_div_fmas after a write of VCC (checkDivFMasHazards)");
      }
      if ((self.write_lane || instruction.op == Op::v_readlane_b32) && range.source == 1) {
        require(history, write, 4, id, "a lane selected by a VALU result (checkRWLaneHazards)");
      }
      return;
    }
    if (writer.transcendental && !self.transcendental) {
      require(history, write, 1, id, "a read of a transcendental result (checkVALUHazards)");
    }
    if (writer.partial) {
      require(history, write, 1, id, "a read of a partly written register (checkVALUHazards)");
    }
    if (self.read_lane) {
      require(history, write, 1, id, "v_readlane of a VALU result (checkVALUHazards)");
    }
    if (self.dpp) require(history, write, 2, id, "DPP of a VALU result (checkDPPHazards)");
    if (self.permlane_swap) {
      require(history, write, 2, id, "a lane swap of a VALU result (checkPermlaneHazards)");
    }
  }

  void check_vmem(const Instruction& instruction, const Footprint& footprint,
                  const WaveHistory& history) const {
    for (const RegisterRange& range : footprint.reads()) {
      for (RegisterId id = range.first; id < range.first + range.count && id < kSccId; ++id) {
        require(history, history.valu_write[id], 5, id,
                "vector memory that reads an SGPR that the VALU wrote (checkVMEMHazards)");
      }
    }
    if (instruction.lds) {
      require(history, history.salu_write[kM0], 1, kM0,
              "LDS-DMA after a write of M0 (checkReadM0Hazards)");
    }
  }

  void record(uint32_t pc, const Instruction& instruction, const Footprint& footprint,
              WaveHistory& history) const {
    const Static& self = statics_[pc];
    history.now += instruction.op == Op::s_nop ? (instruction.simm & 0xf) + 1 : 1;
    const Event event{history.now, pc};
    if (self.mfma) {
      set(history.matrix_write, footprint.writes(), event);
      for (const RegisterRange& range : footprint.reads()) {
        if (range.source == 2 && self.xdl) set(history.matrix_c_read, {&range, 1}, event);
      }
    } else if (self.valu) {
      set(history.valu_write, footprint.writes(), event);
      if (mnemonic(instruction.op).starts_with("v_cmpx_")) history.cmpx = event;
    } else if (self.salu) {
      set(history.salu_write, footprint.writes(), event);
    } else if (self.wide_store) {
      for (const RegisterRange& range : footprint.reads()) {
        if (range.source == 1) set(history.store_read, {&range, 1}, event);
      }
    }
  }

  static void set(std::array<Event, kRegisterIds>& events, std::span<const RegisterRange> ranges,
                  Event event) {
    for (const RegisterRange& range : ranges) {
      std::fill_n(events.begin() + range.first, range.count, event);
    }
  }

  const Program program_;
  std::vector<Static> statics_;
  std::vector<WaveHistory> waves_;
};

}  // namespace

ObserverFactory hazards_check(Program program) {
  return [program = std::move(program)] { return std::make_unique<HazardsCheck>(program); };
}

}  // namespace mha_sink::emulator
