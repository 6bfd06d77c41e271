"""The fake HIP runtime of tests/fake_hip from Python, and torch's CPU tensors as if on its GPUs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mha_sink import _C, _tensors


def library() -> Path | None:
    """The fake's file in the build tree; None: it was not built."""
    build = os.environ.get("MHA_SINK_BUILD_DIR")
    path = Path(build or "/nonexistent") / "tests" / "fake_hip" / "libamdhip64.so.7"
    return path if path.exists() else None


class FakeHip:
    """Loads the fake into this process, as importing a torch for ROCm loads HIP."""

    def __init__(self) -> None:
        path = library()
        assert path is not None
        self._library = ctypes.CDLL(str(path))
        self._library.fake_hip_message.restype = ctypes.c_char_p
        self._kept: list[object] = []

    def calls(self, function: str) -> int:
        return int(self._library.fake_hip_calls(function.encode()))

    def fail(self, function: str, nth: int, status: int) -> None:
        self._library.fake_hip_fail(function.encode(), nth, status)

    def message(self) -> str:
        return str(self._library.fake_hip_message().decode())

    def patch(self, kernel: str, offset: int, words: list[int]) -> None:
        array = (ctypes.c_uint32 * len(words))(*words)
        self._library.fake_hip_patch(kernel.encode(), offset, array, ctypes.c_size_t(len(words)))

    def own(self, tensor: torch.Tensor, device: int) -> None:
        """From now on the tensor's memory is the device's."""
        storage = tensor.untyped_storage()
        self._kept.append(storage)
        address, size = ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes())
        self._library.fake_hip_own(address, size, device)

    def current_device(self) -> int:
        device = ctypes.c_int(-1)
        assert self._library.hipGetDevice(ctypes.byref(device)) == 0
        return device.value

    @contextmanager
    def current(self, device: int) -> Iterator[None]:
        before = self.current_device()
        self._library.hipSetDevice(device)
        yield
        self._library.hipSetDevice(before)

    def stream(self, device: int) -> int:
        handle = ctypes.c_void_p()
        with self.current(device):
            assert self._library.hipStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
        assert handle.value is not None
        return handle.value

    def pending(self, stream: int) -> int:
        return int(self._library.fake_hip_pending(ctypes.c_void_p(stream)))

    def synchronize(self, device: int, stream: int) -> None:
        with self.current(device):
            status = self._library.hipStreamSynchronize(ctypes.c_void_p(stream))
        assert status == 0, self.message()

    def begin_capture(self, device: int, stream: int) -> None:
        with self.current(device):
            assert self._library.hipStreamBeginCapture(ctypes.c_void_p(stream), 0) == 0

    def end_capture(self, device: int, stream: int) -> int:
        """The status: 0 for a valid capture."""
        graph = ctypes.c_void_p()
        with self.current(device):
            return int(
                self._library.hipStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
            )

    def use_for_torch(self, device: int, stream: int) -> None:
        """From now on `mha_sink` takes CPU tensors for tensors of that GPU and current stream."""
        describe, allocate = _tensors.describe, _tensors.Workspace.__call__

        def on_gpu(function: str, name: str, tensor: torch.Tensor) -> _C.Tensor:
            described = describe(function, name, tensor)
            described.device = f"cuda:{device}"
            if tensor.untyped_storage().nbytes() > 0:
                self.own(tensor, device)
            return described

        def workspace(block: _tensors.Workspace, size: int, zero_init: bool) -> int:
            address = allocate(block, size, zero_init)
            assert block._block is not None
            self.own(block._block, device)
            return address

        _tensors.describe = on_gpu
        _tensors.Workspace.__call__ = workspace  # type: ignore[method-assign]
        _tensors.current_stream = lambda _: stream
