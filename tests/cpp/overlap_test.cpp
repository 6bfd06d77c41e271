// host/overlap against enumeration of every element's bytes.
#include "host/overlap.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"

namespace mha_sink::test {
namespace {

std::vector<uintptr_t> addresses(const View& view) {
  std::vector<uintptr_t> all;
  for (int64_t a = 0; a < view.shape[0]; ++a) {
    for (int64_t b = 0; b < view.shape[1]; ++b) {
      for (int64_t c = 0; c < view.shape[2]; ++c) {
        for (int64_t d = 0; d < view.shape[3]; ++d) {
          const int64_t index =
              a * view.strides[0] + b * view.strides[1] + c * view.strides[2] + d * view.strides[3];
          all.push_back(reinterpret_cast<uintptr_t>(view.data) +
                        static_cast<uintptr_t>(index * view.element_bytes));
        }
      }
    }
  }
  return all;
}

void random_views(int count) {
  std::mt19937 generator(5);
  const auto random = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(generator);
  };
  const auto random_view = [&](int least_size, int least_stride) {
    View view{.name = "", .present = true};
    view.element_bytes = random(0, 1) ? 2 : 4;
    view.data = reinterpret_cast<const void*>(uintptr_t{1000} + 2 * uintptr_t(random(0, 60)));
    for (size_t i = 0; i < 4; ++i) {
      view.shape[i] = random(least_size, 4);
      view.strides[i] = random(least_stride, 30);
    }
    return view;
  };
  int shared = 0;
  for (int i = 0; i < count; ++i) {
    const View a = random_view(i % 50 != 0, i % 3 != 0), b = random_view(i % 50 != 0, i % 3 != 0);
    const std::vector<uintptr_t> of_a = addresses(a), of_b = addresses(b);
    const bool repeats = std::set(of_a.begin(), of_a.end()).size() != of_a.size();
    expect((self_overlap(a) == Sharing::some) == repeats, "self_overlap " + std::to_string(i));

    std::set<uintptr_t> bytes;
    for (uintptr_t address : of_a) {
      for (int64_t j = 0; j < a.element_bytes; ++j) bytes.insert(address + uintptr_t(j));
    }
    const bool meet = std::any_of(of_b.begin(), of_b.end(), [&](uintptr_t address) {
      const auto next = bytes.lower_bound(address);
      return next != bytes.end() && *next < address + uintptr_t(b.element_bytes);
    });
    shared += meet;
    expect((overlap(a, b) == Sharing::some) == meet, "overlap " + std::to_string(i));
  }
  expect(shared > count / 10 && shared < count - count / 10, "random views of both kinds");
}

// Views of one [2, 1 << 20, 3, 8, 128] buffer of bf16, as a packed projection gives them.
void packed_views() {
  const auto part = [](int index, int64_t first_head) {
    return View{.name = "",
                .present = true,
                .data = reinterpret_cast<const void*>(
                    uintptr_t{4096} + 2 * (1024 * uintptr_t(index) + 128 * uintptr_t(first_head))),
                .element_bytes = 2,
                .shape = {2, 1 << 20, 4, 128},
                .strides = {int64_t{3072} << 20, 3072, 256, 1}};
  };
  expect(self_overlap(part(0, 0)) == Sharing::none, "a packed view");
  expect(overlap(part(0, 0), part(1, 0)) == Sharing::none, "q and k of a packed buffer");
  expect(overlap(part(0, 0), part(0, 1)) == Sharing::none, "even and odd heads");
  expect(overlap(part(0, 0), part(0, 2)) == Sharing::some, "heads 0, 2, 4, 6 and 2, 4, 6, 8");
}

}  // namespace
}  // namespace mha_sink::test

int main() {
  mha_sink::test::random_views(20000);
  mha_sink::test::packed_views();
  return mha_sink::test::summary();
}
