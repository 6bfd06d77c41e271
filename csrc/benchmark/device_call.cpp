#include "benchmark/device_call.h"

#include <initializer_list>
#include <string>
#include <utility>

#include "host/checks.h"

namespace mha_sink::benchmark {
namespace {

Tensor like(const Tensor& tensor) {
  Tensor copy = tensor;
  copy.bits.clear();
  return copy;
}

// Where each sequence's rows begin, and where the last one's end; empty in batch mode.
std::vector<int32_t> starts(const Problem& problem, bool group_mode, Rows Sequence::* rows) {
  std::vector<int32_t> result;
  if (!group_mode) return result;
  result.push_back(0);
  for (const Sequence& sequence : problem.sequences) {
    result.push_back(result.back() + (sequence.*rows).count + (sequence.*rows).padding);
  }
  return result;
}

// Cumulative lengths without padding; empty where there is none.
std::vector<int32_t> lengths(const Problem& problem, Rows Sequence::* rows) {
  std::vector<int32_t> result = {0};
  bool padded = false;
  for (const Sequence& sequence : problem.sequences) {
    result.push_back(result.back() + (sequence.*rows).count);
    padded = padded || (sequence.*rows).padding > 0;
  }
  if (!padded) result.clear();
  return result;
}

}  // namespace

DeviceCall::DeviceCall(Device& device, const Options& options, const Problem& problem,
                       const Inputs& in, size_t workspace_bytes)
    : print_kernels_(options.print_kernels),
      dq_(like(in.q)),
      dk_(like(in.k)),
      dv_(like(in.v)),
      q_buffer_(uploaded(device, in.q.bits)),
      k_buffer_(uploaded(device, in.k.bits)),
      v_buffer_(uploaded(device, in.v.bits)),
      out_buffer_(uploaded(device, in.out.bits)),
      dout_buffer_(uploaded(device, in.dout.bits)),
      lse_buffer_(uploaded(device, in.lse)),
      sink_buffer_(uploaded(device, in.sink)),
      seqstart_q_buffer_(uploaded(device, starts(problem, options.group_mode, &Sequence::queries))),
      seqstart_k_buffer_(uploaded(device, starts(problem, options.group_mode, &Sequence::keys))),
      cu_seqlen_q_buffer_(uploaded(device, lengths(problem, &Sequence::queries))),
      cu_seqlen_k_buffer_(uploaded(device, lengths(problem, &Sequence::keys))),
      dq_buffer_(poisoned(device, in.q.bytes())),
      dk_buffer_(poisoned(device, in.k.bytes())),
      dv_buffer_(poisoned(device, in.v.bytes())),
      delta_buffer_(poisoned(device, in.lse.size() * sizeof(float))),
      d_sink_buffer_(uploaded(device, in.d_sink_before)),
      workspace_(poisoned(device, workspace_bytes)) {
  mha_bwd_args& a = args_;
  const fmha_bwd_traits traits = traits_of(options);
  a.hdim_q = traits.hdim_q, a.hdim_v = traits.hdim_v, a.data_type = traits.data_type;
  a.is_group_mode = traits.is_group_mode;
  a.mask_type = traits.mask_type, a.is_deterministic = traits.is_deterministic;
  a.window_size_left = options.mask.left, a.window_size_right = options.mask.right;
  a.batch = traits.batch, a.nhead_q = traits.nhead_q, a.nhead_k = traits.nhead_k;
  a.seqlen_q = traits.seqlen_q, a.max_seqlen_q = traits.max_seqlen_q;
  a.seqlen_k = traits.seqlen_k, a.max_seqlen_k = traits.max_seqlen_k;
  a.scale = problem.scale, a.p_undrop = 1;

  a.q_ptr = q_buffer_.data(), a.k_ptr = k_buffer_.data(), a.v_ptr = v_buffer_.data();
  a.o_ptr = out_buffer_.data(), a.do_ptr = dout_buffer_.data(), a.lse_ptr = lse_buffer_.data();
  a.dq_ptr = dq_buffer_.data(), a.dk_ptr = dk_buffer_.data(), a.dv_ptr = dv_buffer_.data();
  a.d_ptr = delta_buffer_.data();
  a.sink_ptr = sink_buffer_.data(), a.d_sink_ptr = d_sink_buffer_.data();
  a.seqstart_q_ptr = seqstart_q_buffer_.data(), a.seqstart_k_ptr = seqstart_k_buffer_.data();
  a.cu_seqlen_q_ptr = cu_seqlen_q_buffer_.data(), a.cu_seqlen_k_ptr = cu_seqlen_k_buffer_.data();

  a.stride_q = in.q.seqlen_stride, a.stride_k = in.k.seqlen_stride;
  a.stride_v = in.v.seqlen_stride, a.stride_o = in.out.seqlen_stride;
  a.stride_do = in.dout.seqlen_stride, a.stride_dq = dq_.seqlen_stride;
  a.stride_dk = dk_.seqlen_stride, a.stride_dv = dv_.seqlen_stride;
  a.nhead_stride_q = in.q.nhead_stride, a.nhead_stride_k = in.k.nhead_stride;
  a.nhead_stride_v = in.v.nhead_stride, a.nhead_stride_o = in.out.nhead_stride;
  a.nhead_stride_do = in.dout.nhead_stride, a.nhead_stride_dq = dq_.nhead_stride;
  a.nhead_stride_dk = dk_.nhead_stride, a.nhead_stride_dv = dv_.nhead_stride;
  a.batch_stride_q = in.q.batch_stride, a.batch_stride_k = in.k.batch_stride;
  a.batch_stride_v = in.v.batch_stride, a.batch_stride_o = in.out.batch_stride;
  a.batch_stride_do = in.dout.batch_stride, a.batch_stride_dq = dq_.batch_stride;
  a.batch_stride_dk = dk_.batch_stride, a.batch_stride_dv = dv_.batch_stride;
  a.nhead_stride_lsed = problem.seqlen_q;
  a.batch_stride_lsed = int64_t{problem.nhead_q} * problem.seqlen_q;

  a.workspace_alloc = as_announced(workspace_);
}

void DeviceCall::run(Device& device) {
  stream_config stream;
  stream.device_ = &device;
  stream.log_level_ = std::exchange(print_kernels_, false) ? 1 : 0;
  if (mha_bwd(args_, stream) < 0) throw Unsupported(unsupported_reason());
}

Outputs DeviceCall::outputs() const {
  Outputs out{dq_, dk_, dv_, {}, {}};
  const auto fetch = [](const DeviceBuffer& buffer, auto& values) {
    values.resize(buffer.bytes() / sizeof(values[0]));
    buffer.download(values);
  };
  fetch(dq_buffer_, out.dq.bits);
  fetch(dk_buffer_, out.dk.bits);
  fetch(dv_buffer_, out.dv.bits);
  fetch(delta_buffer_, out.delta);
  fetch(d_sink_buffer_, out.d_sink);
  return out;
}

size_t DeviceCall::bytes_moved() const {
  size_t bytes = d_sink_buffer_.bytes();  // read, besides being written
  for (const DeviceBuffer* buffer :
       {&q_buffer_, &k_buffer_, &v_buffer_, &out_buffer_, &dout_buffer_, &lse_buffer_,
        &sink_buffer_, &seqstart_q_buffer_, &seqstart_k_buffer_, &cu_seqlen_q_buffer_,
        &cu_seqlen_k_buffer_, &dq_buffer_, &dk_buffer_, &dv_buffer_, &delta_buffer_,
        &d_sink_buffer_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

}  // namespace mha_sink::benchmark
