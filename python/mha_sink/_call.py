"""One call of the compiled backward: conversions, checks, allocations, the launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from mha_sink import _C, _devices, _tensors

HEAD_DIM_STEP = 8
SINK_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# Tensors that end in the head dim of q and k, and those that end in that of v.
OF_QK = ("q", "k", "dq", "dk")
OF_V = ("v", "out", "dout", "dv")
OUTPUTS = ("dq", "dk", "dv")

# By the names of `_C.MhaBwdCall`.
Tensors = Mapping[str, Tensor | None]


class Scalars(TypedDict, total=False):
    """The other attributes of `_C.MhaBwdCall`."""

    dropout_p: float
    softmax_scale: float
    is_causal: bool
    window_size_left: int
    window_size_right: int
    deterministic: bool
    max_seqlen_q: int
    max_seqlen_k: int


class Written(NamedTuple):
    dq: Tensor
    dk: Tensor
    dv: Tensor
    softmax_d: Tensor


def backward(function: str, tensors: Tensors, scalars: Scalars) -> Written:
    """Runs the backward on tensors of any head dim up to 256 and a sink of any float dtype.

    Args:
        function: the public function, for messages about its arguments.
        tensors: outputs that are None are allocated like their inputs; `d_sink` is added to.
        scalars: those that are missing keep the values of a new `_C.MhaBwdCall`.

    Raises:
        TypeError, mha_sink.InvalidArgument, mha_sink.Unsupported: before anything is written.
        mha_sink.Error: a kernel could not be loaded or launched.
    """
    for name, tensor in tensors.items():
        if tensor is not None:
            _tensors.describe(function, name, tensor)
    tensors = {**tensors, "sink": _sink(tensors)}
    hdims = _hdims(tensors)
    if hdims is None or all(hdim % HEAD_DIM_STEP == 0 for hdim in hdims):
        return _run(function, tensors, scalars)
    with _mention_padding(hdims):
        return _run_padded(function, tensors, scalars, hdims)


def _run(function: str, tensors: Tensors, scalars: Scalars) -> Written:
    call = _check(function, tensors, scalars)
    q, softmax_lse = _given(tensors, "q"), _given(tensors, "softmax_lse")
    outputs = {name: _output(tensors, name) for name in OUTPUTS}
    softmax_d = torch.empty(softmax_lse.shape, dtype=torch.float32, device=q.device)
    written = Written(**outputs, softmax_d=softmax_d)
    for name, tensor in written._asdict().items():
        setattr(call, name, _tensors.describe(function, name, tensor))
    if q.device.type == "cpu":
        _C.set_thread_count(torch.get_num_threads())
    with _devices.explained(q.device):
        _C.mha_bwd(call, _tensors.Workspace(q.device), _tensors.current_stream(q.device))
    _tensors.mark_written(*outputs.values(), tensors.get("d_sink"))
    return written


def _check(function: str, tensors: Tensors, scalars: Scalars) -> _C.MhaBwdCall:
    """The checked call, without the outputs that are yet to be allocated."""
    call = _C.MhaBwdCall()
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(call, name, _tensors.describe(function, name, tensor))
    for name, value in scalars.items():
        setattr(call, name, value)
    _C.check_mha_bwd(call)
    return call


def _run_padded(
    function: str, tensors: Tensors, scalars: Scalars, hdims: tuple[int, int]
) -> Written:
    """Zeros in further columns of q and k leave the scores as they are, in v, out and dout the row
    sums; the further columns of the gradients are zero and dropped."""
    if any(tensors.get(name) is not None for name in OUTPUTS):
        if min(hdims) < HEAD_DIM_STEP:
            raise _C.Unsupported(
                "dq, dk, dv: outputs of a head dim below 8 are not supported; supported: None"
            )
        # What is given is written in the end only: without its last columns, it is checked now.
        _check(function, {name: _narrowed(name, x) for name, x in tensors.items()}, scalars)
    padded = {name: None if name in OUTPUTS else _padded(name, x) for name, x in tensors.items()}
    written = _run(function, padded, scalars)
    outputs = {name: _output(tensors, name) for name in OUTPUTS}
    for name, output in outputs.items():
        output.detach().copy_(getattr(written, name)[..., : output.shape[-1]])
    return Written(**outputs, softmax_d=written.softmax_d)


def _hdims(tensors: Tensors) -> tuple[int, int] | None:
    """Head dim of q and of v; None where tensors disagree, which the checks refuse."""
    hdims = []
    for names in (OF_QK, OF_V):
        given = [x for x in map(tensors.get, names) if x is not None]
        found = {x.shape[-1] if x.dim() else 0 for x in given}
        if len(found) != 1 or 0 in found:
            return None
        hdims.append(found.pop())
    return hdims[0], hdims[1]


def _padded(name: str, tensor: Tensor | None) -> Tensor | None:
    if tensor is None or name not in (*OF_QK, *OF_V):
        return tensor
    return torch.nn.functional.pad(tensor.detach(), (0, -tensor.shape[-1] % HEAD_DIM_STEP))


def _narrowed(name: str, tensor: Tensor | None) -> Tensor | None:
    if tensor is None or name not in (*OF_QK, *OF_V):
        return tensor
    return tensor.detach()[..., : tensor.shape[-1] // HEAD_DIM_STEP * HEAD_DIM_STEP]


@contextmanager
def _mention_padding(hdims: tuple[int, int]) -> Iterator[None]:
    """Messages name the shapes of what the kernels would have got."""
    try:
        yield
    except (_C.InvalidArgument, _C.Unsupported) as error:
        raise type(error)(
            f"{error} (head dims {hdims[0]} of q and {hdims[1]} of v are padded to multiples of "
            f"{HEAD_DIM_STEP})"
        ) from error


def _sink(tensors: Tensors) -> Tensor | None:
    """The sink as the kernels take it, [b, hq], float32, contiguous; from [hq] or [b, hq], of any
    float dtype."""
    sink, q, cu_seqlens_q = tensors.get("sink"), tensors.get("q"), tensors.get("cu_seqlens_q")
    if sink is None or q is None or q.dim() != (4 if cu_seqlens_q is None else 3):
        return sink
    batch = q.shape[0] if cu_seqlens_q is None else max(cu_seqlens_q.numel() - 1, 0)
    nhead_q = q.shape[-2]
    if sink.dtype not in SINK_DTYPES:
        name = str(sink.dtype).removeprefix("torch.")
        raise _C.InvalidArgument(
            f"sink: dtype {name} given, float16, bfloat16, float32 or float64 needed"
        )
    if sink.shape not in ((nhead_q,), (batch, nhead_q)):
        raise _C.InvalidArgument(
            f"sink: shape {list(sink.shape)} given, [hq] = [{nhead_q}] or [b, hq] = "
            f"[{batch}, {nhead_q}] needed"
        )
    return sink.detach().float().expand(batch, nhead_q).contiguous()


def _output(tensors: Tensors, name: str) -> Tensor:
    """The output that was given, else a new one like its input."""
    given = tensors.get(name)
    return _tensors.empty_like(_given(tensors, name[1:])) if given is None else given


def _given(tensors: Tensors, name: str) -> Tensor:
    """A tensor that the checks have found to be there."""
    tensor = tensors[name]
    assert tensor is not None
    return tensor
