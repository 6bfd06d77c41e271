"""From torch tensors to the descriptions that the compiled part takes, and memory for its calls."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mha_sink import _C

# Called on each workspace tensor before the kernels see it; tests set it to poison the block.
workspace_fill: Callable[[torch.Tensor], object] | None = None


def describe(function: str, name: str, tensor: torch.Tensor) -> _C.Tensor:
    """The pointer, dtype, shape, strides and device of `tensor`, which must outlive the call.

    Raises:
        TypeError: the argument is no dense torch tensor; only Python can see that.
        mha_sink.Unsupported: it lives on a GPU of a torch for CUDA; likewise.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{function}: {name} is a {type(tensor).__name__}; need a torch.Tensor or None"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{function}: {name} has layout {tensor.layout}; need torch.strided")
    check_torch(name, tensor.device)
    return _C.Tensor(
        data=tensor.data_ptr(),
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
        device=str(tensor.device),
    )


def check_torch(name: str, device: torch.device) -> None:
    """Refuses the GPUs of a torch for CUDA: their addresses mean nothing to a HIP runtime.

    Raises:
        mha_sink.Unsupported: names the argument `name`.
    """
    if device.type == "cuda" and torch.version.cuda is not None:
        raise _C.Unsupported(
            f"{name}: {device} of a torch for CUDA {torch.version.cuda} is not supported; "
            "supported: cpu, and cuda:N of a torch for ROCm"
        )


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Uninitialised, with the strides of `tensor` where these are dense; last stride always 1."""
    result = torch.empty_like(tensor)
    if result.stride(-1) != 1:
        result = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return result


def mark_written(*tensors: torch.Tensor | None) -> None:
    """Tells autograd that memory was written behind its back, as torch's in-place operators do."""
    torch.autograd.graph.increment_version(
        [tensor for tensor in tensors if tensor is not None and not tensor.is_inference()]
    )


def current_stream(device: torch.device) -> int:
    """The raw stream that torch would launch on now; 0 where torch has no streams for it."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return 0
    return torch.cuda.current_stream(device).cuda_stream


class Workspace:
    """The workspace callback of one call: a torch tensor that lives as long as this object.

    On a GPU the caching allocator ties the block to the stream that is current now, so its reuse
    after the call is ordered behind the kernels.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._block: torch.Tensor | None = None

    def __call__(self, size: int, zero_init: bool) -> int:
        allocate = torch.zeros if zero_init else torch.empty
        self._block = allocate(size, dtype=torch.uint8, device=self._device)
        if workspace_fill is not None and not zero_init:
            workspace_fill(self._block)
        return self._block.data_ptr()
