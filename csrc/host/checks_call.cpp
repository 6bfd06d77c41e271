// Checks of the Python call: tensors with dtypes, shapes, strides and devices.
#include <initializer_list>

#include "host/checks.h"
#include "host/device_name.h"

namespace mha_sink {
namespace {

using checks::invalid;
using checks::unsupported;
using std::to_string;

constexpr const char* kFp32 = "float32";

std::string format(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + to_string(values[i]);
  return text + "]";
}

const TensorDesc& required(const char* name, const std::optional<TensorDesc>& tensor) {
  if (!tensor) invalid(name, "None", "a tensor");
  return *tensor;
}

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
            .element_bytes = dtype == kFp32 ? 4 : 2,
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
  if (call.deterministic) {
    unsupported("deterministic", "True (dq is summed by fp32 atomics)", "False");
  }
}

// Of q; the other tensors must follow it.
void check_device(const TensorDesc& q) {
  try {
    device_named(q.device);
  } catch (const Error& error) {
    unsupported(
        "q", "a tensor on " + q.device + " (" + error.what() + ")",
        "cpu, which runs the gfx950 kernels emulated, and cuda:N, the GPU N of a HIP runtime");
  }
}

void check_data_type(const TensorDesc& q) {
  if (q.dtype != "bfloat16" && q.dtype != "float16") {
    invalid("q", "dtype " + q.dtype, "bfloat16 or float16");
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

  check_data_type(q);
  check_device(q);
  check_rank("q", q, 4, "[b, sq, hq, d]");
  check_rank("k", k, 4, "[b, sk, hk, d]");
  check_rank("v", v, 4, "[b, sk, hk, dv]");
  MhaBwdProblem p;
  p.data_type = q.dtype == "bfloat16" ? "bf16" : "fp16";
  p.batch = q.shape[0], p.seqlen_q = q.shape[1], p.nhead_q = q.shape[2], p.hdim_q = q.shape[3];
  p.seqlen_k = k.shape[1], p.nhead_k = k.shape[2];
  p.hdim_v = v.shape[3];

  const std::string& dtype = q.dtype;
  const auto view = [&](const char* name, const TensorDesc& tensor, const std::string& type,
                        const std::vector<int64_t>& shape, const char* layout) {
    return checked_view(name, tensor, type, q.device, shape, layout);
  };
  const auto output = [&](const char* name, const std::optional<TensorDesc>& tensor,
                          const std::string& type, const std::vector<int64_t>& shape,
                          const char* layout) {
    return tensor ? view(name, *tensor, type, shape, layout) : View{.name = name};
  };
  const std::vector<int64_t> q_shape = q.shape;
  const std::vector<int64_t> k_shape = {p.batch, p.seqlen_k, p.nhead_k, p.hdim_q};
  const std::vector<int64_t> v_shape = {p.batch, p.seqlen_k, p.nhead_k, p.hdim_v};
  const std::vector<int64_t> out_shape = {p.batch, p.seqlen_q, p.nhead_q, p.hdim_v};
  const std::vector<int64_t> row_shape = {p.batch, p.nhead_q, p.seqlen_q};
  p.q = view("q", q, dtype, q_shape, "[b, sq, hq, d]");
  p.k = view("k", k, dtype, k_shape, "[b, sk, hk, d]");
  p.v = view("v", v, dtype, v_shape, "[b, sk, hk, dv]");
  p.out = view("out", out, dtype, out_shape, "[b, sq, hq, dv]");
  p.dout = view("dout", dout, dtype, out_shape, "[b, sq, hq, dv]");
  p.lse = view("softmax_lse", lse, kFp32, row_shape, "[b, hq, sq]");
  p.dq = output("dq", call.dq, dtype, q_shape, "[b, sq, hq, d]");
  p.dk = output("dk", call.dk, dtype, k_shape, "[b, sk, hk, d]");
  p.dv = output("dv", call.dv, dtype, v_shape, "[b, sk, hk, dv]");
  p.softmax_d = output("softmax_d", call.softmax_d, kFp32, row_shape, "[b, hq, sq]");
  p.sink = output("sink", call.sink, kFp32, {p.batch, p.nhead_q}, "[b, hq]");
  p.d_sink = output("d_sink", call.d_sink, kFp32, {p.nhead_q}, "[hq]");
  if (p.sink.present) check_contiguous(p.sink);
  if (p.d_sink.present) check_contiguous(p.d_sink);
  if (p.d_sink.present && !p.sink.present) invalid("sink", "None with d_sink", "a tensor");

  p.scale = checks::finite_scale("softmax_scale", call.softmax_scale);
  p.window_left = checks::window_bound("window_size_left", call.window_size_left);
  p.window_right = checks::window_bound("window_size_right", call.window_size_right);
  if (call.is_causal) p.window_right = 0;
  check_features(call);
  checks::check_sizes(p.data_type, p.batch, p.seqlen_q, p.seqlen_k, p.nhead_q, p.nhead_k, p.hdim_q,
                      p.hdim_v);
  checks::check_memory(p);
  return p;
}

}  // namespace mha_sink
