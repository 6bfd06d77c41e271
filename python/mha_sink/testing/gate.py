"""The gate: how far from float64 a result may be, and what the comparison found.

With x64 the float64 value, and xr what `reference.mixed_bwd` gives in the dtype under test, a
tensor x passes when its NaN and inf lie where those of x64 lie, and::

    max|x - x64| <= 2 * max|xr - x64| + 2**-20 * max|x64|

When xr itself is off by more than a tenth of max|x64|, the dtype cannot resolve the tensor. That is
neither a pass nor a failure: a wrong sign would go unnoticed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

REFERENCE_ERRORS = 2.0
RELATIVE_FLOOR = 2.0**-20
RESOLVABLE = 0.1


class Status(enum.Enum):
    PASS = "pass"
    FAIL = "FAIL"
    UNRESOLVABLE = "unresolvable in this dtype"


@dataclass(frozen=True)
class TensorResult:
    """What the gate found for one tensor.

    Attributes:
        error: max|x - x64|.
        reference_error: max|xr - x64|.
        magnitude: max|x64|.
        allowed: the bound on `error`.
        reason: why the status is not PASS, else empty.
    """

    name: str
    status: Status
    error: float
    reference_error: float
    magnitude: float
    allowed: float
    reason: str = ""

    def __str__(self) -> str:
        line = (
            f"{self.name:<10} {self.status.value:<5} error {self.error:.3e} "
            f"(mixed {self.reference_error:.3e}, allowed {self.allowed:.3e}) "
            f"of max {self.magnitude:.3e}"
        )
        return f"{line}: {self.reason}" if self.reason else line


@dataclass(frozen=True)
class GateResult:
    """The gate over all tensors of a call. `passed` needs every tensor to pass."""

    tensors: tuple[TensorResult, ...]

    @property
    def passed(self) -> bool:
        return all(tensor.status is Status.PASS for tensor in self.tensors)

    @property
    def failures(self) -> list[str]:
        return [tensor.name for tensor in self.tensors if tensor.status is Status.FAIL]

    @property
    def unresolvable(self) -> list[str]:
        return [tensor.name for tensor in self.tensors if tensor.status is Status.UNRESOLVABLE]

    def __getitem__(self, name: str) -> TensorResult:
        return {tensor.name: tensor for tensor in self.tensors}[name]

    def __str__(self) -> str:
        return "\n".join(map(str, self.tensors))


def check_tensor(name: str, x: Tensor, x64: Tensor, xr: Tensor) -> TensorResult:
    """Measures `x` against the float64 value `x64`, with `xr` as the yardstick.

    Raises:
        ValueError: the shapes differ, or x64 is not float64.
    """
    if not (x.shape == x64.shape == xr.shape):
        raise ValueError(
            f"{name}: x, x64 and xr have shapes {list(x.shape)}, {list(x64.shape)} and "
            f"{list(xr.shape)}; need equal ones"
        )
    if x64.dtype != torch.float64:
        raise ValueError(f"{name}: x64 is {x64.dtype}; need torch.float64")
    wide, wide_r = x.double(), xr.double()
    finite = x64.isfinite()
    magnitude = _max(x64[finite])
    error = _max((wide - x64)[finite & wide.isfinite()])
    reference_error = _max((wide_r - x64)[finite & wide_r.isfinite()])
    allowed = REFERENCE_ERRORS * reference_error + RELATIVE_FLOOR * magnitude

    def result(status: Status, reason: str = "") -> TensorResult:
        return TensorResult(name, status, error, reference_error, magnitude, allowed, reason)

    if stray := _stray(wide, x64):
        return result(Status.FAIL, stray)
    if stray := _stray(wide_r, x64):
        return result(Status.UNRESOLVABLE, f"reference.mixed: {stray}")
    if reference_error > RESOLVABLE * magnitude:
        return result(
            Status.UNRESOLVABLE, f"reference.mixed is off by more than {RESOLVABLE} of the maximum"
        )
    if error > allowed:
        return result(Status.FAIL, f"{error / allowed if allowed else torch.inf:.2f} x allowed")
    return result(Status.PASS)


def check(
    x: Mapping[str, Tensor], x64: Mapping[str, Tensor], xr: Mapping[str, Tensor]
) -> GateResult:
    """`check_tensor` over every tensor of `x64`.

    Raises:
        ValueError: `x` or `xr` lacks a tensor of `x64` or has another one.
    """
    if not (x.keys() == x64.keys() == xr.keys()):
        raise ValueError(
            f"x has {sorted(x)}, x64 {sorted(x64)} and xr {sorted(xr)}; need the same tensors"
        )
    return GateResult(tuple(check_tensor(name, x[name], x64[name], xr[name]) for name in x64))


def _max(x: Tensor) -> float:
    return x.abs().max().item() if x.numel() else 0.0


def _stray(x: Tensor, x64: Tensor) -> str:
    """Names the first element whose NaN or inf does not lie where x64's does; empty if none."""
    special = ~x64.isfinite() | ~x.isfinite()
    same = (x == x64) | (x.isnan() & x64.isnan())
    stray = (special & ~same).nonzero()
    if not len(stray):
        return ""
    index = tuple(stray[0].tolist())
    return (
        f"{len(stray)} of {x.numel()} elements differ in NaN or inf, first {list(index)}: "
        f"{x[index].item()} where float64 gives {x64[index].item():.3e}"
    )
