#include "benchmark/validate.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "benchmark/reference.h"

namespace mha_sink::benchmark {
namespace {

// In the order b, h, s, d.
std::vector<double> values_of(const Tensor& tensor, Dtype dtype) {
  std::vector<double> values;
  values.reserve(tensor.bits.size());
  for (int64_t b = 0; b < tensor.batch; ++b) {
    for (int64_t h = 0; h < tensor.nhead; ++h) {
      for (int64_t s = 0; s < tensor.seqlen; ++s) {
        const uint16_t* row = tensor.bits.data() + tensor.at(b, s, h);
        for (int64_t d = 0; d < tensor.hdim; ++d) values.push_back(from_bits(row[d], dtype));
      }
    }
  }
  return values;
}

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// A tensor in the order b, h, s, d: as written, and of both references.
struct Compared {
  const char* name;
  int nhead, seqlen, hdim;
  std::vector<double> written;
  const std::vector<double>&exact, &rounded;
};

// Some rows of one entry, of all heads.
std::vector<double> rows_of(const std::vector<double>& values, const Compared& tensor, int entry,
                            int first, int count) {
  const auto width = static_cast<ptrdiff_t>(tensor.hdim);
  std::vector<double> rows;
  for (ptrdiff_t h = 0; h < tensor.nhead; ++h) {
    const ptrdiff_t row = (ptrdiff_t{entry} * tensor.nhead + h) * tensor.seqlen + first;
    const auto begin = values.begin() + row * width;
    rows.insert(rows.end(), begin, begin + count * width);
  }
  return rows;
}

TensorResult worst_sequence(const Problem& problem, Rows Sequence::* rows, const Compared& tensor) {
  TensorResult worst = check_tensor(tensor.name, {}, {}, {});
  const auto judge = [&](int sequence, const char* what, int first, int count) {
    const int entry = problem.sequences[static_cast<size_t>(sequence)].entry;
    const auto part = [&](const std::vector<double>& values) {
      return rows_of(values, tensor, entry, first, count);
    };
    TensorResult result =
        check_tensor(tensor.name, part(tensor.written), part(tensor.exact), part(tensor.rounded));
    result.sequence = sequence;
    if (result.status != Status::pass) {
      result.reason = what + std::to_string(sequence) + ": " + result.reason;
    }
    if (worst.sequence < 0 || worse(result, worst)) worst = std::move(result);
  };
  for (int i = 0; i < problem.sequence_count(); ++i) {
    const Rows& of = problem.sequences[static_cast<size_t>(i)].*rows;
    judge(i, "sequence ", of.first, of.count);
    if (of.padding > 0) judge(i, "padding of sequence ", of.first + of.count, of.padding);
  }
  return worst;
}

}  // namespace

std::vector<TensorResult> validate(const Problem& p, const Inputs& inputs, const Outputs& outputs) {
  const Gradients exact = exact_gradients(p, inputs);
  const Gradients rounded = rounded_gradients(p, inputs);
  const auto tensor = [&](const char* name, const Tensor& written,
                          std::vector<double> Gradients::* values) {
    return Compared{name,
                    static_cast<int>(written.nhead),
                    static_cast<int>(written.seqlen),
                    static_cast<int>(written.hdim),
                    values_of(written, p.dtype),
                    exact.*values,
                    rounded.*values};
  };
  std::vector<TensorResult> results = {
      worst_sequence(p, &Sequence::queries, tensor("dq", outputs.dq, &Gradients::dq)),
      worst_sequence(p, &Sequence::keys, tensor("dk", outputs.dk, &Gradients::dk)),
      worst_sequence(p, &Sequence::keys, tensor("dv", outputs.dv, &Gradients::dv)),
      worst_sequence(
          p, &Sequence::queries,
          {"delta", p.nhead_q, p.seqlen_q, 1, doubles(outputs.delta), exact.delta, rounded.delta})};
  if (!outputs.d_sink.empty()) {
    results.push_back(
        check_tensor("d_sink", doubles(outputs.d_sink), exact.d_sink, rounded.d_sink));
  }
  return results;
}

}  // namespace mha_sink::benchmark
