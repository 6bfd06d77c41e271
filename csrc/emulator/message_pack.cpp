#include "emulator/message_pack.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "emulator/error.h"

namespace mha_sink::emulator {
namespace {

constexpr int kMaxDepth = 32;

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  MessagePackValue value(int depth) {
    if (depth > kMaxDepth) throw EmulationError("the metadata nests more than 32 levels deep");
    uint8_t tag = static_cast<uint8_t>(big_endian(1));
    if (tag <= 0x7f) return integer(tag);
    if (tag <= 0x8f) return map(tag & 0xf, depth);
    if (tag <= 0x9f) return array(tag & 0xf, depth);
    if (tag <= 0xbf) return text(tag & 0x1f);
    if (tag >= 0xe0) return integer(static_cast<int8_t>(tag));
    switch (tag) {
      case 0xc0:
        return {};
      case 0xc2:
      case 0xc3:
        return boolean(tag == 0xc3);
      case 0xc4:
      case 0xd9:
        return text(big_endian(1));
      case 0xc5:
      case 0xda:
        return text(big_endian(2));
      case 0xc6:
      case 0xdb:
        return text(big_endian(4));
      case 0xca:
        return real(std::bit_cast<float>(static_cast<uint32_t>(big_endian(4))));
      case 0xcb:
        return real(std::bit_cast<double>(big_endian(8)));
      case 0xcc:
        return integer(static_cast<int64_t>(big_endian(1)));
      case 0xcd:
        return integer(static_cast<int64_t>(big_endian(2)));
      case 0xce:
        return integer(static_cast<int64_t>(big_endian(4)));
      case 0xcf:
      case 0xd3:
        return integer(static_cast<int64_t>(big_endian(8)));
      case 0xd0:
        return integer(static_cast<int8_t>(big_endian(1)));
      case 0xd1:
        return integer(static_cast<int16_t>(big_endian(2)));
      case 0xd2:
        return integer(static_cast<int32_t>(big_endian(4)));
      case 0xdc:
        return array(big_endian(2), depth);
      case 0xdd:
        return array(big_endian(4), depth);
      case 0xde:
        return map(big_endian(2), depth);
      case 0xdf:
        return map(big_endian(4), depth);
      default:
        throw EmulationError("the metadata has the unknown MessagePack tag " + std::to_string(tag));
    }
  }

 private:
  using Kind = MessagePackValue::Kind;

  std::span<const uint8_t> take(uint64_t count) {
    if (count > bytes_.size() - position_) {
      throw EmulationError("the metadata ends early: " + std::to_string(count) + " bytes wanted, " +
                           std::to_string(bytes_.size() - position_) + " left");
    }
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }

  uint64_t big_endian(int count) {
    uint64_t result = 0;
    for (uint8_t byte : take(static_cast<uint64_t>(count))) result = result << 8 | byte;
    return result;
  }

  static MessagePackValue of(Kind kind) {
    MessagePackValue value;
    value.kind = kind;
    return value;
  }
  static MessagePackValue integer(int64_t number) {
    MessagePackValue value = of(Kind::integer);
    value.integer = number;
    return value;
  }
  static MessagePackValue boolean(bool truth) {
    MessagePackValue value = of(Kind::boolean);
    value.integer = truth;
    return value;
  }
  static MessagePackValue real(double number) {
    MessagePackValue value = of(Kind::real);
    value.real = number;
    return value;
  }

  MessagePackValue text(uint64_t count) {
    MessagePackValue value = of(Kind::text);
    std::span<const uint8_t> bytes = take(count);
    // What compilers write here are symbols and keywords. Anything else would break the error
    // messages that quote it, which Python reads as UTF-8.
    for (uint8_t byte : bytes) {
      if (byte < 0x20 || byte > 0x7e) {
        throw EmulationError("the metadata has a string with the byte " + std::to_string(byte) +
                             "; names are printable ASCII");
      }
    }
    value.text.assign(bytes.begin(), bytes.end());
    return value;
  }
  // An absurd count ends at the first missing element: each needs a byte at least.
  MessagePackValue array(uint64_t count, int depth) {
    MessagePackValue result = of(Kind::array);
    for (uint64_t i = 0; i < count; ++i) result.array.push_back(value(depth + 1));
    return result;
  }
  MessagePackValue map(uint64_t count, int depth) {
    MessagePackValue result = of(Kind::map);
    for (uint64_t i = 0; i < count; ++i) {
      MessagePackValue key = value(depth + 1), item = value(depth + 1);
      if (key.kind != Kind::text) continue;
      result.keys.push_back(std::move(key.text));
      result.array.push_back(std::move(item));
    }
    return result;
  }

  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
};

}  // namespace

const MessagePackValue* MessagePackValue::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &array[static_cast<size_t>(found - keys.begin())];
}

MessagePackValue read_message_pack(std::span<const uint8_t> bytes) {
  return Reader(bytes).value(0);
}

}  // namespace mha_sink::emulator
