"""Tensors past 2^31 elements and 4 GiB, over memory that exists only where it is touched."""

import math
import mmap

import pytest
import torch
from torch import Tensor

import mha_sink
from mha_sink.testing import Case, make_inputs

# Linux gives a mapping without reserve no memory until it is written.
NO_RESERVE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)

OUTPUTS = ("dq", "dk", "dv")


def spread(tensor: Tensor, dim: int, stride: int) -> Tensor:
    """A copy whose elements along `dim` lie `stride` elements apart, the rest contiguous."""
    rest = [size for i, size in enumerate(tensor.shape) if i != dim]
    inner = torch.empty(rest).stride()
    strides = [*inner[:dim], stride, *inner[dim:]]
    last = (tensor.shape[dim] - 1) * stride + math.prod(rest)
    memory = mmap.mmap(-1, last * tensor.element_size(), flags=NO_RESERVE)
    flat: Tensor = torch.frombuffer(memory, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, strides).copy_(tensor)


# By dimension of [b, s, h, d]: a case whose elements lie so far apart along it. Rows may be 2^22
# elements apart: 1030 of them pass 2^32.
FAR = 2**31 + 72
LAYOUTS = {
    0: (Case("batch", 2, 33, 70, 2, 2, 64, causal=True), FAR),
    1: (Case("rows", 1, 1030, 1040, 1, 1, 32, causal=True), 2**22),
    2: (Case("heads", 1, 33, 70, 3, 3, 64, causal=True), FAR),
}


@pytest.mark.parametrize("dim", LAYOUTS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_far_apart_elements_give_the_same_gradients(dim: int, deterministic: bool) -> None:
    case, stride = LAYOUTS[dim]
    near = make_inputs(case)

    def gradients(place: int | None) -> list[Tensor]:
        def put(x: Tensor) -> Tensor:
            return x if place is None else spread(x, dim, place)

        q, k, v, out, dout = (put(x) for x in (near.q, near.k, near.v, near.out, near.dout))
        outputs = [put(torch.full_like(x, math.nan)) for x in (near.q, near.k, near.v)]
        lse = near.lse if place is None or dim == 1 else spread(near.lse, dim // 2, place)
        mha_sink.mha_bwd(
            dout, q, k, v, out, lse, 0.0, case.scale, True, -1, -1, deterministic,
            *outputs, sink=near.sink, d_sink=torch.zeros(case.nhead_q),
        )  # fmt: skip
        return outputs

    for name, far, expected in zip(OUTPUTS, gradients(stride), gradients(None), strict=True):
        if deterministic or name != "dq":
            assert torch.equal(far, expected), name
        else:
            # Atomics: the order of two workgroups' sums differs between the runs.
            torch.testing.assert_close(far, expected, rtol=2**-7, atol=1e-5)


def test_packed_rows_far_apart() -> None:
    case, stride = LAYOUTS[1]
    near = make_inputs(case)
    cu_q = torch.tensor([0, 1000, 1030], dtype=torch.int32)
    cu_k = torch.tensor([0, 700, 1040], dtype=torch.int32)

    def gradients(place: int | None) -> list[Tensor]:
        def put(x: Tensor) -> Tensor:
            return x[0] if place is None else spread(x[0], 0, place)

        q, k, v, out, dout = (put(x) for x in (near.q, near.k, near.v, near.out, near.dout))
        outputs = [put(torch.full_like(x, math.nan)) for x in (near.q, near.k, near.v)]
        mha_sink.mha_varlen_bwd(
            dout, q, k, v, out, near.lse[0], cu_q, cu_k, 1000, 700, 0.0, case.scale, False,
            True, -1, -1, True, *outputs,
        )  # fmt: skip
        return outputs

    for far, expected in zip(gradients(stride), gradients(None), strict=True):
        assert torch.equal(far, expected)
