// Command lines of the benchmarks: `-name=value`, `-name value` and, for flags, `-name`, described
// by a table of rows.
#pragma once

#include <getopt.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmark/option_value.h"

namespace mha_sink::benchmark {

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

// Sets the initial values, then what the command line gives, after calling given(row); ends early,
// true, at help.
template <class Options, class Given>
bool parse_rows(std::span<const OptionRow<Options>> rows, int argc, char** argv, Options& options,
                Given&& given) {
  std::vector<option> long_options;
  for (const OptionRow<Options>& row : rows) {
    const std::string initial = row.initial;
    row.set(options, OptionValue(row.name, initial));
    long_options.push_back(
        {row.name, row.flag ? optional_argument : required_argument, nullptr, 0});
  }
  long_options.push_back({});
  optind = 0;  // begins a new scan
  while (const auto next = next_option(rows, argc, argv, std::span<const option>(long_options))) {
    given(*next->row);
    next->row->set(options, OptionValue(next->row->name, next->value));
    if (next->row == &rows.back() && next->value == "1") return true;
  }
  return false;
}

template <class Options>
bool parse_rows(std::span<const OptionRow<Options>> rows, int argc, char** argv, Options& options) {
  return parse_rows(rows, argc, argv, options, [](const OptionRow<Options>&) {});
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
