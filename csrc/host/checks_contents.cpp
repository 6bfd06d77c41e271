#include "host/checks_contents.h"

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/checks.h"

namespace mha_sink::checks {
namespace {

using std::to_string;

bool check_requested(const Device& device) {
  if (&device == &emulated_device()) return true;
  const char* value = std::getenv("MHA_SINK_CHECK");
  return value != nullptr && std::string_view(value) == "1";
}

// int32 values that the host can read, and what holds them where that is a copy.
class Contents {
 public:
  Contents(const void* data, int64_t count, Device& device, Stream stream) {
    const auto size = static_cast<size_t>(count);
    const auto* values = static_cast<const int32_t*>(data);
    if (&device != &emulated_device() && size > 0) {
      copy_.resize(size);
      device.copy(copy_.data(), data, size * sizeof(int32_t), stream);
      values = copy_.data();
    }
    values_ = {values, size};
  }
  const std::span<const int32_t>& values() const { return values_; }

 private:
  std::vector<int32_t> copy_;
  std::span<const int32_t> values_;
};

// One side of a packed batch.
struct Side {
  const View &start, &cu, &length;  // as of MhaBwdProblem
  int64_t rows, max_seqlen;
  const char* max_name;
};

void check_cumulative(const View& view, std::span<const int32_t> values, int64_t rows) {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string given = "entry " + to_string(i) + " = " + to_string(values[i]);
    if (i == 0 && values[i] != 0) invalid(view.name, given, "0 at the beginning");
    if (i > 0 && values[i] < values[i - 1]) {
      invalid(view.name, given + " after " + to_string(values[i - 1]),
              "numbers that do not decrease");
    }
    if (values[i] > rows) {
      invalid(view.name, given, "at most the tensors' " + to_string(rows) + " rows");
    }
  }
}

void check_side(const Side& side, int64_t batch, Device& device, Stream stream) {
  const auto read = [&](const View& view, int64_t count) {
    return Contents(view.data, view.present ? count : 0, device, stream);
  };
  const Contents start = read(side.start, batch + 1), cu = read(side.cu, batch + 1),
                 length = read(side.length, batch);
  if (side.cu.present) check_cumulative(side.cu, cu.values(), side.rows);
  check_cumulative(side.start, start.values(), side.rows);

  const View& lengths = side.cu.present ? side.cu : side.length.present ? side.length : side.start;
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    const int64_t rows = int64_t{start.values()[i + 1]} - start.values()[i];
    const int64_t here = side.cu.present       ? int64_t{cu.values()[i + 1]} - cu.values()[i]
                         : side.length.present ? length.values()[i]
                                               : rows;
    const std::string given = "sequence " + to_string(i) + " of length " + to_string(here);
    if (here < 0) invalid(lengths.name, given, "at least 0");
    if (here > side.max_seqlen) {
      invalid(lengths.name, given,
              std::string("at most ") + side.max_name + " = " + to_string(side.max_seqlen));
    }
    if (here > rows) {
      invalid(lengths.name, given,
              "at most its " + to_string(rows) + " rows by " + side.start.name);
    }
  }
}

}  // namespace

void check_lengths(const MhaBwdProblem& p, Device& device, Stream stream) {
  if (!p.packed || !check_requested(device)) return;
  check_side({p.start_q, p.cu_q, p.length_q, p.seqlen_q, p.max_seqlen_q, "max_seqlen_q"}, p.batch,
             device, stream);
  check_side({p.start_k, p.cu_k, p.length_k, p.seqlen_k, p.max_seqlen_k, "max_seqlen_k"}, p.batch,
             device, stream);
}

void check_sparse_mla_indices(const Array& topk_indices, const SparseMlaSizes& sizes,
                              Device& device, Stream stream) {
  if (!check_requested(device)) return;
  const Contents indices(topk_indices.data, topk_indices.bytes / int64_t{sizeof(int32_t)}, device,
                         stream);
  for (size_t i = 0; i < indices.values().size(); ++i) {
    const int32_t value = indices.values()[i];
    if (value >= -1 && value < sizes.num_kv) continue;
    const auto topk = static_cast<size_t>(sizes.topk);
    throw InvalidArgument(std::string(topk_indices.name) +
                          " must be -1 (an empty slot) or a row of kv below num_kv = " +
                          to_string(sizes.num_kv) + ": " + to_string(value) + " given at [" +
                          to_string(i / topk) + ", " + to_string(i % topk) + "]");
  }
}

}  // namespace mha_sink::checks
