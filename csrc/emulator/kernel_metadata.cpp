#include "emulator/kernel_metadata.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "emulator/elf.h"
#include "emulator/error.h"
#include "emulator/message_pack.h"

namespace mha_sink::emulator {
namespace {

using Kind = MessagePackValue::Kind;

constexpr uint32_t kMaxRegisters = 256;  // of each kind: an operand names them with eight bits

const MessagePackValue& require(const MessagePackValue& map, std::string_view key, Kind kind) {
  const MessagePackValue* value = map.find(key);
  if (!value || value->kind != kind) {
    throw EmulationError("the metadata has no " + std::string(key) + " of the expected type");
  }
  return *value;
}

uint32_t to_u32(const MessagePackValue& value, std::string_view key) {
  if (value.kind != Kind::integer || value.integer < 0 || value.integer > UINT32_MAX) {
    throw EmulationError("the metadata entry " + std::string(key) + " is no 32-bit count");
  }
  return static_cast<uint32_t>(value.integer);
}

uint32_t optional_u32(const MessagePackValue& map, std::string_view key) {
  const MessagePackValue* value = map.find(key);
  return value ? to_u32(*value, key) : 0;
}

KernelArgument read_argument(const MessagePackValue& map) {
  KernelArgument argument;
  if (const MessagePackValue* name = map.find(".name")) argument.name = name->text;
  argument.value_kind = require(map, ".value_kind", Kind::text).text;
  argument.offset = to_u32(require(map, ".offset", Kind::integer), ".offset");
  argument.size = to_u32(require(map, ".size", Kind::integer), ".size");
  return argument;
}

Kernel read_kernel(const MessagePackValue& map) {
  Kernel kernel;
  kernel.name = require(map, ".name", Kind::text).text;
  kernel.sgpr_used = optional_u32(map, ".sgpr_count");
  kernel.vgpr_used = optional_u32(map, ".vgpr_count");
  kernel.agpr_used = optional_u32(map, ".agpr_count");
  kernel.sgpr_spills = optional_u32(map, ".sgpr_spill_count");
  kernel.vgpr_spills = optional_u32(map, ".vgpr_spill_count");
  kernel.kernarg_bytes = optional_u32(map, ".kernarg_segment_size");
  uint32_t wavefront = optional_u32(map, ".wavefront_size");
  if (wavefront != 0 && wavefront != 64) {
    throw EmulationError("kernel " + kernel.name + " has waves of " + std::to_string(wavefront) +
                         " lanes; gfx950 has 64");
  }
  if (const MessagePackValue* arguments = map.find(".args")) {
    for (const MessagePackValue& argument : arguments->array) {
      kernel.arguments.push_back(read_argument(argument));
    }
  }
  return kernel;
}

// The two-bit denormal modes 0 and 3 are "flush sources and results" and "keep both".
bool flushes(const Kernel& kernel, unsigned mode, const char* which) {
  if (mode != 0 && mode != 3) {
    throw EmulationError("kernel " + kernel.name + " flushes only sources or only results (" +
                         which + " denormal mode " + std::to_string(mode) +
                         "), which is not supported");
  }
  return mode == 0;
}

}  // namespace

std::vector<Kernel> read_metadata(std::span<const uint8_t> note) {
  MessagePackValue root = read_message_pack(note);
  std::vector<Kernel> kernels;
  for (const MessagePackValue& map : require(root, "amdhsa.kernels", Kind::array).array) {
    kernels.push_back(read_kernel(map));
  }
  if (kernels.empty()) throw EmulationError("the metadata lists no kernel");
  return kernels;
}

int64_t read_descriptor(std::span<const uint8_t> bytes, Kernel& kernel) {
  ByteView descriptor(bytes, "the descriptor of kernel " + kernel.name);
  kernel.lds_bytes = descriptor.read<uint32_t>(0);
  kernel.scratch_bytes = descriptor.read<uint32_t>(4);
  // Hand-written code objects (aiter's) may leave it 0 here; the HIP runtime goes by the metadata.
  kernel.kernarg_bytes = std::max(kernel.kernarg_bytes, descriptor.read<uint32_t>(8));
  kernel.rsrc3 = descriptor.read<uint32_t>(44);
  kernel.rsrc1 = descriptor.read<uint32_t>(48);
  kernel.rsrc2 = descriptor.read<uint32_t>(52);
  kernel.properties = descriptor.read<uint16_t>(56);
  auto preload = descriptor.read<uint16_t>(58);
  kernel.kernarg_preload_dwords = static_cast<uint8_t>(preload & 0x7f);
  kernel.kernarg_preload_offset = static_cast<uint8_t>(preload >> 7);
  if (preload >> 7 > UINT8_MAX) {
    throw EmulationError("kernel " + kernel.name + " preloads arguments from dword " +
                         std::to_string(preload >> 7) + ", past the 255th");
  }

  // One granule is 8 registers; the architectural ones come first, in granules of 4.
  uint32_t total = ((kernel.rsrc1 & 0x3f) + 1) * 8;
  kernel.vgpr_count = ((kernel.rsrc3 & 0x3f) + 1) * 4;
  if (kernel.vgpr_count > total) {
    throw EmulationError("kernel " + kernel.name + " has its accumulation registers from " +
                         std::to_string(kernel.vgpr_count) + " on, past its " +
                         std::to_string(total) + " registers");
  }
  kernel.agpr_count = std::min(total - kernel.vgpr_count, kMaxRegisters);

  kernel.mode.round = static_cast<uint8_t>(kernel.rsrc1 >> 12 & 0xf);
  if (kernel.mode.round) {
    throw EmulationError("kernel " + kernel.name + " asks for rounding mode " +
                         std::to_string(kernel.mode.round) +
                         "; only 0, nearest even, is supported");
  }
  kernel.mode.flush_f32 = flushes(kernel, kernel.rsrc1 >> 16 & 3, "fp32");
  kernel.mode.flush_f16_f64 = flushes(kernel, kernel.rsrc1 >> 18 & 3, "fp16 and fp64");
  kernel.mode.dx10_clamp = (kernel.rsrc1 >> 21 & 1) != 0;
  kernel.mode.ieee = (kernel.rsrc1 >> 23 & 1) != 0;
  if (kernel.rsrc1 >> 26 & 1) {
    throw EmulationError("kernel " + kernel.name + " asks for FP16_OVFL, which is not supported");
  }
  return descriptor.read<int64_t>(16);
}

void check_registers(Kernel& kernel) {
  uint32_t vgprs = 0, agprs = 0;  // one past the last register named
  const Instruction* last_vgpr = nullptr;
  const Instruction* last_agpr = nullptr;
  for (const Instruction& instruction : kernel.program) {
    for (const Operand* operand :
         {&instruction.dst, &instruction.src[0], &instruction.src[1], &instruction.src[2]}) {
      uint32_t end = operand->index + uint32_t{operand->dwords};
      if (operand->kind == OperandKind::vgpr && end > vgprs) {
        vgprs = end;
        last_vgpr = &instruction;
      } else if (operand->kind == OperandKind::agpr && end > agprs) {
        agprs = end;
        last_agpr = &instruction;
      }
    }
  }
  auto refuse = [&](const Instruction& instruction, char kind, uint32_t used, uint32_t count) {
    throw EmulationError("kernel " + kernel.name + ": " + to_string(instruction) +
                         source_suffix(kernel.lines.get(), instruction.address) + " uses " + kind +
                         std::to_string(used - 1) + ", and the kernel has " +
                         std::to_string(count) + " registers of that kind");
  };
  if (vgprs > kernel.vgpr_count && agprs == 0) {
    kernel.vgpr_count = std::min(kernel.vgpr_count + kernel.agpr_count, kMaxRegisters);
    kernel.agpr_count = 0;
  }
  if (vgprs > kernel.vgpr_count) refuse(*last_vgpr, 'v', vgprs, kernel.vgpr_count);
  if (agprs > kernel.agpr_count) refuse(*last_agpr, 'a', agprs, kernel.agpr_count);
}

}  // namespace mha_sink::emulator
