// Whether tensor elements share memory, decided exactly: interleaved views of one buffer do not.
#pragma once

#include "host/tensor.h"

namespace mha_sink {

enum class Sharing {
  none,
  some,
  undecided  // strides so irregular that the search was given up; no layout in use comes near
};

// Two different elements of one tensor at one address. Strides must be >= 0.
Sharing self_overlap(const View& view);

// Any byte that belongs to an element of both.
Sharing overlap(const View& a, const View& b);

}  // namespace mha_sink
