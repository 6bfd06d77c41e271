// Checks of the Python calls: tensors with dtypes, shapes, strides and devices.
#include <vector>

#include "hip/sparse_mla/params.h"
#include "host/checks_sparse_mla.h"
#include "host/sparse_mla_workspace.h"

namespace mha_sink {
namespace {

using checks::format;
using checks::invalid;
using checks::required;
using std::to_string;

constexpr const char *kFp32 = "float32", *kInt32 = "int32", *kUint8 = "uint8";
constexpr int64_t kHeadDim = sparse_mla::kHeadDim;

// An empty tensor is, whatever its strides.
bool contiguous(const TensorDesc& tensor) {
  bool packed = true;
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    packed = packed && (tensor.shape[i] == 1 || tensor.strides[i] == stride);
    stride *= tensor.shape[i];
  }
  return packed;
}

// What every tensor of a call has in common.
struct Checker {
  const std::string& device;

  Array array(const char* name, const TensorDesc& tensor, const std::string& dtype,
              const std::vector<int64_t>& shape, const char* layout) const {
    if (tensor.dtype != dtype) invalid(name, "dtype " + tensor.dtype, dtype);
    if (tensor.device != device) {
      invalid(name, "a tensor on " + tensor.device, "the device of the others, " + device + ",");
    }
    if (tensor.shape != shape) {
      invalid(name, "shape " + format(tensor.shape), std::string(layout) + " = " + format(shape));
    }
    if (!contiguous(tensor)) invalid(name, "a strided tensor", "a contiguous one");
    const bool scalars = dtype == kFp32 || dtype == kInt32;
    int64_t bytes = dtype == kUint8 ? 1 : scalars ? 4 : 2;
    for (int64_t size : shape) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) {
        invalid(name, "shape " + format(shape), "one inside the address space");
      }
    }
    return {name, true, reinterpret_cast<const void*>(tensor.data), bytes,
            scalars ? uintptr_t{4} : uintptr_t{16}};
  }

  Array array(const char* name, const std::optional<TensorDesc>& tensor, const std::string& dtype,
              const std::vector<int64_t>& shape, const char* layout) const {
    return tensor ? array(name, *tensor, dtype, shape, layout) : Array{.name = name};
  }
};

// The second dimension of topk_indices; tokens < 0: any number of rows.
int64_t topk_of(const TensorDesc& indices, int64_t tokens) {
  const bool has_shape = indices.shape.size() == 2 && (tokens < 0 || indices.shape[0] == tokens);
  if (!has_shape || indices.dtype != kInt32 || !contiguous(indices)) {
    const std::string rows = tokens < 0 ? "" : " with T = " + to_string(tokens);
    throw InvalidArgument("topk_indices must be contiguous int32 [T, TOPK]" + rows + ": " +
                          indices.dtype + ", shape " + format(indices.shape) +
                          (contiguous(indices) ? "" : ", strided,") + " given");
  }
  return indices.shape[1];
}

struct Shapes {
  std::vector<int64_t> rows, kv, row_constants, indices, heads, plan;
};

// Sizes from q, kv and topk_indices.
SparseMlaSizes sizes_of(const TensorDesc& q, const TensorDesc& kv, const TensorDesc& indices,
                        const std::optional<int64_t>& r_chunk) {
  SparseMlaSizes sizes{.data_type = checks::data_type_of("q", q)};
  checks::check_device("q", q);
  if (q.shape.size() != 3 || q.shape[2] != kHeadDim) {
    invalid("q", "shape " + format(q.shape), "[T, H, 512]");
  }
  if (kv.shape.size() != 2 || kv.shape[1] != kHeadDim) {
    invalid("kv", "shape " + format(kv.shape), "[num_kv, 512]");
  }
  sizes.tokens = q.shape[0], sizes.nhead = q.shape[1], sizes.num_kv = kv.shape[0];
  sizes.topk = topk_of(indices, sizes.tokens);
  if (r_chunk) {
    if (*r_chunk < 1) invalid("R_CHUNK", to_string(*r_chunk), "a multiple of 32 above 0");
    sizes.r_chunk = *r_chunk;
  }
  checks::check_sparse_mla_sizes(sizes);
  return sizes;
}

Shapes shapes_of(const SparseMlaSizes& s) {
  return {.rows = {s.tokens, s.nhead, kHeadDim},
          .kv = {s.num_kv, kHeadDim},
          .row_constants = {s.tokens, s.nhead},
          .indices = {s.tokens, s.topk},
          .heads = {s.nhead},
          .plan = {static_cast<int64_t>(sparse_mla_plan_size(
              static_cast<int>(s.tokens), static_cast<int>(s.num_kv), static_cast<int>(s.topk)))}};
}

constexpr const char *kRows = "[T, H, 512]", *kKv = "[num_kv, 512]", *kConstants = "[T, H]",
                     *kIndices = "[T, TOPK]", *kHeads = "[H]", *kPlan = "[sparse_mla_plan_bytes]";

}  // namespace

SparseMlaFwdProblem check(const SparseMlaFwdCall& call, Outputs outputs) {
  const TensorDesc& q = required("q", call.q);
  const TensorDesc& kv = required("kv", call.kv);
  const TensorDesc& indices = required("topk_indices", call.topk_indices);
  if (outputs == Outputs::required) {
    required("o", call.o);
    required("lse", call.lse);
  }
  SparseMlaFwdProblem p;
  p.sizes = sizes_of(q, kv, indices, std::nullopt);
  p.scale = checks::finite_scale("scale", call.scale);
  const Shapes shapes = shapes_of(p.sizes);
  const Checker checker{q.device};
  p.q = checker.array("q", q, q.dtype, shapes.rows, kRows);
  p.kv = checker.array("kv", kv, q.dtype, shapes.kv, kKv);
  p.topk_indices = checker.array("topk_indices", indices, kInt32, shapes.indices, kIndices);
  p.sink = checker.array("attn_sink", call.attn_sink, kFp32, shapes.heads, kHeads);
  p.plan = checker.array("plan", call.plan, kUint8, shapes.plan, kPlan);
  p.o = checker.array("o", call.o, q.dtype, shapes.rows, kRows);
  p.lse = checker.array("lse", call.lse, kFp32, shapes.row_constants, kConstants);
  checks::check_sparse_mla_memory(p.inputs(), p.outputs());
  return p;
}

SparseMlaBwdProblem check(const SparseMlaBwdCall& call, Outputs outputs) {
  const TensorDesc& q = required("q", call.q);
  const TensorDesc& kv = required("kv", call.kv);
  const TensorDesc& dout = required("do", call.dout);
  const TensorDesc& o = required("o", call.o);
  const TensorDesc& lse = required("lse", call.lse);
  const TensorDesc& indices = required("topk_indices", call.topk_indices);
  if (outputs == Outputs::required) {
    required("dq", call.dq);
    required("dkv", call.dkv);
  }
  SparseMlaBwdProblem p;
  p.sizes = sizes_of(q, kv, indices, call.r_chunk);
  p.scale = checks::finite_scale("scale", call.scale);
  const Shapes shapes = shapes_of(p.sizes);
  const Checker checker{q.device};
  p.q = checker.array("q", q, q.dtype, shapes.rows, kRows);
  p.kv = checker.array("kv", kv, q.dtype, shapes.kv, kKv);
  p.dout = checker.array("do", dout, q.dtype, shapes.rows, kRows);
  p.o = checker.array("o", o, q.dtype, shapes.rows, kRows);
  p.lse = checker.array("lse", lse, kFp32, shapes.row_constants, kConstants);
  p.topk_indices = checker.array("topk_indices", indices, kInt32, shapes.indices, kIndices);
  p.sink = checker.array("attn_sink", call.attn_sink, kFp32, shapes.heads, kHeads);
  p.dlse = checker.array("dlse", call.dlse, kFp32, shapes.row_constants, kConstants);
  p.plan = checker.array("plan", call.plan, kUint8, shapes.plan, kPlan);
  p.dq = checker.array("dq", call.dq, q.dtype, shapes.rows, kRows);
  p.dkv = checker.array("dkv", call.dkv, q.dtype, shapes.kv, kKv);
  p.d_sink = checker.array("d_sink", call.d_sink, kFp32, shapes.heads, kHeads);
  if (p.d_sink.present && !p.sink.present) invalid("attn_sink", "None with d_sink", "a tensor");
  checks::check_sparse_mla_memory(p.inputs(), p.outputs());
  return p;
}

SparseMlaPlanProblem check_sparse_mla_plan(const TensorDesc& topk_indices, int64_t num_kv,
                                           const TensorDesc& plan) {
  checks::check_device("topk_indices", topk_indices);
  SparseMlaPlanProblem p;
  p.sizes = {.data_type = "bf16", .nhead = 1, .num_kv = num_kv};
  p.sizes.topk = topk_of(topk_indices, -1);
  p.sizes.tokens = topk_indices.shape[0];
  checks::check_sparse_mla_sizes(p.sizes);
  const Shapes shapes = shapes_of(p.sizes);
  const Checker checker{topk_indices.device};
  p.topk_indices = checker.array("topk_indices", topk_indices, kInt32, shapes.indices, kIndices);
  p.plan = checker.array("plan", plan, kUint8, shapes.plan, kPlan);
  checks::check_sparse_mla_memory(p.inputs(), p.outputs());
  return p;
}

}  // namespace mha_sink
