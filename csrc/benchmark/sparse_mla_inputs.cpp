#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "benchmark/sparse_mla_problem.h"
#include "mha_sink/sparse_mla.h"

namespace mha_sink::benchmark {
namespace {

// Unit variance, flat: cheap for 10^9 elements, and never the zeros that make a GPU look fast.
class Uniform {
 public:
  explicit Uniform(std::mt19937& generator) : generator_(generator) {}
  float operator()() {
    constexpr float kStep = 2 * 1.7320508f / 4294967296.0f;
    return static_cast<float>(generator_()) * kStep - 1.7320508f;
  }

 private:
  std::mt19937& generator_;
};

std::vector<uint16_t> random_tensor(int64_t elements, Dtype dtype, std::mt19937& generator) {
  Uniform uniform(generator);
  std::vector<uint16_t> bits(static_cast<size_t>(elements));
  for (uint16_t& element : bits) element = to_bits(uniform(), dtype);
  return bits;
}

std::vector<int32_t> pool_indices(const SparseMlaOptions& o, std::mt19937& generator) {
  std::vector<int32_t> indices;
  indices.reserve(static_cast<size_t>(o.tokens) * static_cast<size_t>(o.topk));
  std::vector<int32_t> pool(static_cast<size_t>(o.num_pool));
  std::iota(pool.begin(), pool.end(), o.tokens);
  for (int t = 0; t < o.tokens; ++t) {
    for (int slot = 0; slot < o.window; ++slot) {
      indices.push_back(std::max(t - o.window + 1 + slot, -1));
    }
    const int visible = std::min((t + 1) / o.ratio, o.num_pool);
    const int taken = std::min(o.topk - o.window, visible);
    std::iota(pool.begin(), pool.begin() + visible, o.tokens);
    for (int i = 0; i < taken; ++i) {
      std::uniform_int_distribution<int> other(i, visible - 1);
      std::swap(pool[static_cast<size_t>(i)], pool[static_cast<size_t>(other(generator))]);
    }
    indices.insert(indices.end(), pool.begin(), pool.begin() + taken);
    indices.insert(indices.end(), static_cast<size_t>(o.topk - o.window - taken), -1);
  }
  return indices;
}

std::vector<int32_t> uniform_indices(const SparseMlaOptions& o, std::mt19937& generator) {
  std::uniform_int_distribution<int32_t> row(0, std::max(o.num_kv(), 1) - 1);
  std::vector<int32_t> indices(static_cast<size_t>(o.tokens) * static_cast<size_t>(o.topk));
  for (int32_t& index : indices) index = row(generator);
  return indices;
}

}  // namespace

int64_t SparseMlaInputs::valid_slots() const {
  return std::ranges::count_if(indices, [](int32_t index) { return index >= 0; });
}

SparseMlaInputs make_sparse_mla_inputs(const SparseMlaOptions& o) {
  std::mt19937 generator(o.seed);
  SparseMlaInputs in;
  in.dtype = parse_dtype(o.prec);
  in.tokens = o.tokens, in.nhead = o.nhead, in.topk = o.topk, in.num_kv = o.num_kv();
  in.scale = static_cast<float>(1 / std::sqrt(double{kSparseMlaHeadDim}));
  const int64_t rows = in.tokens * in.nhead * kSparseMlaHeadDim;
  in.q = random_tensor(rows, in.dtype, generator);
  in.kv = random_tensor(in.num_kv * kSparseMlaHeadDim, in.dtype, generator);
  in.dout = random_tensor(rows, in.dtype, generator);
  in.indices = o.indices == "pool" ? pool_indices(o, generator) : uniform_indices(o, generator);
  if (o.sink) {
    // Around log(topk): sinks that vanish, compete and dominate.
    constexpr float kOffsets[] = {-20, -2, 0, 2, 20};
    for (int h = 0; h < o.nhead; ++h) {
      in.sink.push_back(std::log(static_cast<float>(std::max(o.topk, 1))) + kOffsets[h % 5]);
    }
  }
  return in;
}

}  // namespace mha_sink::benchmark
