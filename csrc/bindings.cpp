// mha_sink._C: descriptions of tensors in, calls out. python/mha_sink/_C.pyi documents it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings_call.h"
#include "bindings_device.h"
#include "bindings_emulator.h"
#include "bindings_sparse_mla.h"
#include "host/build_info.h"
#include "host/checks.h"
#include "host/device_name.h"
#include "host/run_mha_bwd.h"
#include "host/workspace.h"
#include "mha_sink/error.h"

namespace mha_sink {
namespace {

namespace py = pybind11;

float mha_bwd_binding(const MhaBwdCall& call, const py::object& workspace_alloc, uintptr_t stream,
                      bool timed) {
  const MhaBwdProblem problem = check(call, Outputs::required);
  const stream_config config = config_of(call.q->device, stream, timed);
  const WorkspaceAlloc alloc = python_alloc(workspace_alloc);
  py::gil_scoped_release no_gil;
  return run_mha_bwd(problem, alloc, config);
}

int64_t workspace_bytes(int64_t batch, int64_t seqlen_q, int64_t seqlen_k, int64_t nhead_q,
                        int64_t nhead_k, int64_t hdim, bool packed, bool deterministic) {
  const MhaBwdSizes sizes{"bf16",   packed,  deterministic, batch, seqlen_q,
                          seqlen_k, nhead_q, nhead_k,       hdim,  hdim};
  checks::check_sizes(sizes);
  return plan_mha_bwd_workspace(sizes).bytes;
}

py::dict build_info_dict() {
  const BuildInfo& info = build_info();
  py::dict dict;
  dict["version"] = info.version;
  dict["hip_compiler"] = info.hip_compiler;
  dict["hip_compiler_reason"] = info.hip_compiler_reason;
  dict["hip_compiler_version"] = info.hip_compiler_version;
  dict["hip_flags"] = info.hip_flags;
  dict["host_compiler"] = info.host_compiler;
  return dict;
}

void bind_call(py::module_& module) {
  py::class_<TensorDesc>(module, "Tensor")
      .def(py::init([](uintptr_t data, std::string dtype, std::vector<int64_t> shape,
                       std::vector<int64_t> strides, std::string device) {
             return TensorDesc{data, std::move(dtype), std::move(shape), std::move(strides),
                               std::move(device)};
           }),
           py::arg("data"), py::arg("dtype"), py::arg("shape"), py::arg("strides"),
           py::arg("device"))
      .def_readwrite("data", &TensorDesc::data)
      .def_readwrite("dtype", &TensorDesc::dtype)
      .def_readwrite("shape", &TensorDesc::shape)
      .def_readwrite("strides", &TensorDesc::strides)
      .def_readwrite("device", &TensorDesc::device);
  py::class_<MhaBwdCall>(module, "MhaBwdCall")
      .def(py::init<>())
      .def_readwrite("dout", &MhaBwdCall::dout)
      .def_readwrite("q", &MhaBwdCall::q)
      .def_readwrite("k", &MhaBwdCall::k)
      .def_readwrite("v", &MhaBwdCall::v)
      .def_readwrite("out", &MhaBwdCall::out)
      .def_readwrite("softmax_lse", &MhaBwdCall::softmax_lse)
      .def_readwrite("dlse", &MhaBwdCall::dlse)
      .def_readwrite("cu_seqlens_q", &MhaBwdCall::cu_seqlens_q)
      .def_readwrite("cu_seqlens_k", &MhaBwdCall::cu_seqlens_k)
      .def_readwrite("cu_seqlens_q_padded", &MhaBwdCall::cu_seqlens_q_padded)
      .def_readwrite("cu_seqlens_k_padded", &MhaBwdCall::cu_seqlens_k_padded)
      .def_readwrite("max_seqlen_q", &MhaBwdCall::max_seqlen_q)
      .def_readwrite("max_seqlen_k", &MhaBwdCall::max_seqlen_k)
      .def_readwrite("dropout_p", &MhaBwdCall::dropout_p)
      .def_readwrite("softmax_scale", &MhaBwdCall::softmax_scale)
      .def_readwrite("is_causal", &MhaBwdCall::is_causal)
      .def_readwrite("window_size_left", &MhaBwdCall::window_size_left)
      .def_readwrite("window_size_right", &MhaBwdCall::window_size_right)
      .def_readwrite("deterministic", &MhaBwdCall::deterministic)
      .def_readwrite("dq", &MhaBwdCall::dq)
      .def_readwrite("dk", &MhaBwdCall::dk)
      .def_readwrite("dv", &MhaBwdCall::dv)
      .def_readwrite("softmax_d", &MhaBwdCall::softmax_d)
      .def_readwrite("dbias", &MhaBwdCall::dbias)
      .def_readwrite("bias", &MhaBwdCall::bias)
      .def_readwrite("alibi_slopes", &MhaBwdCall::alibi_slopes)
      .def_readwrite("sink", &MhaBwdCall::sink)
      .def_readwrite("d_sink", &MhaBwdCall::d_sink);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "Checks, launches and the gfx950 emulator of mha_sink.";
  // Translators are tried from the last registered to the first: derived types come last.
  const py::object error = py::register_exception<Error>(module, "Error", PyExc_RuntimeError);
  const py::tuple refused = py::make_tuple(error, py::handle(PyExc_ValueError));
  py::register_exception<InvalidArgument>(module, "InvalidArgument", refused);
  py::register_exception<Unsupported>(module, "Unsupported", refused);

  bind_call(module);
  module.def(
      "check_mha_bwd", [](const MhaBwdCall& call) { check(call, Outputs::optional); },
      py::arg("call"));
  module.def("mha_bwd", &mha_bwd_binding, py::arg("call"), py::arg("workspace_alloc"),
             py::arg("stream") = 0, py::arg("timed") = false);
  module.def("mha_bwd_workspace_bytes", &workspace_bytes, py::arg("batch"), py::arg("seqlen_q"),
             py::arg("seqlen_k"), py::arg("nhead_q"), py::arg("nhead_k"), py::arg("hdim"),
             py::arg("packed") = false, py::arg("deterministic") = false);
  module.def("build_info", &build_info_dict);
  bind_sparse_mla(module);
  bind_device(module);
  bind_emulator(module, error);
}

}  // namespace mha_sink
