#include "emulator/memory_access.h"

#include <string_view>
#include <utility>

namespace mha_sink::emulator {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// "dwordx4", "ushort", "sbyte_d16_hi": the part of a mnemonic that names what a lane moves.
uint8_t bytes_of_type(std::string_view type) {
  if (contains(type, "byte")) return 1;
  if (contains(type, "short")) return 2;
  for (const auto& [name, bytes] : {std::pair{"dwordx2", 8}, {"dwordx3", 12}, {"dwordx4", 16}}) {
    if (type == name) return static_cast<uint8_t>(bytes);
  }
  return 4;
}

uint8_t bytes_of(const Operand& operand) { return static_cast<uint8_t>(4 * operand.dwords); }

AccessShape lds_shape(const Instruction& instruction, std::string_view name) {
  AccessShape shape{.space = MemorySpace::lds};
  if (contains(name, "permute") || contains(name, "swizzle")) return {};
  const bool read = name.starts_with("ds_read"), write = name.starts_with("ds_write");
  shape.kind = read ? AccessKind::load : write ? AccessKind::store : AccessKind::atomic;
  shape.bytes = bytes_of(read ? instruction.dst : instruction.src[1]);
  if (contains(name, "_b8") || contains(name, "_u8") || contains(name, "_i8")) shape.bytes = 1;
  if (contains(name, "_b16") || contains(name, "_u16") || contains(name, "_i16")) shape.bytes = 2;
  if (contains(name, "_tr_")) shape.bytes = 8;
  if (name.starts_with("ds_read2") || name.starts_with("ds_write2")) {
    const uint8_t element = contains(name, "b64") ? 8 : 4;
    shape.bytes = element;
    shape.accesses = 2;
    shape.stride = static_cast<uint16_t>(contains(name, "st64") ? 64 * element : element);
  }
  return shape;
}

AccessShape vector_shape(const Instruction& instruction, std::string_view name) {
  AccessShape shape{.space =
                        name.starts_with("scratch_") ? MemorySpace::scratch : MemorySpace::global};
  if (contains(name, "_atomic_")) {
    shape.kind = AccessKind::atomic;
    const bool compares = contains(name, "cmpswap");
    shape.bytes = static_cast<uint8_t>(bytes_of(instruction.src[1]) / (compares ? 2 : 1));
    return shape;
  }
  const size_t load = name.find("_load_"), store = name.find("_store_");
  if (load == name.npos && store == name.npos) return {};  // cache maintenance
  shape.kind = load != name.npos ? AccessKind::load : AccessKind::store;
  std::string_view type = load != name.npos ? name.substr(load + 6) : name.substr(store + 7);
  if (type.starts_with("lds_")) type.remove_prefix(4);
  shape.bytes = bytes_of_type(type);
  shape.lds_dma = instruction.lds;
  if (shape.lds_dma) shape.dma_bytes = shape.bytes < 4 ? 4 : shape.bytes;
  return shape;
}

uint64_t scalar(const Operand& operand, const Wave& wave) {
  switch (operand.kind) {
    case OperandKind::sgpr:
      return operand.dwords == 2 ? wave.read64(operand.index) : wave.sgpr[operand.index];
    case OperandKind::constant:
      return operand.constant;
    default:
      return 0;
  }
}

const VectorRegister* vector(const Operand& operand, const Wave& wave, unsigned part = 0) {
  return (operand.kind == OperandKind::agpr ? wave.agpr : wave.vgpr) + operand.index + part;
}

LaneAddresses lds_addresses(const Instruction& instruction, const AccessShape& shape,
                            const Wave& wave, unsigned which) {
  LaneAddresses result;
  result.lanes = wave.exec();
  uint32_t offset = static_cast<uint32_t>(instruction.offset);
  if (shape.accesses == 2) offset = (offset >> 8 * which & 0xff) * shape.stride;
  const VectorRegister* base = vector(instruction.src[0], wave);
  for (int lane = 0; lane < kLanes; ++lane) result.address[lane] = base->lane[lane] + offset;
  return result;
}

LaneAddresses buffer_addresses(const Instruction& instruction, const Wave& wave) {
  LaneAddresses result;
  result.lanes = wave.exec();
  const uint32_t* words = wave.sgpr + instruction.src[2].index;
  const uint64_t base = words[0] | uint64_t{words[1] & 0xffff} << 32;
  const uint32_t stride = words[1] >> 16 & 0x3fff, records = words[2];
  const uint64_t shared = base + static_cast<uint32_t>(instruction.offset) +
                          static_cast<uint32_t>(scalar(instruction.soffset, wave));
  const VectorRegister* index = nullptr;
  const VectorRegister* offset = nullptr;
  if (instruction.idxen) index = vector(instruction.src[0], wave);
  if (instruction.offen) offset = vector(instruction.src[0], wave, instruction.idxen ? 1 : 0);
  // With an index it alone is checked, without one the bytes are.
  if (index == nullptr) result.limit = base + records;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint64_t address = shared + (offset != nullptr ? offset->lane[lane] : 0);
    if (index != nullptr) address += uint64_t{index->lane[lane]} * stride;
    result.address[lane] = address;
    const bool inside = index != nullptr ? index->lane[lane] < records : address < result.limit;
    if (!inside) result.lanes &= ~(uint64_t{1} << lane);
  }
  return result;
}

LaneAddresses flat_addresses(const Instruction& instruction, const Wave& wave) {
  LaneAddresses result;
  result.lanes = wave.exec();
  const bool has_base = instruction.src[2].kind != OperandKind::none;
  const uint64_t shared =
      static_cast<uint64_t>(int64_t{instruction.offset}) + scalar(instruction.src[2], wave);
  const bool has_vector = instruction.src[0].kind != OperandKind::none;
  const VectorRegister* low = has_vector ? vector(instruction.src[0], wave) : nullptr;
  const bool wide = has_vector && !has_base && instruction.src[0].dwords == 2;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint64_t own = low != nullptr ? low->lane[lane] : 0;
    if (wide) own |= uint64_t{low[1].lane[lane]} << 32;
    result.address[lane] = shared + own;
  }
  return result;
}

LaneAddresses scalar_address(const Instruction& instruction, const Wave& wave) {
  LaneAddresses result;
  const uint64_t soffset =
      instruction.soffset.kind == OperandKind::sgpr ? wave.sgpr[instruction.soffset.index] : 0;
  const uint64_t offset = static_cast<uint64_t>(int64_t{instruction.offset}) + soffset;
  result.lanes = 1;
  if (instruction.src[0].dwords == 4) {
    const uint32_t* words = wave.sgpr + instruction.src[0].index;
    const uint64_t base = words[0] | uint64_t{words[1] & 0xffff} << 32;
    const uint64_t stride = words[1] >> 16 & 0x3fff;
    result.limit = base + (stride != 0 ? stride * words[2] : words[2]);
    result.address[0] = base + (offset & ~uint64_t{3});
    if (result.address[0] >= result.limit) result.lanes = 0;
  } else {
    result.address[0] = (wave.read64(instruction.src[0].index) + offset) & ~uint64_t{3};
  }
  return result;
}

}  // namespace

AccessShape access_shape(const Instruction& instruction) {
  const std::string_view name = mnemonic(instruction.op);
  switch (instruction.format) {
    case Format::ds:
      return lds_shape(instruction, name);
    case Format::mubuf:
    case Format::flat:
      return vector_shape(instruction, name);
    case Format::smem:
      if (!contains(name, "load")) return {};
      return {.space = MemorySpace::scalar, .bytes = bytes_of(instruction.dst)};
    default:
      return {};
  }
}

LaneAddresses lane_addresses(const Instruction& instruction, const AccessShape& shape,
                             const Wave& wave, unsigned which) {
  switch (shape.space) {
    case MemorySpace::lds:
      return lds_addresses(instruction, shape, wave, which);
    case MemorySpace::scalar:
      return scalar_address(instruction, wave);
    default:
      return instruction.format == Format::mubuf ? buffer_addresses(instruction, wave)
                                                 : flat_addresses(instruction, wave);
  }
}

uint32_t lds_dma_address(const Instruction& instruction, const Wave& wave) {
  return wave.sgpr[kM0] + static_cast<uint32_t>(instruction.offset);
}

}  // namespace mha_sink::emulator
