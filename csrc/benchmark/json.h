// Writes one JSON value.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

namespace mha_sink::benchmark {

class JsonWriter {
 public:
  // Opens with { or [, calls `fill`, closes.
  template <class Fill>
  void object(std::string_view key, Fill&& fill) {
    nested(key, '{', '}', fill);
  }
  template <class Fill>
  void array(std::string_view key, Fill&& fill) {
    nested(key, '[', ']', fill);
  }

  void field(std::string_view key, const std::string& text) {
    begin(key);
    quote(text);
  }
  void field(std::string_view key, const char* text) { field(key, std::string(text)); }
  void field(std::string_view key, bool value) {
    begin(key);
    text_ += value ? "true" : "false";
  }
  void field(std::string_view key, std::integral auto value) {
    begin(key);
    text_ += std::to_string(value);
  }
  // JSON has no inf and no NaN: null.
  void field(std::string_view key, double value) {
    begin(key);
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.9g", value);
    text_ += std::isfinite(value) ? digits : "null";
  }
  void null(std::string_view key) {
    begin(key);
    text_ += "null";
  }

  const std::string& text() const { return text_; }

 private:
  template <class Fill>
  void nested(std::string_view key, char open, char close, Fill& fill) {
    begin(key);
    text_ += open;
    first_ = true;
    fill();
    text_ += close;
    first_ = false;
  }

  // An element of an array and the outermost value have no key.
  void begin(std::string_view key) {
    if (!first_) text_ += ", ";
    first_ = false;
    if (key.empty()) return;
    quote(key);
    text_ += ": ";
  }

  void quote(std::string_view text) {
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof(escape), "\\u%04x", c);
        text_ += escape;
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace mha_sink::benchmark
