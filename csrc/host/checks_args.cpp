// Checks of the C++ call: pointers, sizes and strides.
#include "hip/mha/params.h"
#include "host/checks.h"

namespace mha_sink {
namespace {

using checks::invalid;
using checks::unsupported;
using std::to_string;

// mha_bwd_args and fmha_bwd_traits name these fields alike.
template <class T>
MhaBwdSizes sizes_of(const T& traits) {
  return {.data_type = traits.data_type,
          .packed = traits.is_group_mode,
          .deterministic = traits.is_deterministic,
          .batch = traits.batch,
          .seqlen_q = traits.seqlen_q,
          .seqlen_k = traits.seqlen_k,
          .nhead_q = traits.nhead_q,
          .nhead_k = traits.nhead_k,
          .hdim_q = traits.hdim_q,
          .hdim_v = traits.hdim_v};
}

template <class T>
void check_traits(const T& traits) {
  checks::check_data_type(traits.data_type);
  if (traits.mask_type < kNoMask || traits.mask_type > kMaskGeneric) {
    invalid("mask_type", to_string(traits.mask_type), "0 to 3");
  }
  if (traits.bias_type < 0 || traits.bias_type > 2) {
    invalid("bias_type", to_string(traits.bias_type), "0 to 2");
  }
  if (traits.mask_type == kMaskGeneric) {
    unsupported("mask_type", to_string(traits.mask_type),
                "0 (none), 1 (top-left) and 2 (bottom-right)");
  }
  if (traits.bias_type != 0) unsupported("bias_type", to_string(traits.bias_type), "0");
  if (traits.has_dbias) unsupported("has_dbias", "true", "false");
  if (traits.has_dropout) unsupported("has_dropout", "true", "false");
  if (traits.is_store_randval) unsupported("is_store_randval", "true", "false");
  checks::check_sizes(sizes_of(traits));
}

void check_features(const mha_bwd_args& args) {
  const std::pair<const char*, const void*> absent[] = {{"bias_ptr", args.bias_ptr},
                                                        {"rand_val_ptr", args.rand_val_ptr},
                                                        {"dbias_ptr", args.dbias_ptr}};
  for (const auto& [name, pointer] : absent) {
    if (pointer != nullptr) unsupported(name, "an address", "null");
  }
  checks::check_dropout("p_drop", args.p_drop);
}

void check_sequence_pointers(const mha_bwd_args& args) {
  if (args.is_group_mode) {
    if (args.seqstart_q_ptr == nullptr) {
      unsupported("seqstart_q_ptr", "null in group mode", "the sequences' first rows, int32");
    }
    if (args.seqstart_k_ptr == nullptr) {
      unsupported("seqstart_k_ptr", "null in group mode", "the sequences' first rows, int32");
    }
    return;
  }
  const std::pair<const char*, const void*> absent[] = {
      {"seqstart_q_ptr (batch mode)", args.seqstart_q_ptr},
      {"seqstart_k_ptr (batch mode)", args.seqstart_k_ptr},
      {"seqlen_q_ptr (padded batch)", args.seqlen_q_ptr},
      {"seqlen_k_ptr (padded batch)", args.seqlen_k_ptr},
      {"cu_seqlen_q_ptr (padded batch)", args.cu_seqlen_q_ptr},
      {"cu_seqlen_k_ptr (padded batch)", args.cu_seqlen_k_ptr}};
  for (const auto& [name, pointer] : absent) {
    if (pointer != nullptr) unsupported(name, "an address", "null");
  }
}

}  // namespace

void check(const fmha_bwd_traits& traits) { check_traits(traits); }

MhaBwdSizes mha_bwd_sizes(const fmha_bwd_traits& traits) { return sizes_of(traits); }

MhaBwdProblem check(const mha_bwd_args& args) {
  check_traits(args);
  MhaBwdProblem p;
  static_cast<MhaBwdSizes&>(p) = sizes_of(args);
  p.scale = checks::finite_scale("scale", args.scale);
  p.window = {mha::kUnboundedWindow, mha::kUnboundedWindow, args.mask_type == kMaskTopLeft};
  if (args.mask_type != kNoMask) {
    p.window.left = checks::window_bound("window_size_left", args.window_size_left);
    p.window.right = checks::window_bound("window_size_right", args.window_size_right);
  }
  // Of the tensors: a packed batch is one entry, its batch strides mean nothing.
  const int64_t batch = p.packed ? 1 : p.batch;

  const auto bshd = [&](const char* name, const void* data, int64_t seqlen, int64_t nhead,
                        int64_t hdim, int64_t batch_stride, int64_t stride, int64_t nhead_stride) {
    return View{.name = name,
                .present = true,
                .data = data,
                .element_bytes = 2,
                .shape = {batch, seqlen, nhead, hdim},
                .strides = {p.packed ? 0 : batch_stride, stride, nhead_stride, 1}};
  };
  const auto query = [&](const char* name, const void* data, int64_t hdim, int64_t batch_stride,
                         int64_t stride, int64_t nhead_stride) {
    return bshd(name, data, p.seqlen_q, p.nhead_q, hdim, batch_stride, stride, nhead_stride);
  };
  const auto key = [&](const char* name, const void* data, int64_t hdim, int64_t batch_stride,
                       int64_t stride, int64_t nhead_stride) {
    return bshd(name, data, p.seqlen_k, p.nhead_k, hdim, batch_stride, stride, nhead_stride);
  };
  const auto fp32 = [](const char* name, bool present, const void* data,
                       std::array<int64_t, 4> shape, std::array<int64_t, 4> strides) {
    return View{.name = name,
                .present = present,
                .data = data,
                .element_bytes = 4,
                .shape = shape,
                .strides = strides};
  };
  p.q =
      query("q_ptr", args.q_ptr, p.hdim_q, args.batch_stride_q, args.stride_q, args.nhead_stride_q);
  p.k = key("k_ptr", args.k_ptr, p.hdim_q, args.batch_stride_k, args.stride_k, args.nhead_stride_k);
  p.v = key("v_ptr", args.v_ptr, p.hdim_v, args.batch_stride_v, args.stride_v, args.nhead_stride_v);
  p.out =
      query("o_ptr", args.o_ptr, p.hdim_v, args.batch_stride_o, args.stride_o, args.nhead_stride_o);
  p.dout = query("do_ptr", args.do_ptr, p.hdim_v, args.batch_stride_do, args.stride_do,
                 args.nhead_stride_do);
  p.dq = query("dq_ptr", args.dq_ptr, p.hdim_q, args.batch_stride_dq, args.stride_dq,
               args.nhead_stride_dq);
  p.dk = key("dk_ptr", args.dk_ptr, p.hdim_q, args.batch_stride_dk, args.stride_dk,
             args.nhead_stride_dk);
  p.dv = key("dv_ptr", args.dv_ptr, p.hdim_v, args.batch_stride_dv, args.stride_dv,
             args.nhead_stride_dv);
  const std::array<int64_t, 4> row_shape = {1, batch, p.nhead_q, p.seqlen_q};
  const std::array<int64_t, 4> row_strides = {0, p.packed ? 0 : args.batch_stride_lsed,
                                              args.nhead_stride_lsed, 1};
  p.lse = fp32("lse_ptr", true, args.lse_ptr, row_shape, row_strides);
  p.dlse = fp32("dlse_ptr", args.dlse_ptr != nullptr, args.dlse_ptr, row_shape, row_strides);
  p.softmax_d = fp32("d_ptr", args.d_ptr != nullptr, args.d_ptr, row_shape, row_strides);
  p.sink = fp32("sink_ptr", args.sink_ptr != nullptr, args.sink_ptr, {1, 1, p.batch, p.nhead_q},
                {0, 0, p.nhead_q, 1});
  p.d_sink = fp32("d_sink_ptr", args.d_sink_ptr != nullptr, args.d_sink_ptr, {1, 1, 1, p.nhead_q},
                  {0, 0, 0, 1});
  if (p.d_sink.present && !p.sink.present) {
    invalid("sink_ptr", "null with d_sink_ptr", "an address");
  }
  check_features(args);
  check_sequence_pointers(args);
  if (p.packed) {
    const auto lengths = [](const char* name, const void* data, int64_t count) {
      return View{.name = name,
                  .present = data != nullptr,
                  .data = data,
                  .element_bytes = 4,
                  .shape = {1, 1, 1, count},
                  .strides = {0, 0, 0, 1}};
    };
    p.start_q = lengths("seqstart_q_ptr", args.seqstart_q_ptr, p.batch + 1);
    p.start_k = lengths("seqstart_k_ptr", args.seqstart_k_ptr, p.batch + 1);
    p.cu_q = lengths("cu_seqlen_q_ptr", args.cu_seqlen_q_ptr, p.batch + 1);
    p.cu_k = lengths("cu_seqlen_k_ptr", args.cu_seqlen_k_ptr, p.batch + 1);
    p.length_q = lengths("seqlen_q_ptr", args.seqlen_q_ptr, p.batch);
    p.length_k = lengths("seqlen_k_ptr", args.seqlen_k_ptr, p.batch);
  }
  checks::check_memory(p);
  return p;
}

}  // namespace mha_sink
