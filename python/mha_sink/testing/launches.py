"""Each launch of the backward on a device beside the emulator: how far apart they are.

What may differ, and how far, is worked out in `mha_sink.testing.bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mha_sink import _C, _tensors
from mha_sink.reference import Packing
from mha_sink.testing.bounds import bounds, packed_tiles
from mha_sink.testing.check import expected
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.inputs import Inputs

AXES = {
    "sequence": ("batch", "position", "head", "dim"),
    "row": ("batch", "head", "query"),
    "dq_acc": ("batch", "head", "query", "dim"),
    "partial": ("batch", "head", "tile"),
    "sink": ("batch", "head"),
    "head": ("head",),
    "byte": ("byte",),
    "packed sequence": ("position", "head", "dim"),
    "packed row": ("head", "position"),
    "packed padded row": ("head", "padded position"),
    "packed dq_acc": ("head", "position", "dim"),
    "packed partial": ("head", "tile number"),
    "sequences": ("sequence", "field"),
    "list": ("entry",),
}


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
        rule: "bits", or "bound" where `bounds` allows a difference.
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
    deterministic: bool = False,
) -> GateResult:
    """Runs a dense or packed case on a device, every launch beside the emulator.

    Args:
        inputs: contiguous CPU tensors.
        device: "cpu" or "cuda:N".
        starting: called with each kernel's name before the device gets it.
        finished: called with each launch's result.
        deterministic: dq by the kernel without atomics.

    Returns:
        The gate over what the device computed.
    """
    call, kept = _call(inputs, deterministic)
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


def _call(inputs: Inputs, deterministic: bool) -> tuple[_C.MhaBwdCall, dict[str, Tensor]]:
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
    if inputs.packing is not None:
        lengths = inputs.packing._asdict().items()
        tensors |= {name: x for name, x in lengths if x is not None}
    call = _C.MhaBwdCall()
    for name, tensor in tensors.items():
        setattr(call, name, _tensors.describe("compare_launches", name, tensor))
    call.softmax_scale = case.scale
    call.is_causal = case.causal
    call.window_size_left, call.window_size_right = case.window
    call.deterministic = deterministic
    if case.packed:
        call.max_seqlen_q, call.max_seqlen_k = max(case.seqlens_q), max(case.seqlens_k)
    return call, tensors


class _Buffers:
    """Shapes and meanings of the bytes of a call's launches; `last` is what the device wrote."""

    def __init__(self, inputs: Inputs, tensors: dict[str, Tensor]) -> None:
        case, fp32, int32 = inputs.case, torch.float32, torch.int32
        heads: tuple[int, ...]
        self.last: dict[str, Tensor] = {}
        self._packing = inputs.packing
        self._rows, self._keys = _C.tile_sizes(max(inputs.q.shape[-1], inputs.v.shape[-1]))
        kind, heads = "", (case.batch, case.nhead_q)
        tiles = -(-case.seqlen_q // self._rows)
        if case.packed:
            kind, heads = "packed ", heads[1:]
            tiles = packed_tiles(case.seqlen_q, case.batch)
        padded = (fp32, (*heads, tiles * self._rows), "packed padded row" if kind else "row")
        self._known: dict[str, tuple[torch.dtype, tuple[int, ...], str]] = {
            "workspace row_lse": padded,
            "workspace row_delta": padded,
            "workspace dq_acc": (fp32, (*heads, case.seqlen_q, case.hdim), f"{kind}dq_acc"),
            "workspace d_sink_partial": (fp32, (*heads, tiles), f"{kind}partial"),
            "workspace sequences": (int32, (case.batch, 4), "sequences"),
            "memory": (torch.uint8, (-1,), "byte"),
        }
        for name in ("tile_sequence", "row_tile_sequence", "dq_tile_sequence", "key_tile_sequence"):
            self._known[f"workspace {name}"] = (int32, (-1,), "list")
        axes = {"softmax_lse": f"{kind}row", "softmax_d": f"{kind}row"}
        axes |= {"sink": "sink", "d_sink": "head"}
        axes |= dict.fromkeys(Packing._fields, "list")
        for name, x in tensors.items():
            self._known[name] = (x.dtype, tuple(x.shape), axes.get(name, f"{kind}sequence"))

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
        if self._packing is not None:
            return self._sequence(self._packing, name, index.get("position"))
        if "tile" in index:
            return self._range("queries", index["tile"], self._rows)
        if name in ("k", "v", "dk", "dv"):
            return self._range("keys", index["position"] // self._keys, self._keys)
        position = index.get("query", index.get("position"))
        if position is None or kernel == "memset":
            return ""
        return self._range("queries", position // self._rows, self._rows)

    @staticmethod
    def _sequence(packing: Packing, name: str, position: int | None) -> str:
        for at in packing.sequences():
            rows = at.keys if name in ("k", "v", "dk", "dv") else at.queries
            if position is not None and rows.start <= position < rows.stop:
                return f"sequence {at.number} (rows {rows.start} to {rows.stop - 1})"
        return ""

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
