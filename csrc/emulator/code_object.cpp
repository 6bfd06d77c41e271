#include "emulator/code_object.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "emulator/decoder.h"
#include "emulator/elf.h"
#include "emulator/error.h"
#include "emulator/hex.h"
#include "emulator/kernel_metadata.h"

namespace mha_sink::emulator {
namespace {

// Far above any code object; a larger one is a damaged header.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 28;
// With kernarg preload, hardware that supports it enters past a fixed prologue for firmware that
// does not (AMDGPUUsage, "Preloaded Kernel Arguments").
constexpr uint32_t kPreloadPrologueBytes = 256;

constexpr uint32_t kRelocationNone = 0, kRelocationAbs64 = 3, kRelocationRelative64 = 13;

bool inside(uint64_t begin, uint64_t bytes, uint64_t size) {
  return begin <= size && bytes <= size - begin;
}

std::vector<uint8_t> load_segments(std::span<const uint8_t> file, const Elf& elf) {
  uint64_t size = 0;
  for (const ElfSegment& segment : elf.segments) {
    if (!inside(segment.address, segment.memory_bytes, kMaxImageBytes)) {
      throw EmulationError("an ELF segment of " + std::to_string(segment.memory_bytes) +
                           " bytes at " + hex(segment.address) + " lies outside of 256 MiB");
    }
    size = std::max(size, segment.address + segment.memory_bytes);
  }
  std::vector<uint8_t> image(size);
  for (const ElfSegment& segment : elf.segments) {
    std::copy_n(file.begin() + static_cast<ptrdiff_t>(segment.file_offset), segment.file_bytes,
                image.begin() + static_cast<ptrdiff_t>(segment.address));
  }
  return image;
}

void relocate(const Elf& elf, std::vector<uint8_t>& image) {
  auto base = reinterpret_cast<uint64_t>(image.data());
  for (const ElfRelocation& relocation : elf.relocations) {
    if (relocation.type == kRelocationNone) continue;
    if (!inside(relocation.address, 8, image.size())) {
      throw EmulationError("a relocation at " + hex(relocation.address) +
                           " lies outside of the loaded image");
    }
    uint64_t value = base + static_cast<uint64_t>(relocation.addend);
    if (relocation.type == kRelocationAbs64) {
      if (relocation.symbol >= elf.symbols.size() || !elf.symbols[relocation.symbol].defined) {
        throw EmulationError("the relocation at " + hex(relocation.address) +
                             " is against a symbol that the code object does not define");
      }
      value += elf.symbols[relocation.symbol].address;
    } else if (relocation.type != kRelocationRelative64) {
      throw EmulationError("the relocation at " + hex(relocation.address) + " has type " +
                           std::to_string(relocation.type) +
                           "; R_AMDGPU_ABS64 (3) and R_AMDGPU_RELATIVE64 (13) are supported");
    }
    std::memcpy(image.data() + relocation.address, &value, sizeof value);
  }
}

const ElfSymbol& require_symbol(const Elf& elf, const std::string& name) {
  for (const ElfSymbol& symbol : elf.symbols) {
    if (symbol.defined && symbol.name == name) return symbol;
  }
  throw EmulationError("the code object has no symbol " + name);
}

// Decodes the kernel's function and finds where the hardware enters it.
void load_program(const Elf& elf, std::span<const uint8_t> image, uint64_t descriptor_address,
                  int64_t entry_offset, Kernel& kernel) {
  uint64_t begin = descriptor_address + static_cast<uint64_t>(entry_offset);
  uint64_t text_end = elf.text_address + elf.text_bytes;
  uint64_t bytes = require_symbol(elf, kernel.name).bytes;
  if (!inside(elf.text_address, elf.text_bytes, image.size()) || begin < elf.text_address ||
      begin >= text_end || begin % 4 != 0) {
    throw EmulationError("kernel " + kernel.name + " enters at " + hex(begin) +
                         ", which is not in the text section");
  }
  if (bytes == 0) bytes = text_end - begin;  // an assembler source without .size
  if (!inside(begin, bytes, text_end)) {
    throw EmulationError("the code of kernel " + kernel.name + ", " + std::to_string(bytes) +
                         " bytes at " + hex(begin) + ", lies outside of the text section");
  }
  Code code;
  code.bytes = image.subspan(begin, bytes);
  code.address = static_cast<uint32_t>(begin - elf.text_address);
  code.pointer = reinterpret_cast<uint64_t>(image.data()) + begin;
  code.lines = kernel.lines.get();
  try {
    kernel.program = decode_program(code);
  } catch (const EmulationError& error) {
    throw EmulationError("kernel " + kernel.name + ": " + error.what());
  }
  uint32_t entry = code.address + (kernel.kernarg_preload_dwords ? kPreloadPrologueBytes : 0);
  auto at_entry = [entry](const Instruction& i) { return i.address == entry; };
  auto found = std::find_if(kernel.program.begin(), kernel.program.end(), at_entry);
  if (found == kernel.program.end()) {
    throw EmulationError("kernel " + kernel.name +
                         " preloads arguments and has no instruction at " + hex(entry) +
                         ", where it is then entered");
  }
  kernel.entry = static_cast<uint32_t>(found - kernel.program.begin());
}

}  // namespace

struct CodeObject::Impl {
  std::string name;
  std::vector<uint8_t> image;
  std::vector<Kernel> kernels;
};

CodeObject::CodeObject(std::span<const uint8_t> file, std::string name)
    : impl_(std::make_unique<Impl>()) {
  impl_->name = std::move(name);
  try {
    Elf elf = read_elf(file);
    impl_->image = load_segments(file, elf);
    relocate(elf, impl_->image);
    impl_->kernels = read_metadata(elf.metadata);
    std::shared_ptr<const LineTable> lines;
    if (!elf.debug.line.empty()) {
      lines = std::make_shared<LineTable>(elf.debug, elf.text_address, elf.text_bytes);
    }
    for (Kernel& kernel : impl_->kernels) {
      kernel.lines = lines;
      uint64_t address = require_symbol(elf, kernel.name + ".kd").address;
      if (!inside(address, kDescriptorBytes, impl_->image.size())) {
        throw EmulationError("the descriptor of kernel " + kernel.name + " at " + hex(address) +
                             " lies outside of the loaded image");
      }
      std::span<const uint8_t> image = impl_->image;
      int64_t entry = read_descriptor(image.subspan(address, kDescriptorBytes), kernel);
      load_program(elf, image, address, entry, kernel);
      check_registers(kernel);
    }
  } catch (const EmulationError& error) {
    throw EmulationError("code object " + impl_->name + ": " + error.what());
  }
}

CodeObject::~CodeObject() = default;
CodeObject::CodeObject(CodeObject&&) noexcept = default;

const std::string& CodeObject::name() const { return impl_->name; }

const std::vector<Kernel>& CodeObject::kernels() const { return impl_->kernels; }

const Kernel& CodeObject::kernel(std::string_view name) const {
  std::string names;
  for (const Kernel& kernel : impl_->kernels) {
    if (kernel.name == name) return kernel;
    names += (names.empty() ? "" : ", ") + kernel.name;
  }
  throw EmulationError("code object " + impl_->name + " has no kernel " + std::string(name) +
                       "; it has " + names);
}

std::string describe(const Kernel& kernel, const Instruction& instruction) {
  return "`" + to_string(instruction) + "` at " + hex(instruction.address) +
         source_suffix(kernel.lines.get(), instruction.address);
}

MemoryRange CodeObject::image() const {
  return {reinterpret_cast<uintptr_t>(impl_->image.data()), impl_->image.size(), false,
          "code object " + impl_->name};
}

}  // namespace mha_sink::emulator
