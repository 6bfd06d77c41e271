"""Each launch of sparse MLA on a device beside the emulator.

Both sides of a launch start from the same bytes, so a difference belongs to its kernel. Plans are
integers and agree to the bit. What may differ in numbers is what `mha_sink.testing.launches` names:
exponentials by an ulp, sums of products by their rounding, and with them which neighbour a 16-bit
value is rounded to. How large that may be is bounded by row here, not by element: `SHARE` of the
largest value in a row of 512, of a block of P or dS, or of the buffer. It lies an order above what
rounding does, and far below what a wrong index, sign or wait does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mha_sink import _C, _tensors
from mha_sink.sparse import describe_into, prepare_bwd
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.launches import BufferResult, Difference, LaunchResult
from mha_sink.testing.sparse_mla import (
    HEAD_DIM,
    SparseInputs,
    expected_sparse_bwd,
    expected_sparse_fwd,
)

# Of the largest value of a row: four units in the last place of the dtype; of float32 sums, which
# may cancel, sixteen bits.
SHARE = {torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9, torch.float32: 2.0**-16}
BLOCK = 32 * 16  # slots and heads of P or dS in one operand of 64 lanes

HALVES = ("q", "kv", "do", "o", "dq", "dkv", "workspace p", "workspace ds")
# Integers of 16 bits, compared as the numbers that they are with the scale of their row, a power of
# two: 2^-14 of the largest is one unit.
INTERM, INTERM_SCALE, INTERM_SHARE = "workspace interm", "workspace interm_scale", 2.0**-12
FLOATS = (
    "lse", "dlse", "attn_sink", "d_sink", "workspace delta", "workspace dq_acc",
    "workspace dkv_acc", "workspace d_sink_partial", INTERM_SCALE,
)  # fmt: skip


def compare_sparse_launches(
    inputs: SparseInputs,
    device: str,
    starting: Callable[[str], object],
    finished: Callable[[LaunchResult], object],
) -> GateResult:
    """Runs forward and backward of a case on a device, every launch beside the emulator.

    Args:
        inputs: CPU tensors, with a sink.
        device: "cpu" or "cuda:N".
        starting: called with each kernel's name before the device gets it.
        finished: called with each launch's result.

    Returns:
        The gate over what the device computed.
    """
    last: dict[str, Tensor] = {}

    def compared(
        kernel: str,
        workgroups: tuple[int, int, int],
        launched: list[tuple[str, bool, bytes, bytes]],
    ) -> None:
        buffers = []
        scales = next((s[2:] for s in launched if s[0] == INTERM_SCALE), (b"", b""))
        for name, writable, *sides in launched:
            x, y = (
                interm_tensor(content, scale)
                if name == INTERM
                else as_tensor(name, content, inputs.q.dtype)
                for content, scale in zip(sides, scales, strict=True)
            )
            if writable:
                last[name] = x
            buffers.append(compare(name, x, y))
        finished(LaunchResult(kernel, workgroups, tuple(buffers)))

    forward = _C.SparseMlaFwdCall()
    o, lse = torch.empty_like(inputs.q), torch.empty_like(inputs.lse)
    given = {"q": inputs.q, "kv": inputs.kv, "topk_indices": inputs.topk_indices,
             "attn_sink": inputs.sink, "o": o, "lse": lse}  # fmt: skip
    describe_into("compare_sparse_launches", forward, given)
    forward.scale = inputs.case.scale
    _C.compare_sparse_mla(forward, device, starting, compared)

    backward, outputs = prepare_bwd(
        inputs.q, inputs.kv, inputs.do, inputs.o, inputs.lse, inputs.topk_indices, inputs.sink,
        inputs.case.scale, inputs.case.r_chunk,
    )  # fmt: skip
    _C.compare_sparse_mla(backward, device, starting, compared)
    _tensors.mark_written(o, lse, *outputs)

    fwd, bwd = expected_sparse_fwd(inputs), expected_sparse_bwd(inputs)
    x64, xr = {**fwd.x64, **bwd.x64}, {**fwd.xr, **bwd.xr}
    return check({name: last[name].view(x64[name].shape) for name in x64}, x64, xr)


def as_tensor(name: str, content: bytes, half: torch.dtype) -> Tensor:
    """The bytes of a buffer as numbers: rows of 512, blocks, or one row."""
    dtype = half if name in HALVES else torch.float32 if name in FLOATS else torch.int32
    x = torch.frombuffer(bytearray(content), dtype=dtype)
    if name in ("workspace p", "workspace ds"):
        return x.view(-1, BLOCK)
    return x.view(-1, HEAD_DIM) if x.numel() % HEAD_DIM == 0 else x.view(1, -1)


def interm_tensor(content: bytes, scale: bytes) -> Tensor:
    """What dkv_slots leaves, as numbers: [slots, 512]."""
    integers = torch.frombuffer(bytearray(content), dtype=torch.int16).view(-1, HEAD_DIM)
    return integers * torch.frombuffer(bytearray(scale), dtype=torch.float32)[:, None]


def compare(name: str, on_device: Tensor, emulated: Tensor) -> BufferResult:
    """What differs, row by row."""
    bits = {2: torch.int16, 4: torch.int32}[on_device.element_size()]
    differs = on_device.view(bits) != emulated.view(bits)
    exact = not on_device.is_floating_point()
    x, y = on_device.double(), emulated.double()
    error = (x - y).abs().masked_fill(~differs, 0.0).nan_to_num(math.inf, math.inf)
    limit = torch.zeros_like(error)
    if not exact:
        largest = y.abs().nan_to_num(0.0, 0.0).amax(-1, keepdim=True)
        share = INTERM_SHARE if name == INTERM else SHARE[on_device.dtype]
        limit = (largest * share).expand_as(error)
    over = differs & ((error > limit) | exact)
    first = None
    if over.any():
        row, column = over.nonzero()[0].tolist()
        first = Difference(
            f"row {row}, column {column}", "", float(x[row, column]), float(y[row, column]),
            float(limit[row, column]),
        )  # fmt: skip
    of_limit = torch.where(error > 0, error / limit, 0.0)
    return BufferResult(
        name=name,
        rule="bits" if exact else "bound",
        elements=x.numel(),
        differing=int(differs.sum()),
        over=int(over.sum()),
        error=error.max().item() if error.numel() else 0.0,
        share=0.0 if exact or not of_limit.numel() else of_limit.max().item(),
        first=first,
    )
