#include "bindings_device.h"

#include <pybind11/stl.h>

#include <string>
#include <tuple>

#include "bindings_call.h"
#include "device/intercepted.h"
#include "device/rocm_runtime.h"
#include "hip/mha/params.h"
#include "host/compare_mha_bwd.h"
#include "host/compare_sparse_mla.h"
#include "host/device_name.h"
#include "host/run_mha_bwd.h"

namespace mha_sink {
namespace {

namespace py = pybind11;

py::dict rocm() {
  const hip::Runtime& runtime = hip::runtime();
  py::list devices;
  for (int index = 0; index < runtime.device_count; ++index) {
    devices.append(rocm_device(index).name());
  }
  py::dict dict;
  dict["library"] = runtime.library;
  dict["driver_version"] = runtime.driver_version;
  dict["runtime_version"] = runtime.runtime_version;
  dict["devices"] = devices;
  return dict;
}

py::bytes to_bytes(std::span<const std::byte> contents) {
  return {reinterpret_cast<const char*>(contents.data()), contents.size()};
}

// Called without the GIL.
class PythonObserver final : public LaunchObserver {
 public:
  PythonObserver(const py::object& starting, const py::object& compared)
      : starting_(starting), compared_(compared) {}

  void starting(const std::string& kernel) override {
    const py::gil_scoped_acquire gil;
    starting_(kernel);
  }

  void compared(const std::string& kernel, const LaunchDims& dims,
                std::span<const ComparedBuffer> buffers) override {
    const py::gil_scoped_acquire gil;
    py::list list;
    for (const ComparedBuffer& buffer : buffers) {
      list.append(py::make_tuple(buffer.name, buffer.writable, to_bytes(buffer.device),
                                 to_bytes(buffer.emulated)));
    }
    const auto& [x, y, z] = dims.workgroups;
    compared_(kernel, py::make_tuple(x, y, z), list);
  }

 private:
  const py::object &starting_, &compared_;
};

void compare(const MhaBwdCall& call, const std::string& device, const py::object& starting,
             const py::object& compared) {
  PythonObserver observer(starting, compared);
  const py::gil_scoped_release no_gil;
  compare_mha_bwd(call, device_named(device), observer);
}

template <class Call>
void compare_sparse(const Call& call, const std::string& device, const py::object& starting,
                    const py::object& compared) {
  PythonObserver observer(starting, compared);
  const py::gil_scoped_release no_gil;
  compare_sparse_mla(call, device_named(device), observer);
}

py::tuple described(const BufferRange& buffer) {
  return py::make_tuple(reinterpret_cast<uintptr_t>(buffer.data), buffer.bytes, buffer.writable,
                        buffer.name);
}

void list_launches(const MhaBwdCall& call, const py::object& workspace_alloc,
                   const py::object& launch) {
  const MhaBwdProblem problem = check(call, Outputs::required);
  InterceptedDevice device(
      emulated_device(),
      [&](const KernelBinary& kernel, const LaunchDims& dims, std::span<const std::byte> arguments,
          std::span<const BufferRange> buffers) {
        py::list memory;
        for (const BufferRange& buffer : buffers) {
          if (buffer.bytes > 0) memory.append(described(buffer));
        }
        const auto& [x, y, z] = dims.workgroups;
        const auto& [items_x, items_y, items_z] = dims.workgroup_size;
        launch(kernel.name, py::make_tuple(x, y, z), py::make_tuple(items_x, items_y, items_z),
               to_bytes(arguments), memory);
      },
      [&](void* data, size_t bytes) {
        const py::tuple one = py::make_tuple(1, 1, 1);
        launch("memset", one, one, py::bytes(),
               py::make_tuple(described({data, bytes, true, "memory"})));
      });
  run_mha_bwd(problem, python_alloc(workspace_alloc), {.device_ = &device});
}

}  // namespace

void bind_device(py::module_& module) {
  module.def("rocm", &rocm);
  module.def(
      "warmup",
      [](const std::string& device, uintptr_t stream) {
        warmup(device_named(device), reinterpret_cast<Stream>(stream));
      },
      py::arg("device"), py::arg("stream") = 0, py::call_guard<py::gil_scoped_release>());
  module.def(
      "tile_sizes",
      [](int32_t hdim) { return std::tuple(mha::kRowPadding, mha::keys_per_workgroup(hdim)); },
      py::arg("hdim"));
  module.def("list_mha_bwd_launches", &list_launches, py::arg("call"), py::arg("workspace_alloc"),
             py::arg("launch"));
  module.def("compare_mha_bwd", &compare, py::arg("call"), py::arg("device"), py::arg("starting"),
             py::arg("compared"));
  module.def("compare_sparse_mla", &compare_sparse<SparseMlaFwdCall>, py::arg("call"),
             py::arg("device"), py::arg("starting"), py::arg("compared"));
  module.def("compare_sparse_mla", &compare_sparse<SparseMlaBwdCall>, py::arg("call"),
             py::arg("device"), py::arg("starting"), py::arg("compared"));
}

}  // namespace mha_sink
