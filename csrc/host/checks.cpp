#include "host/checks.h"

#include <algorithm>
#include <cmath>

#include "hip/mha/params.h"
#include "host/device_name.h"
#include "host/kernel_table.h"
#include "host/overlap.h"

namespace mha_sink::checks {

void invalid(const std::string& argument, const std::string& given, const std::string& needed) {
  throw InvalidArgument(argument + ": " + given + " given, " + needed + " needed");
}

void unsupported(const std::string& argument, const std::string& given,
                 const std::string& supported) {
  throw Unsupported(argument + ": " + given + " is not supported; supported: " + supported);
}

namespace {

using std::to_string;

// Workgroups in the second and third grid dimension: what AMD's runtimes accept.
constexpr int64_t kMaxGridYZ = 65535;

// The extent fits in the address space, so that later arithmetic cannot overflow.
void check_extent(const View& view) {
  int64_t last = 0;
  bool fits = true;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] <= 1) continue;
    if (view.strides[i] < 0) invalid(view.name, "strides " + format(view.strides), "none below 0");
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  int64_t bytes = 0;
  fits = fits && !__builtin_mul_overflow(last, view.element_bytes, &bytes) &&
         bytes < (int64_t{1} << 62) &&
         reinterpret_cast<uintptr_t>(view.data) < UINTPTR_MAX - static_cast<uintptr_t>(bytes) - 8;
  if (!fits) {
    invalid(view.name, "shape " + format(view.shape) + " with strides " + format(view.strides),
            "an extent inside the address space");
  }
}

void check_row_stride(const View& view) {
  const bool has_rows = view.element_bytes == 2 && view.shape[1] > 1;
  if (has_rows && view.strides[1] > mha::kMaxRowStride) {
    unsupported(std::string(view.name) + " (stride between rows)", to_string(view.strides[1]),
                "at most " + to_string(mha::kMaxRowStride) + " elements");
  }
}

void check_pointer(const View& view) {
  if (view.empty()) return;
  if (view.data == nullptr) invalid(view.name, "a null pointer", "an address");
  if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(view.element_bytes) != 0) {
    invalid(view.name, "address " + to_string(reinterpret_cast<uintptr_t>(view.data)),
            "a multiple of its element size " + to_string(view.element_bytes));
  }
}

void refuse_sharing(Sharing sharing, const std::string& what, const std::string& given) {
  if (sharing == Sharing::some) invalid(what, given, "one address for each element");
  if (sharing == Sharing::undecided) {
    invalid(what, "strides too irregular to show that no two elements share an address",
            "strides that nest");
  }
}

}  // namespace

std::string format(std::span<const int64_t> values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + to_string(values[i]);
  return text + "]";
}

void check_count(const char* argument, int64_t given, int64_t least, int64_t most) {
  if (given < least) invalid(argument, to_string(given), "at least " + to_string(least));
  if (given > most) unsupported(argument, to_string(given), "at most " + to_string(most));
}

void check_data_type(const std::string& data_type) {
  if (data_type != "bf16" && data_type != "fp16") {
    invalid("data_type", "\"" + data_type + "\"", "\"bf16\" or \"fp16\"");
  }
}

void check_as_launcher(const char* argument, const std::string& given, const std::string& traits) {
  if (given != traits) invalid(argument, given, "the launcher's own, " + traits + ",");
}

void check_as_launcher(const char* argument, int given, int traits) {
  check_as_launcher(argument, to_string(given), to_string(traits));
}

const TensorDesc& required(const char* name, const std::optional<TensorDesc>& tensor) {
  if (!tensor) invalid(name, "None", "a tensor");
  return *tensor;
}

std::string data_type_of(const char* name, const TensorDesc& tensor) {
  if (tensor.dtype == "bfloat16") return "bf16";
  if (tensor.dtype == "float16") return "fp16";
  invalid(name, "dtype " + tensor.dtype, "bfloat16 or float16");
}

void check_device(const char* name, const TensorDesc& tensor) {
  try {
    device_named(tensor.device);
  } catch (const Error& error) {
    unsupported(
        name, "a tensor on " + tensor.device + " (" + error.what() + ")",
        "cpu, which runs the gfx950 kernels emulated, and cuda:N, the GPU N of a HIP runtime");
  }
}

void check_sizes(const MhaBwdSizes& sizes) {
  check_count("batch", sizes.batch, 1, kMaxGridYZ);
  check_count("nhead_q", sizes.nhead_q, 1, kMaxGridYZ);
  check_count("nhead_k", sizes.nhead_k, 1, kMaxGridYZ);
  if (sizes.nhead_q % sizes.nhead_k != 0) {
    invalid("nhead_k (heads of k and v)", to_string(sizes.nhead_k),
            "a divisor of nhead_q = " + to_string(sizes.nhead_q));
  }
  const std::string hdims = to_string(sizes.hdim_q) + " (v: " + to_string(sizes.hdim_v) + ")";
  if (sizes.hdim_q < 1 || sizes.hdim_v < 1) invalid("head dim", hdims, "at least 1");
  const bool in_steps = sizes.hdim_q % kHeadDimStep == 0 && sizes.hdim_v % kHeadDimStep == 0;
  if (!in_steps || find_head_dim_kernels(sizes.data_type, sizes.hdim_q, sizes.hdim_v) == nullptr) {
    unsupported("head dim", hdims,
                "multiples of " + to_string(kHeadDimStep) + " up to " + to_string(kMaxHeadDim));
  }
  // Tiles are the second dimension of a grid; a packed batch has one more for each sequence.
  const int64_t tiles = kMaxGridYZ - (sizes.packed ? sizes.batch : 0);
  const int64_t dq_rows = tiles * mha::queries_per_workgroup(kMaxHeadDim);
  check_count("seqlen_q", sizes.seqlen_q, 0,
              sizes.deterministic ? std::min(dq_rows, mha::kMaxSeqlenQ) : mha::kMaxSeqlenQ);
  check_count("seqlen_k", sizes.seqlen_k, 0, tiles * mha::keys_per_workgroup(kMaxHeadDim));
}

int32_t window_bound(const char* argument, int64_t given) {
  if (given < -1) invalid(argument, to_string(given), "-1 (unbounded) or at least 0");
  return given == -1 ? mha::kUnboundedWindow
                     : static_cast<int32_t>(std::min<int64_t>(given, mha::kUnboundedWindow));
}

float finite_scale(const char* argument, double given) {
  const auto scale = static_cast<float>(given);
  if (!std::isfinite(scale)) invalid(argument, to_string(given), "a finite fp32 number");
  return scale;
}

void check_dropout(const char* argument, double given) {
  if (!(given >= 0 && given < 1)) invalid(argument, to_string(given), "a number in [0, 1)");
  if (given > 0) unsupported(argument, to_string(given), "0");
}

void check_memory(const MhaBwdProblem& problem) {
  const auto inputs = problem.inputs();
  const auto outputs = problem.outputs();
  for (const View* view : inputs) {
    if (!view->present) continue;
    check_extent(*view);
    check_row_stride(*view);
    check_pointer(*view);
  }
  for (const View* view : outputs) {
    if (!view->present) continue;
    check_extent(*view);
    check_row_stride(*view);
    check_pointer(*view);
    refuse_sharing(self_overlap(*view), view->name,
                   "an output whose elements share addresses (strides " + format(view->strides) +
                       " for shape " + format(view->shape) + ")");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]->present) continue;
    const std::string name = outputs[i]->name;
    for (size_t j = 0; j < i; ++j) {
      if (!outputs[j]->present) continue;
      const std::string other = outputs[j]->name;
      refuse_sharing(overlap(*outputs[i], *outputs[j]), name + " and " + other,
                     "outputs that share addresses");
    }
    for (const View* input : inputs) {
      if (!input->present) continue;
      refuse_sharing(overlap(*outputs[i], *input), name + " and " + input->name,
                     "an output that shares addresses with an input");
    }
  }
}

}  // namespace mha_sink::checks
