// Command lines of the benchmarks: `-name=value`, `-name value` and, for flags, `-name`, described
// by a table of rows.
#pragma once

#include <getopt.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace mha_sink::benchmark {

struct BadOption : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The whole text as a number of that type.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// What an option was given, with the conversions that it may ask for.
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

template <class Options>
struct OptionRow {
  const char* name;
  const char* initial;
  const char* meaning;
  void (*set)(Options&, const OptionValue&);
  bool flag = false;  // the name alone means 1
};

template <class Options>
struct GivenOption {
  const OptionRow<Options>* row;
  std::string value;
};

// The C library's getopt_long_only does the splitting. Its abbreviations are refused: -d_s must not
// come to mean -d_sink. The last row is help.
template <class Options>
std::optional<GivenOption<Options>> next_option(std::span<const OptionRow<Options>> rows, int argc,
                                                char** argv, std::span<const option> long_options) {
  using Given = GivenOption<Options>;
  const int at = optind == 0 ? 1 : optind;
  if (at >= argc) return std::nullopt;
  const std::string argument = argv[at];
  if (argument == "-?") return Given{&rows.back(), "1"};
  int index = -1;
  // '+': stop at the first argument that is no option; ':': tell a missing value from a bad name.
  const int result = getopt_long_only(argc, argv, "+:", long_options.data(), &index);
  if (result == -1) throw BadOption("'" + argument + "' is not an option; -help lists them");
  if (result == ':') throw BadOption(argument + ": a value is needed");
  const size_t start = argument.find_first_not_of('-');
  const std::string name =
      start == argument.npos ? "" : argument.substr(start, argument.find('=') - start);
  if (result == '?' || index < 0 || name != rows[static_cast<size_t>(index)].name) {
    throw BadOption("'" + argument + "' is not an option; -help lists them");
  }
  const OptionRow<Options>& row = rows[static_cast<size_t>(index)];
  if (optarg != nullptr) return Given{&row, optarg};
  const bool next_is_value =
      optind < argc && (argv[optind] == std::string("0") || argv[optind] == std::string("1"));
  return Given{&row, next_is_value ? argv[optind++] : "1"};
}

// Sets the initial values, then what the command line gives; ends early, true, at help.
template <class Options>
bool parse_rows(std::span<const OptionRow<Options>> rows, int argc, char** argv, Options& options) {
  std::vector<option> long_options;
  for (const OptionRow<Options>& row : rows) {
    const std::string initial = row.initial;
    row.set(options, OptionValue(row.name, initial));
    long_options.push_back(
        {row.name, row.flag ? optional_argument : required_argument, nullptr, 0});
  }
  long_options.push_back({});
  optind = 0;  // begins a new scan
  while (const auto given = next_option(rows, argc, argv, std::span<const option>(long_options))) {
    given->row->set(options, OptionValue(given->row->name, given->value));
    if (given->row == &rows.back() && given->value == "1") return true;
  }
  return false;
}

// A line a row, its meaning wrapped.
template <class Options>
std::string describe_rows(std::span<const OptionRow<Options>> rows) {
  constexpr size_t kColumn = 28, kWidth = 98;
  std::string text;
  for (const OptionRow<Options>& row : rows) {
    std::string line = "  -" + std::string(row.name) + " (" + row.initial + ")";
    line.resize(std::max(line.size() + 1, kColumn), ' ');
    std::string words = row.meaning;
    while (line.size() + words.size() > kWidth) {
      const size_t space = words.rfind(' ', kWidth - line.size());
      text += line + words.substr(0, space) + "\n";
      words.erase(0, space + 1);
      line.assign(kColumn, ' ');
    }
    text += line + words + "\n";
  }
  return text;
}

}  // namespace mha_sink::benchmark
