// MessagePack (msgpack.org specification), as far as code object metadata uses it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mha_sink::emulator {

struct MessagePackValue {
  enum class Kind : uint8_t { nil, boolean, integer, real, text, array, map };
  Kind kind = Kind::nil;
  int64_t integer = 0;  // also a boolean
  double real = 0;
  std::string text;                     // also binary data
  std::vector<MessagePackValue> array;  // of a map, its values
  std::vector<std::string> keys;        // of a map, one a value; keys other than text are dropped

  const MessagePackValue* find(std::string_view key) const;  // null: no map or no such key
};

// Throws EmulationError when the bytes end early, nest too deeply or are no MessagePack.
MessagePackValue read_message_pack(std::span<const uint8_t> bytes);

}  // namespace mha_sink::emulator
