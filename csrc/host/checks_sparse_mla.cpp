// Checks that all interfaces share, and those of the C++ calls.
#include "host/checks_sparse_mla.h"

#include <vector>

#include "hip/sparse_mla/params.h"
#include "host/sparse_mla_workspace.h"

namespace mha_sink {
namespace checks {
namespace {

using std::to_string;

// Threads of a grid's dimension: what AMD's runtimes accept. dq takes 256 a token, gather_dkv 512 a
// row of kv.
constexpr int64_t kMaxThreads = (int64_t{1} << 32) - 1;
constexpr int64_t kMaxTokens = kMaxThreads / 256, kMaxKv = kMaxThreads / 512;
constexpr int64_t kMaxTopk = int64_t{1} << 30;  // slots of a token are counted in int32

bool intersect(const Array& a, const Array& b) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<uintptr_t>(b.data);
  return a.bytes > 0 && b.bytes > 0 && begin_a < begin_b + static_cast<uintptr_t>(b.bytes) &&
         begin_b < begin_a + static_cast<uintptr_t>(a.bytes);
}

}  // namespace

void check_sparse_mla_sizes(SparseMlaSizes& sizes) {
  check_count("T (tokens)", sizes.tokens, 0, kMaxTokens);
  check_count("H (heads)", sizes.nhead, 1, sparse_mla::kMaxHeads);
  check_count("num_kv (rows of kv)", sizes.num_kv, sizes.tokens, kMaxKv);
  check_count("TOPK", sizes.topk, 0, kMaxTopk);
  if (sizes.r_chunk < 0 || sizes.r_chunk % sparse_mla::kBlockSlots != 0) {
    invalid("R_CHUNK", to_string(sizes.r_chunk), "a multiple of 32 above 0");
  }
  if (sizes.r_chunk > 0 && sizes.topk % sizes.r_chunk != 0) {
    invalid("R_CHUNK must divide TOPK", to_string(sizes.r_chunk),
            "a divisor of TOPK = " + to_string(sizes.topk));
  }
  if (sizes.r_chunk == 0 || sizes.topk == 0) sizes.r_chunk = sizes.topk;
  layout_sparse_mla_plan(sizes.tokens, sizes.num_kv, sizes.topk);
}

void check_sparse_mla_memory(const std::vector<const Array*>& inputs,
                             const std::vector<const Array*>& outputs) {
  const auto check_pointer = [](const Array& array) {
    if (!array.present || array.bytes == 0) return;
    if (array.data == nullptr) invalid(array.name, "a null pointer", "an address");
    const auto address = reinterpret_cast<uintptr_t>(array.data);
    if (address % array.alignment != 0) {
      invalid(array.name, "address " + to_string(address),
              "a multiple of " + to_string(array.alignment));
    }
  };
  for (const Array* input : inputs) check_pointer(*input);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Array& output = *outputs[i];
    check_pointer(output);
    if (!output.present) continue;
    std::vector<const Array*> others = inputs;
    others.insert(others.end(), outputs.begin(), outputs.begin() + static_cast<ptrdiff_t>(i));
    for (const Array* other : others) {
      if (other->present && intersect(output, *other)) {
        invalid(std::string(output.name) + " and " + other->name, "tensors that share memory",
                "an output of its own");
      }
    }
  }
}

}  // namespace checks

namespace {

using checks::invalid;

template <class T>
SparseMlaSizes sizes_of(const T& args, int64_t r_chunk) {
  checks::check_data_type(args.data_type);
  SparseMlaSizes sizes{.data_type = args.data_type,
                       .tokens = args.tokens,
                       .nhead = args.nhead,
                       .num_kv = args.num_kv,
                       .topk = args.topk,
                       .r_chunk = r_chunk};
  checks::check_sparse_mla_sizes(sizes);
  return sizes;
}

Array required(const char* name, const void* data, int64_t bytes) {
  return {name, true, data, bytes};
}

// Of fp32 or int32, read one at a time.
Array scalars(const char* name, const void* data, int64_t bytes) {
  return {name, true, data, bytes, 4};
}

Array optional(const Array& array) { return array.data ? array : Array{.name = array.name}; }

// Bytes of the tensors of a call.
struct Bytes {
  int64_t rows, kv, row_constants, indices, heads, plan;

  explicit Bytes(const SparseMlaSizes& s)
      : rows(s.tokens * s.nhead * sparse_mla::kRowBytes),
        kv(s.num_kv * sparse_mla::kRowBytes),
        row_constants(s.tokens * s.nhead * 4),
        indices(s.tokens * s.topk * 4),
        heads(s.nhead * 4),
        plan(layout_sparse_mla_plan(s.tokens, s.num_kv, s.topk).bytes) {}
};

}  // namespace

SparseMlaSizes check(const sparse_mla_bwd_traits& traits) {
  return sizes_of(traits, traits.r_chunk);
}

SparseMlaFwdProblem check(const sparse_mla_fwd_args& args) {
  SparseMlaFwdProblem p;
  p.sizes = sizes_of(args, 0);
  p.scale = checks::finite_scale("scale", args.scale);
  const Bytes bytes(p.sizes);
  p.q = required("q_ptr", args.q_ptr, bytes.rows);
  p.kv = required("kv_ptr", args.kv_ptr, bytes.kv);
  p.topk_indices = scalars("topk_indices_ptr", args.topk_indices_ptr, bytes.indices);
  p.sink = optional(scalars("sink_ptr", args.sink_ptr, bytes.heads));
  p.plan = optional(required("plan_ptr", args.plan_ptr, bytes.plan));
  p.o = required("o_ptr", args.o_ptr, bytes.rows);
  p.lse = scalars("lse_ptr", args.lse_ptr, bytes.row_constants);
  checks::check_sparse_mla_memory(p.inputs(), p.outputs());
  return p;
}

SparseMlaBwdProblem check(const sparse_mla_bwd_args& args) {
  SparseMlaBwdProblem p;
  p.sizes = sizes_of(args, args.r_chunk);
  p.scale = checks::finite_scale("scale", args.scale);
  const Bytes bytes(p.sizes);
  p.q = required("q_ptr", args.q_ptr, bytes.rows);
  p.kv = required("kv_ptr", args.kv_ptr, bytes.kv);
  p.dout = required("do_ptr", args.do_ptr, bytes.rows);
  p.o = required("o_ptr", args.o_ptr, bytes.rows);
  p.lse = scalars("lse_ptr", args.lse_ptr, bytes.row_constants);
  p.topk_indices = scalars("topk_indices_ptr", args.topk_indices_ptr, bytes.indices);
  p.sink = optional(scalars("sink_ptr", args.sink_ptr, bytes.heads));
  p.dlse = optional(scalars("dlse_ptr", args.dlse_ptr, bytes.row_constants));
  p.plan = optional(required("plan_ptr", args.plan_ptr, bytes.plan));
  p.dq = required("dq_ptr", args.dq_ptr, bytes.rows);
  p.dkv = required("dkv_ptr", args.dkv_ptr, bytes.kv);
  p.d_sink = optional(scalars("d_sink_ptr", args.d_sink_ptr, bytes.heads));
  if (p.d_sink.present && !p.sink.present) {
    invalid("sink_ptr", "null with d_sink_ptr", "an address");
  }
  checks::check_sparse_mla_memory(p.inputs(), p.outputs());
  return p;
}

SparseMlaPlanProblem check(const sparse_mla_plan_args& args) {
  SparseMlaPlanProblem p;
  p.sizes = {.data_type = "bf16",
             .tokens = args.tokens,
             .nhead = 1,
             .num_kv = args.num_kv,
             .topk = args.topk};
  checks::check_sparse_mla_sizes(p.sizes);
  const Bytes bytes(p.sizes);
  p.topk_indices = scalars("topk_indices_ptr", args.topk_indices_ptr, bytes.indices);
  p.plan = required("plan_ptr", args.plan_ptr, bytes.plan);
  checks::check_sparse_mla_memory(p.inputs(), p.outputs());
  return p;
}

}  // namespace mha_sink
