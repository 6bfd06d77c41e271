"""GPUs as torch sees them, and getting one ready before a graph is captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mha_sink import _C, _tensors

ARCHITECTURE = "gfx950"


def warmup(device: torch.device | str | int) -> None:
    """Loads every kernel onto a device, so that no later call has to.

    Loading is not possible while a stream is captured into a graph: call this, or run the function
    once, before the capture.

    Args:
        device: "cuda:N" for a GPU of a torch for ROCm, "cuda" for the current one, "cpu" for the
            emulator.

    Raises:
        mha_sink.Error: there is no such device, a kernel cannot be loaded, or a stream is being
            captured.
    """
    chosen = torch.device(device)
    if str(chosen) == "cuda":
        index = torch.cuda.current_device() if torch.cuda.is_available() else 0
        chosen = torch.device("cuda", index)
    _tensors.check_torch("device", chosen)
    with explained(chosen):
        _C.warmup(str(chosen), _tensors.current_stream(chosen))


def architecture(index: int) -> str | None:
    """What torch for ROCm calls GPU `index`, such as "gfx950:sramecc+:xnack-"; None: it cannot."""
    if torch.version.hip is None or index >= torch.cuda.device_count():
        return None
    name: str | None = getattr(torch.cuda.get_device_properties(index), "gcnArchName", None)
    return name


@contextmanager
def explained(device: torch.device) -> Iterator[None]:
    """Adds to an Error that the GPU has another architecture than the kernels, if so.

    The HIP runtime only says that a code object does not fit.
    """
    try:
        yield
    except _C.Error as error:
        name = architecture(device.index or 0) if device.type == "cuda" else None
        if name is None or name.partition(":")[0] == ARCHITECTURE:
            raise
        raise type(error)(
            f"{error} ({device} is {name}; the kernels are {ARCHITECTURE})"
        ) from error
