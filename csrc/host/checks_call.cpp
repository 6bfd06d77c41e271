// Checks of the Python call: tensors with dtypes, shapes, strides and devices.
#include <initializer_list>

#include "host/checks.h"

namespace mha_sink {
namespace {

using checks::format;
using checks::invalid;
using checks::required;
using checks::unsupported;
using std::to_string;

constexpr const char* kFp32 = "float32";
constexpr const char* kInt32 = "int32";

// What a message calls the shapes.
struct Layouts {
  const char *q, *k, *v, *out, *rows;
};
constexpr Layouts kDense = {"[b, sq, hq, d]", "[b, sk, hk, d]", "[b, sk, hk, dv]",
                            "[b, sq, hq, dv]", "[b, hq, sq]"};
constexpr Layouts kPacked = {"[total_q, hq, d]", "[total_k, hk, d]", "[total_k, hk, dv]",
                             "[total_q, hq, dv]", "[hq, total_q]"};

void check_dtype(const char* name, const TensorDesc& tensor, const std::string& needed) {
  if (tensor.dtype != needed) invalid(name, "dtype " + tensor.dtype, needed);
}

void check_rank(const char* name, const TensorDesc& tensor, size_t rank, const char* layout) {
  if (tensor.shape.size() != rank) {
    invalid(name, "shape " + format(tensor.shape),
            to_string(rank) + " dimensions, " + layout + ",");
  }
  if (tensor.strides.size() != rank) {
    invalid(name, to_string(tensor.strides.size()) + " strides", to_string(rank));
  }
  for (int64_t size : tensor.shape) {
    if (size < 0) invalid(name, "shape " + format(tensor.shape), "no size below 0");
  }
}

// A tensor's shape is `needed`, on `device`, last stride 1: its view.
View checked_view(const char* name, const TensorDesc& tensor, const std::string& dtype,
                  const std::string& device, const std::vector<int64_t>& needed,
                  const char* layout) {
  check_dtype(name, tensor, dtype);
  check_rank(name, tensor, needed.size(), layout);
  if (tensor.device != device) {
    invalid(name, "a tensor on " + tensor.device, "the device of q, " + device + ",");
  }
  if (tensor.shape != needed) {
    invalid(name, "shape " + format(tensor.shape), std::string(layout) + " = " + format(needed));
  }
  View view{.name = name,
            .present = true,
            .data = reinterpret_cast<const void*>(tensor.data),
            .element_bytes = dtype == kFp32 || dtype == kInt32 ? 4 : 2,
            .shape = {1, 1, 1, 1},
            .strides = {}};
  const size_t pad = view.shape.size() - needed.size();
  for (size_t i = 0; i < needed.size(); ++i) {
    view.shape[pad + i] = tensor.shape[i];
    view.strides[pad + i] = tensor.strides[i];
  }
  if (view.shape[3] > 1 && view.strides[3] != 1) {
    invalid(name, "last stride " + to_string(view.strides[3]), "1");
  }
  return view;
}

void check_contiguous(const View& view) {
  int64_t stride = 1;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] > 1 && view.strides[i] != stride) {
      invalid(view.name, "a strided tensor", "a contiguous one");
    }
    stride *= view.shape[i];
  }
}

void check_features(const MhaBwdCall& call) {
  checks::check_dropout("dropout_p", call.dropout_p);
  const std::pair<const char*, bool> absent[] = {{"bias", call.bias.has_value()},
                                                 {"dbias", call.dbias.has_value()},
                                                 {"alibi_slopes", call.alibi_slopes.has_value()}};
  for (const auto& [name, given] : absent) {
    if (given) unsupported(name, "a value", "None");
  }
}

}  // namespace

MhaBwdProblem check(const MhaBwdCall& call, Outputs outputs) {
  const TensorDesc& q = required("q", call.q);
  const TensorDesc& k = required("k", call.k);
  const TensorDesc& v = required("v", call.v);
  const TensorDesc& out = required("out", call.out);
  const TensorDesc& dout = required("dout", call.dout);
  const TensorDesc& lse = required("softmax_lse", call.softmax_lse);
  if (outputs == Outputs::required) {
    required("dq", call.dq);
    required("dk", call.dk);
    required("dv", call.dv);
  }
  const bool packed = call.cu_seqlens_q || call.cu_seqlens_k;
  const Layouts& layouts = packed ? kPacked : kDense;

  MhaBwdProblem p;
  p.data_type = checks::data_type_of("q", q);
  checks::check_device("q", q);
  check_rank("q", q, packed ? 3 : 4, layouts.q);
  check_rank("k", k, packed ? 3 : 4, layouts.k);
  check_rank("v", v, packed ? 3 : 4, layouts.v);
  p.packed = packed;
  p.deterministic = call.deterministic;
  const size_t rows = packed ? 0 : 1;
  p.seqlen_q = q.shape[rows], p.nhead_q = q.shape[rows + 1], p.hdim_q = q.shape[rows + 2];
  p.seqlen_k = k.shape[rows], p.nhead_k = k.shape[rows + 1], p.hdim_v = v.shape[rows + 2];

  const auto view = [&](const char* name, const TensorDesc& tensor, const std::string& type,
                        const std::vector<int64_t>& shape, const char* layout) {
    return checked_view(name, tensor, type, q.device, shape, layout);
  };
  const auto optional = [&](const char* name, const std::optional<TensorDesc>& tensor,
                            const std::string& type, const std::vector<int64_t>& shape,
                            const char* layout) {
    return tensor ? view(name, *tensor, type, shape, layout) : View{.name = name};
  };
  if (packed) {
    const TensorDesc& cu_q = required("cu_seqlens_q", call.cu_seqlens_q);
    const TensorDesc& cu_k = required("cu_seqlens_k", call.cu_seqlens_k);
    check_rank("cu_seqlens_q", cu_q, 1, "[b + 1]");
    if (cu_q.shape[0] < 2)
      invalid("cu_seqlens_q", "shape " + format(cu_q.shape), "2 entries or more");
    p.batch = cu_q.shape[0] - 1;
    const std::vector<int64_t> shape = {p.batch + 1};
    const auto lengths = [&](const char* name, const std::optional<TensorDesc>& tensor) {
      const View result = optional(name, tensor, kInt32, shape, "[b + 1]");
      if (result.present) check_contiguous(result);
      return result;
    };
    p.start_q = lengths("cu_seqlens_q", cu_q);
    p.start_k = lengths("cu_seqlens_k", cu_k);
    // With padding the plain ones give the lengths, the padded ones the places.
    if (call.cu_seqlens_q_padded) {
      p.cu_q = p.start_q;
      p.start_q = lengths("cu_seqlens_q_padded", call.cu_seqlens_q_padded);
    }
    if (call.cu_seqlens_k_padded) {
      p.cu_k = p.start_k;
      p.start_k = lengths("cu_seqlens_k_padded", call.cu_seqlens_k_padded);
    }
    p.max_seqlen_q = call.max_seqlen_q, p.max_seqlen_k = call.max_seqlen_k;
  } else {
    p.batch = q.shape[0];
    if (call.cu_seqlens_q_padded)
      unsupported("cu_seqlens_q_padded", "a tensor without cu_seqlens_q", "None");
    if (call.cu_seqlens_k_padded)
      unsupported("cu_seqlens_k_padded", "a tensor without cu_seqlens_k", "None");
  }

  // Of a [b, s, h, d] tensor, packed [total, h, d].
  const auto shape = [&](int64_t seqlen, int64_t nhead, int64_t hdim) -> std::vector<int64_t> {
    if (packed) return {seqlen, nhead, hdim};
    return {p.batch, seqlen, nhead, hdim};
  };
  const std::string& dtype = q.dtype;
  const std::vector<int64_t> q_shape = q.shape;
  const std::vector<int64_t> k_shape = shape(p.seqlen_k, p.nhead_k, p.hdim_q);
  const std::vector<int64_t> v_shape = shape(p.seqlen_k, p.nhead_k, p.hdim_v);
  const std::vector<int64_t> out_shape = shape(p.seqlen_q, p.nhead_q, p.hdim_v);
  std::vector<int64_t> row_shape = {p.batch, p.nhead_q, p.seqlen_q};
  if (packed) row_shape.erase(row_shape.begin());
  p.q = view("q", q, dtype, q_shape, layouts.q);
  p.k = view("k", k, dtype, k_shape, layouts.k);
  p.v = view("v", v, dtype, v_shape, layouts.v);
  p.out = view("out", out, dtype, out_shape, layouts.out);
  p.dout = view("dout", dout, dtype, out_shape, layouts.out);
  p.lse = view("softmax_lse", lse, kFp32, row_shape, layouts.rows);
  p.dlse = optional("dlse", call.dlse, kFp32, row_shape, layouts.rows);
  p.dq = optional("dq", call.dq, dtype, q_shape, layouts.q);
  p.dk = optional("dk", call.dk, dtype, k_shape, layouts.k);
  p.dv = optional("dv", call.dv, dtype, v_shape, layouts.v);
  p.softmax_d = optional("softmax_d", call.softmax_d, kFp32, row_shape, layouts.rows);
  p.sink = optional("sink", call.sink, kFp32, {p.batch, p.nhead_q}, "[b, hq]");
  p.d_sink_per_batch = call.d_sink && call.d_sink->shape.size() == 2;
  p.d_sink = p.d_sink_per_batch
                 ? view("d_sink", *call.d_sink, kFp32, {p.batch, p.nhead_q}, "[b, hq]")
                 : optional("d_sink", call.d_sink, kFp32, {p.nhead_q}, "[hq]");
  if (p.sink.present) check_contiguous(p.sink);
  if (p.d_sink.present) check_contiguous(p.d_sink);
  if (p.d_sink.present && !p.sink.present) invalid("sink", "None with d_sink", "a tensor");

  p.scale = checks::finite_scale("softmax_scale", call.softmax_scale);
  p.window.left = checks::window_bound("window_size_left", call.window_size_left);
  p.window.right = checks::window_bound("window_size_right", call.window_size_right);
  if (call.is_causal) p.window.right = 0;
  check_features(call);
  checks::check_sizes(p);
  checks::check_memory(p);
  return p;
}

}  // namespace mha_sink
