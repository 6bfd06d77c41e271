// The text that an option was given, with the conversions that the option may ask for. Each throws
// BadOption, naming the option, what was given and what is needed.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "benchmark/options.h"

namespace mha_sink::benchmark {

// The whole text as a number of that type.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

class OptionValue {
 public:
  OptionValue(const char* name, const std::string& text) : name_(name), text_(text) {}

  const std::string& text() const { return text_; }
  int integer() const { return number<int>("an integer"); }
  unsigned natural() const { return number<unsigned>("an integer of at least 0"); }
  float real() const {
    const auto value = number<float>("a number");
    if (!std::isfinite(value)) bad("a finite number");
    return value;
  }
  int count(int least) const {
    const int value = integer();
    if (value < least) bad("at least " + std::to_string(least));
    return value;
  }
  bool boolean() const { return one_of({"0", "1"}) == "1"; }
  std::string one_of(std::initializer_list<const char*> choices) const {
    std::string list;
    for (const char* choice : choices) {
      if (text_ == choice) return text_;
      list += (list.empty() ? "" : ", ") + std::string(choice);
    }
    bad("one of " + list);
  }
  // Separated by commas; -1 stands for none.
  std::vector<int> lengths() const {
    std::vector<int> values;
    if (text_ == "-1") return values;
    for (size_t begin = 0, end = 0; end != text_.npos; begin = end + 1) {
      end = text_.find(',', begin);
      const auto value = parse_number<int>(text_.substr(begin, end - begin));
      if (!value || *value < 0) bad("lengths of at least 0 with commas between them");
      values.push_back(*value);
    }
    return values;
  }

  [[noreturn]] void bad(const std::string& needed) const {
    throw BadOption(std::string(name_) + ": '" + text_ + "' given, " + needed + " needed");
  }

 private:
  template <class T>
  T number(const char* needed) const {
    const std::optional<T> value = parse_number<T>(text_);
    if (!value) bad(needed);
    return *value;
  }

  const char* name_;
  const std::string& text_;
};

}  // namespace mha_sink::benchmark
