#include "benchmark/sparse_mla_call.h"

#include <initializer_list>
#include <utility>

#include "host/checks.h"

namespace mha_sink::benchmark {
namespace {

sparse_mla_bwd_traits traits_of(const SparseMlaOptions& o) {
  return {.data_type = o.prec,
          .tokens = o.tokens,
          .nhead = o.nhead,
          .num_kv = o.num_kv(),
          .topk = o.topk,
          .r_chunk = o.r_chunk,
          .has_plan = o.plan};
}

void need(float result) {
  if (result < 0) throw Unsupported(unsupported_reason());
}

template <class T>
void fetch(const DeviceBuffer& buffer, std::vector<T>& values) {
  values.resize(buffer.bytes() / sizeof(T));
  buffer.download(values);
}

}  // namespace

SparseMlaCall::SparseMlaCall(Device& device, const SparseMlaOptions& options, SparseMlaInputs& in)
    : print_kernels_(options.print_kernels),
      q_(uploaded(device, in.q)),
      kv_(uploaded(device, in.kv)),
      dout_(uploaded(device, in.dout)),
      indices_(uploaded(device, in.indices)),
      sink_(uploaded(device, in.sink)),
      o_(poisoned(device, q_.bytes())),
      lse_(poisoned(device, static_cast<size_t>(in.tokens * in.nhead) * sizeof(float))),
      dq_(poisoned(device, q_.bytes())),
      dkv_(poisoned(device, kv_.bytes())),
      d_sink_(poisoned(device, sink_.bytes())),
      workspace_(poisoned(device, sparse_mla_bwd_launcher(traits_of(options)).workspace_size)) {
  stream_config stream;
  stream.device_ = &device;
  if (options.plan) {
    plan_ = poisoned(device, sparse_mla_plan_size(options.tokens, options.num_kv(), options.topk));
    const sparse_mla_plan_args plan{.tokens = options.tokens,
                                    .num_kv = options.num_kv(),
                                    .topk = options.topk,
                                    .topk_indices_ptr = indices_.data(),
                                    .plan_ptr = plan_.data()};
    need(sparse_mla_plan(plan, stream));
  }
  DeviceBuffer forward_workspace;
  const sparse_mla_fwd_args forward{.data_type = options.prec,
                                    .tokens = options.tokens,
                                    .nhead = options.nhead,
                                    .num_kv = options.num_kv(),
                                    .topk = options.topk,
                                    .scale = in.scale,
                                    .q_ptr = q_.data(),
                                    .kv_ptr = kv_.data(),
                                    .topk_indices_ptr = indices_.data(),
                                    .o_ptr = o_.data(),
                                    .lse_ptr = lse_.data(),
                                    .sink_ptr = sink_.data(),
                                    .plan_ptr = plan_.data(),
                                    .workspace_alloc = [&](size_t bytes, bool) {
                                      forward_workspace = poisoned(device, bytes);
                                      return forward_workspace.data();
                                    }};
  need(sparse_mla_fwd(forward, stream));
  fetch(o_, in.o);
  fetch(lse_, in.lse);

  args_.data_type = options.prec;
  args_.tokens = options.tokens, args_.nhead = options.nhead;
  args_.num_kv = options.num_kv(), args_.topk = options.topk;
  args_.r_chunk = options.r_chunk, args_.scale = in.scale;
  args_.q_ptr = q_.data(), args_.kv_ptr = kv_.data(), args_.do_ptr = dout_.data();
  args_.o_ptr = o_.data(), args_.lse_ptr = lse_.data();
  args_.topk_indices_ptr = indices_.data();
  args_.dq_ptr = dq_.data(), args_.dkv_ptr = dkv_.data();
  args_.sink_ptr = sink_.data(), args_.d_sink_ptr = d_sink_.data();
  args_.plan_ptr = plan_.data();
  args_.workspace_alloc = as_announced(workspace_);
}

void SparseMlaCall::run(Device& device) {
  stream_config stream;
  stream.device_ = &device;
  stream.log_level_ = std::exchange(print_kernels_, false) ? 1 : 0;
  need(sparse_mla_bwd(args_, stream));
}

SparseMlaOutputs SparseMlaCall::outputs() const {
  SparseMlaOutputs out;
  fetch(dq_, out.dq);
  fetch(dkv_, out.dkv);
  fetch(d_sink_, out.d_sink);
  return out;
}

size_t SparseMlaCall::bytes_moved() const {
  size_t bytes = 0;
  for (const DeviceBuffer* buffer :
       {&q_, &kv_, &dout_, &indices_, &sink_, &o_, &lse_, &dq_, &dkv_, &d_sink_}) {
    bytes += buffer->bytes();
  }
  return bytes;
}

}  // namespace mha_sink::benchmark
