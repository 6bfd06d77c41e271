"""Each launch of `mha_bwd` on a device beside the emulator: how far apart they may be, and are.

Both sides of a launch start from the same bytes, so a difference belongs to its kernel. Most of it
must agree to the bit: fp32 additions, multiplications and fused multiply-adds in a fixed order are
IEEE 754 on both sides, as are conversions. What may differ:

* `v_exp_f32` is within an ulp of the true value, here and there: `EXP`.
* How an MFMA sums its products is not public for gfx950. Its adder may truncate: `SUM` a term, four
  times fp32's unit roundoff.
* P and dS are rounded to 16 bits, so the above may turn one into its neighbour: `Rounding.ulp`.
* dq is summed by atomics, in any order: `SUM` a term.

`bounds` carries these through the formulas in float64, element by element and term by term, so that
no honest difference exceeds them. They are worst cases: a real device stays far below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mha_sink import _C, _tensors
from mha_sink.reference import visible_keys
from mha_sink.testing.check import expected
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.inputs import Inputs

EXP = 2.0**-22
SUM = 2.0**-22
FP32 = 2.0**-23

AXES = {
    "sequence": ("batch", "position", "head", "dim"),
    "row": ("batch", "head", "query"),
    "dq_acc": ("batch", "head", "query", "dim"),
    "partial": ("batch", "head", "tile"),
    "sink": ("batch", "head"),
    "head": ("head",),
    "byte": ("byte",),
}


class Rounding(NamedTuple):
    """A 16-bit dtype: the largest distance to a neighbour, relative and near zero."""

    ulp: float
    least: float


ROUNDING = {"bfloat16": Rounding(2.0**-7, 2.0**-126), "float16": Rounding(2.0**-10, 2.0**-24)}


@dataclass(frozen=True)
class Difference:
    """The first element of a buffer that is further apart than allowed.

    Attributes:
        element: its index by axis, in words.
        tile: the tile that computed it, in words; empty where a buffer has none.
    """

    element: str
    tile: str
    device: float
    emulated: float
    allowed: float

    def __str__(self) -> str:
        where = f"{self.element} of {self.tile}" if self.tile else self.element
        return (
            f"[{where}] is {self.device:.9g} on the device and {self.emulated:.9g} in the "
            f"emulator, allowed distance {self.allowed:.3g}"
        )


@dataclass(frozen=True)
class BufferResult:
    """One buffer after a launch.

    Attributes:
        rule: "bits", or "bound" where the module's docstring allows a difference.
        differing: elements whose bits differ.
        over: elements further apart than allowed.
        error: largest distance; share: the largest as a part of what was allowed there.
    """

    name: str
    rule: str
    elements: int
    differing: int
    over: int
    error: float
    share: float
    first: Difference | None


@dataclass(frozen=True)
class LaunchResult:
    """A launch and its buffers. Passed when no element is further apart than allowed."""

    kernel: str
    workgroups: tuple[int, int, int]
    buffers: tuple[BufferResult, ...]

    @property
    def passed(self) -> bool:
        return not any(buffer.over for buffer in self.buffers)

    def __str__(self) -> str:
        for buffer in self.buffers:
            if buffer.first is not None:
                return f"{self.kernel}: {buffer.name} {buffer.first}"
        return f"{self.kernel}: no difference"


def compare_launches(
    inputs: Inputs,
    device: str,
    starting: Callable[[str], object],
    finished: Callable[[LaunchResult], object],
) -> GateResult:
    """Runs a case on a device, every launch beside the emulator.

    Args:
        inputs: contiguous CPU tensors.
        device: "cpu" or "cuda:N".
        starting: called with each kernel's name before the device gets it.
        finished: called with each launch's result.

    Returns:
        The gate over what the device computed.
    """
    call, kept = _call(inputs)
    buffers = _Buffers(inputs, kept)

    def compared(
        kernel: str,
        workgroups: tuple[int, int, int],
        launched: list[tuple[str, bool, bytes, bytes]],
    ) -> None:
        allowed = bounds(kernel, inputs, kept["sink"])
        checked = tuple(
            buffers.compare(kernel, name, on_device, emulated, allowed.get(name))
            for name, _, on_device, emulated in launched
        )
        finished(LaunchResult(kernel, workgroups, checked))

    _C.compare_mha_bwd(call, device, starting, compared)
    against = expected(inputs)
    written = {name: buffers.last[name] for name in against.x64}
    return check(written, against.x64, against.xr)


def bounds(kernel: str, inputs: Inputs, sink: Tensor) -> dict[str, Tensor]:
    """By buffer: how far apart each element may be, float64, in the buffer's shape."""
    if kernel.startswith("mha_dot_do_o"):
        return {"workspace d_sink_partial": _partial_bound(inputs, sink)}
    if kernel.startswith("mha_dq_dk_dv"):
        return _dq_dk_dv_bounds(inputs)
    return {}


def _partial_bound(inputs: Inputs, sink: Tensor) -> Tensor:
    """[batch, nhead_q, tiles]: exp of equal arguments, then a sum of a tile's rows."""
    rows, _ = _C.tile_sizes(inputs.case.hdim)
    delta = (inputs.dout.double() * inputs.out.double()).sum(-1).transpose(1, 2)
    probability = torch.exp(sink.double()[..., None] - inputs.lse.double())
    terms = (probability.masked_fill(inputs.lse.isinf(), 0.0) * delta).abs()
    tiles = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % rows))
    sums = tiles.reshape(*terms.shape[:2], -1, rows).sum(-1)
    # delta here is float64; the kernels' is off by a few roundings of its terms.
    return sums * (1.01 * (EXP + 2 * rows * FP32))


def _dq_dk_dv_bounds(inputs: Inputs) -> dict[str, Tensor]:
    case, half = inputs.case, ROUNDING[inputs.case.dtype]
    group = case.nhead_q // case.nhead_k

    def heads_first(x: Tensor, repeat: int = 1) -> Tensor:
        return x.double().transpose(1, 2).repeat_interleave(repeat, 1)

    q, dout = heads_first(inputs.q), heads_first(inputs.dout)
    k, v = heads_first(inputs.k, group), heads_first(inputs.v, group)
    seen = visible_keys(case.seqlen_q, case.seqlen_k, case.causal, case.window)
    lse = inputs.lse.double().unsqueeze(-1)
    delta = (dout * heads_first(inputs.out)).sum(-1, keepdim=True)

    def product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of a times rows of b, and how far apart two sums of its terms may be."""
        return a @ b.mT, 2 * (a.shape[-1] + 4) * SUM * (a.abs() @ b.abs().mT)

    s, s_error = product(q, k)
    s, s_error = s * case.scale, s_error * case.scale
    p = torch.exp(s - lse).masked_fill(~seen | lse.isinf(), 0.0)
    p_relative = s_error + FP32 * (s.abs() + lse.masked_fill(lse.isinf(), 0.0).abs()) * 2 + EXP
    p_error = p * (p_relative + half.ulp) + half.least * seen
    dp, dp_error = product(dout, v)
    ds = p * (dp - delta)
    ds_error = p * dp_error + (p_relative + 2 * FP32) * ds.abs()
    ds_error += p * FP32 * (dp.abs() + delta.abs()) + half.ulp * ds.abs() + half.least * seen

    def summed(error: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Of sum x y over queries or keys, x being off by `error`."""
        return error @ y.abs() + 2 * (x.shape[-1] + 4) * SUM * ((x.abs() + error) @ y.abs())

    def of_keys(error: Tensor, x: Tensor, y: Tensor, scale: float) -> Tensor:
        heads = (case.batch, case.nhead_k, group, case.seqlen_k, -1)
        total = scale * summed(error.mT, x.mT, y).reshape(heads).sum(2)
        value = scale * (x.mT @ y).reshape(heads).sum(2)
        bound = total * (1 + half.ulp) + half.ulp * value.abs() + half.least
        return bound.transpose(1, 2)

    rows, _ = _C.tile_sizes(case.hdim)
    dq_acc = torch.nn.functional.pad(summed(ds_error, ds, k), (0, 0, 0, -case.seqlen_q % rows))
    return {
        "workspace dq_acc": dq_acc,
        "dk": of_keys(ds_error, ds, q, case.scale),
        "dv": of_keys(p_error, p, dout, 1.0),
    }


def _call(inputs: Inputs) -> tuple[_C.MhaBwdCall, dict[str, Tensor]]:
    """The call with outputs of NaN, and the tensors that it refers to."""
    case = inputs.case
    if inputs.sink is None:
        raise ValueError(f"case {case} has no sink; its gradient is compared too")
    tensors = {
        "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out, "dout": inputs.dout,
        "softmax_lse": inputs.lse, "sink": inputs.sink, "d_sink": torch.zeros(case.nhead_q),
        "softmax_d": torch.full_like(inputs.lse, math.nan),
        **{f"d{x}": torch.full_like(getattr(inputs, x), math.nan) for x in "qkv"},
    }  # fmt: skip
    call = _C.MhaBwdCall()
    for name, tensor in tensors.items():
        setattr(call, name, _tensors.describe("compare_launches", name, tensor))
    call.softmax_scale = case.scale
    call.is_causal = case.causal
    call.window_size_left, call.window_size_right = case.window
    return call, tensors


class _Buffers:
    """Shapes and meanings of the bytes of a call's launches; `last` is what the device wrote."""

    def __init__(self, inputs: Inputs, tensors: dict[str, Tensor]) -> None:
        case = inputs.case
        self.last: dict[str, Tensor] = {}
        self._rows, self._keys = _C.tile_sizes(max(inputs.q.shape[-1], inputs.v.shape[-1]))
        padded = -(-case.seqlen_q // self._rows) * self._rows
        rows = (case.batch, case.nhead_q, padded)
        fp32 = torch.float32
        self._known: dict[str, tuple[torch.dtype, tuple[int, ...], str]] = {
            "workspace row_lse": (fp32, rows, "row"),
            "workspace row_delta": (fp32, rows, "row"),
            "workspace dq_acc": (fp32, (*rows, case.hdim), "dq_acc"),
            "workspace d_sink_partial": (fp32, (*rows[:2], padded // self._rows), "partial"),
            "memory": (torch.uint8, (-1,), "byte"),
        }
        axes = {"softmax_lse": "row", "softmax_d": "row", "sink": "sink", "d_sink": "head"}
        for name, x in tensors.items():
            self._known[name] = (x.dtype, tuple(x.shape), axes.get(name, "sequence"))

    def compare(
        self, kernel: str, name: str, on_device: bytes, emulated: bytes, allowed: Tensor | None
    ) -> BufferResult:
        dtype, shape, axes = self._known[name]
        x, y = (
            torch.frombuffer(bytearray(content), dtype=dtype).view(shape)
            for content in (on_device, emulated)
        )
        self.last[name] = x
        differs = _bits(x) != _bits(y)
        error = (x.double() - y.double()).abs()
        limit = torch.zeros_like(error) if allowed is None else allowed
        # A difference to NaN or inf is none of size, unless both are the same.
        error = error.masked_fill(error.isnan() & differs, math.inf).nan_to_num(0.0, math.inf)
        over = differs & (error > limit) if allowed is not None else differs
        share = torch.where(error > 0, error / limit, 0.0)
        first = None
        if over.any():
            at = tuple(over.nonzero()[0].tolist())
            first = Difference(
                ", ".join(f"{axis} {i}" for axis, i in zip(AXES[axes], at, strict=True)),
                self._tile(kernel, name, AXES[axes], at),
                float(x[at]), float(y[at]), float(limit[at]),
            )  # fmt: skip
        return BufferResult(
            name=name,
            rule="bits" if allowed is None else "bound",
            elements=x.numel(),
            differing=int(differs.sum()),
            over=int(over.sum()),
            error=_largest(error),
            share=0.0 if allowed is None else _largest(share),
            first=first,
        )

    def _tile(self, kernel: str, name: str, axes: tuple[str, ...], at: tuple[int, ...]) -> str:
        index = dict(zip(axes, at, strict=True))
        if "tile" in index:
            return self._range("queries", index["tile"], self._rows)
        if name in ("k", "v", "dk", "dv"):
            return self._range("keys", index["position"] // self._keys, self._keys)
        position = index.get("query", index.get("position"))
        if position is None or kernel == "memset":
            return ""
        return self._range("queries", position // self._rows, self._rows)

    @staticmethod
    def _range(what: str, tile: int, size: int) -> str:
        return f"tile {tile} ({what} {tile * size} to {(tile + 1) * size - 1})"


def _bits(x: Tensor) -> Tensor:
    return x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def _largest(x: Tensor) -> float:
    return x.max().item() if x.numel() else 0.0


def as_json(results: list[LaunchResult]) -> Iterator[dict[str, Any]]:
    """The launches as JSON values; what is infinite as text, which JSON cannot say otherwise."""
    for result in results:
        yield {
            "kernel": result.kernel,
            "workgroups": list(result.workgroups),
            "passed": result.passed,
            "buffers": [
                {
                    **{key: _finite(value) for key, value in vars(buffer).items()},
                    "first": None if buffer.first is None else str(buffer.first),
                }
                for buffer in result.buffers
            ],
        }


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
