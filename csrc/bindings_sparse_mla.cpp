#include "bindings_sparse_mla.h"

#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings_call.h"
#include "host/checks_contents.h"
#include "host/checks_sparse_mla.h"
#include "host/device_name.h"
#include "host/run_sparse_mla.h"

namespace mha_sink {
namespace {

namespace py = pybind11;

float fwd(const SparseMlaFwdCall& call, const py::object& workspace_alloc, uintptr_t stream,
          bool timed) {
  const SparseMlaFwdProblem problem = check(call, Outputs::required);
  const stream_config config = config_of(call.q->device, stream, timed);
  const WorkspaceAlloc alloc = python_alloc(workspace_alloc);
  const py::gil_scoped_release no_gil;
  return run_sparse_mla_fwd(problem, alloc, config);
}

float bwd(const SparseMlaBwdCall& call, const py::object& workspace_alloc, uintptr_t stream,
          bool timed) {
  const SparseMlaBwdProblem problem = check(call, Outputs::required);
  const stream_config config = config_of(call.q->device, stream, timed);
  const WorkspaceAlloc alloc = python_alloc(workspace_alloc);
  const py::gil_scoped_release no_gil;
  return run_sparse_mla_bwd(problem, alloc, config);
}

std::vector<std::tuple<std::string, std::vector<std::string>, double>> bwd_phases(
    const SparseMlaBwdCall& call, const py::object& workspace_alloc, uintptr_t stream,
    int repeats) {
  const SparseMlaBwdProblem problem = check(call, Outputs::required);
  const stream_config config = config_of(call.q->device, stream, false);
  const WorkspaceAlloc alloc = python_alloc(workspace_alloc);
  std::vector<std::tuple<std::string, std::vector<std::string>, double>> result;
  const py::gil_scoped_release no_gil;
  for (const SparseMlaPhase& phase : time_sparse_mla_bwd_phases(problem, alloc, config, repeats)) {
    result.emplace_back(phase.name, phase.kernels, phase.milliseconds);
  }
  return result;
}

float plan(const TensorDesc& topk_indices, int64_t num_kv, const TensorDesc& memory,
           uintptr_t stream, bool timed) {
  const SparseMlaPlanProblem problem = check_sparse_mla_plan(topk_indices, num_kv, memory);
  const stream_config config = config_of(topk_indices.device, stream, timed);
  const py::gil_scoped_release no_gil;
  return run_sparse_mla_plan(problem, config);
}

// Values as well as shapes, where that needs no GPU to be waited for.
template <class Problem>
void check_values(const Problem& problem, const std::string& device) {
  if (device != "cpu") return;
  checks::check_sparse_mla_indices(problem.topk_indices, problem.sizes, emulated_device(), nullptr);
}

size_t bwd_workspace_bytes(int64_t tokens, int64_t heads, int64_t topk, int64_t num_kv,
                           std::optional<int64_t> r_chunk, bool has_plan) {
  SparseMlaSizes sizes{.data_type = "bf16",
                       .tokens = tokens,
                       .nhead = heads,
                       .num_kv = num_kv,
                       .topk = topk,
                       .r_chunk = r_chunk.value_or(0)};
  checks::check_sparse_mla_sizes(sizes);
  return sparse_mla_bwd_workspace_bytes(sizes, has_plan);
}

}  // namespace

void bind_sparse_mla(py::module_& module) {
  const double default_scale = 1 / std::sqrt(double{kSparseMlaHeadDim});
  py::class_<SparseMlaFwdCall>(module, "SparseMlaFwdCall")
      .def(py::init([=] {
        SparseMlaFwdCall call;
        call.scale = default_scale;
        return call;
      }))
      .def_readwrite("q", &SparseMlaFwdCall::q)
      .def_readwrite("kv", &SparseMlaFwdCall::kv)
      .def_readwrite("topk_indices", &SparseMlaFwdCall::topk_indices)
      .def_readwrite("attn_sink", &SparseMlaFwdCall::attn_sink)
      .def_readwrite("plan", &SparseMlaFwdCall::plan)
      .def_readwrite("scale", &SparseMlaFwdCall::scale)
      .def_readwrite("o", &SparseMlaFwdCall::o)
      .def_readwrite("lse", &SparseMlaFwdCall::lse);
  py::class_<SparseMlaBwdCall>(module, "SparseMlaBwdCall")
      .def(py::init([=] {
        SparseMlaBwdCall call;
        call.scale = default_scale;
        return call;
      }))
      .def_readwrite("q", &SparseMlaBwdCall::q)
      .def_readwrite("kv", &SparseMlaBwdCall::kv)
      .def_readwrite("do", &SparseMlaBwdCall::dout)
      .def_readwrite("o", &SparseMlaBwdCall::o)
      .def_readwrite("lse", &SparseMlaBwdCall::lse)
      .def_readwrite("topk_indices", &SparseMlaBwdCall::topk_indices)
      .def_readwrite("attn_sink", &SparseMlaBwdCall::attn_sink)
      .def_readwrite("dlse", &SparseMlaBwdCall::dlse)
      .def_readwrite("plan", &SparseMlaBwdCall::plan)
      .def_readwrite("scale", &SparseMlaBwdCall::scale)
      .def_readwrite("r_chunk", &SparseMlaBwdCall::r_chunk)
      .def_readwrite("dq", &SparseMlaBwdCall::dq)
      .def_readwrite("dkv", &SparseMlaBwdCall::dkv)
      .def_readwrite("d_sink", &SparseMlaBwdCall::d_sink);

  module.def(
      "check_sparse_mla_fwd",
      [](const SparseMlaFwdCall& call) {
        check_values(check(call, Outputs::optional), call.q->device);
      },
      py::arg("call"));
  module.def(
      "check_sparse_mla_bwd",
      [](const SparseMlaBwdCall& call) {
        check_values(check(call, Outputs::optional), call.q->device);
      },
      py::arg("call"));
  module.def("sparse_mla_fwd", &fwd, py::arg("call"), py::arg("workspace_alloc"),
             py::arg("stream") = 0, py::arg("timed") = false);
  module.def("sparse_mla_bwd", &bwd, py::arg("call"), py::arg("workspace_alloc"),
             py::arg("stream") = 0, py::arg("timed") = false);
  module.def("sparse_mla_bwd_phases", &bwd_phases, py::arg("call"), py::arg("workspace_alloc"),
             py::arg("stream") = 0, py::arg("repeats") = 1);
  module.def(
      "sparse_mla_plan_bytes",
      [](int tokens, int topk, int num_kv) { return sparse_mla_plan_size(tokens, num_kv, topk); },
      py::arg("tokens"), py::arg("topk"), py::arg("num_kv"));
  module.def("sparse_mla_plan", &plan, py::arg("topk_indices"), py::arg("num_kv"), py::arg("plan"),
             py::arg("stream") = 0, py::arg("timed") = false);
  module.def(
      "sparse_mla_fwd_workspace_bytes",
      [](int64_t tokens, int64_t topk, bool has_plan) {
        SparseMlaSizes sizes{
            .data_type = "bf16", .tokens = tokens, .nhead = 1, .num_kv = tokens, .topk = topk};
        checks::check_sparse_mla_sizes(sizes);
        return sparse_mla_fwd_workspace_bytes(sizes, has_plan);
      },
      py::arg("tokens"), py::arg("topk"), py::arg("has_plan"));
  module.def("sparse_mla_bwd_workspace_bytes", &bwd_workspace_bytes, py::arg("tokens"),
             py::arg("heads"), py::arg("topk"), py::arg("num_kv"), py::arg("r_chunk"),
             py::arg("has_plan"));
}

}  // namespace mha_sink
