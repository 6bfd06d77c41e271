"""Memory that begins where a GPU's allocator would let it: what is modelled and counted by cache
lines depends on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

ALIGNMENT = 256  # what hipMalloc gives at least


def aligned_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros on the CPU at a multiple of ALIGNMENT; pages that nobody touches take no memory."""
    size = math.prod(shape) * dtype.itemsize
    block = torch.zeros(size + ALIGNMENT, dtype=torch.uint8)
    start = -block.data_ptr() % ALIGNMENT
    return block[start : start + size].view(dtype).view(*shape)


class Arena:
    """The workspace callback of one call; the memory lives as long as this object."""

    def __init__(self) -> None:
        self._block: torch.Tensor | None = None

    def __call__(self, size: int, zero_init: bool) -> int:
        self._block = aligned_zeros((size,), torch.uint8)
        return self._block.data_ptr()
