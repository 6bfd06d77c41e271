#include "benchmark/group_lengths.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace mha_sink::benchmark {
namespace {

constexpr int64_t kMostRows = std::numeric_limits<int>::max();

[[noreturn]] void bad(const std::string& name, const std::string& given,
                      const std::string& needed) {
  throw BadOption(name + ": " + given + " given, " + needed + " needed");
}

std::vector<int> random_lengths(const char* name, int count, int around, std::mt19937& generator) {
  if (around < 0) bad(name, std::to_string(around), "at least 0");
  const int64_t least = around / 2, most = int64_t{around} + around / 2;
  if (most * count > kMostRows) {
    bad(name, std::to_string(around) + " for each of " + std::to_string(count) + " sequences",
        "at most " + std::to_string(kMostRows) + " rows in all");
  }
  std::uniform_int_distribution<int> draw(static_cast<int>(least), static_cast<int>(most));
  std::vector<int> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(draw(generator));
  return lengths;
}

void check_count(const char* name, const std::vector<int>& list, size_t needed) {
  if (list.size() != needed) {
    bad(name, "a list of " + std::to_string(list.size()),
        "one of " + std::to_string(needed) + ", a length for each sequence,");
  }
}

// The rows that the sequences take up together.
int resolve_padding(const char* lengths_name, const std::vector<int>& lengths,
                    const char* padded_name, std::vector<int>& padded) {
  const char* name = padded.empty() ? lengths_name : padded_name;
  if (padded.empty()) padded = lengths;
  check_count(name, padded, lengths.size());
  int64_t rows = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (padded[i] < lengths[i]) {
      bad(name, std::to_string(padded[i]) + " for sequence " + std::to_string(i),
          "at least its length, " + std::to_string(lengths[i]) + ",");
    }
    rows += padded[i];
  }
  if (rows > kMostRows) {
    bad(name, std::to_string(rows) + " rows in all", "at most " + std::to_string(kMostRows));
  }
  return static_cast<int>(rows);
}

}  // namespace

void resolve_group_lengths(Options& o, bool batch_given) {
  if (o.lens_q.empty()) {
    if (!o.lens_k.empty()) bad("lens_k", "a list", "-lens_q with it");
    std::mt19937 generator(o.seed);
    o.lens_q = random_lengths("s", o.batch, o.seqlen_q, generator);
    if (o.seqlen_k != -1) o.lens_k = random_lengths("s_k", o.batch, o.seqlen_k, generator);
  } else if (batch_given && o.batch != static_cast<int>(o.lens_q.size())) {
    bad("b", std::to_string(o.batch), std::to_string(o.lens_q.size()) + ", the lengths of lens_q,");
  } else {
    o.batch = static_cast<int>(o.lens_q.size());
  }
  if (o.lens_k.empty()) o.lens_k = o.lens_q;
  check_count("lens_k", o.lens_k, o.lens_q.size());
  o.seqlen_q = resolve_padding("lens_q", o.lens_q, "pad_q", o.pad_q);
  o.seqlen_k = resolve_padding("lens_k", o.lens_k, "pad_k", o.pad_k);
}

}  // namespace mha_sink::benchmark
