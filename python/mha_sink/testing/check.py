"""Runs `mha_bwd` on a case between guard bands and puts what it wrote through the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mha_sink
from mha_sink import _tensors, reference
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.inputs import LAYOUTS, POISON, GuardedTensor, Inputs

MhaBwd = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Expected:
    """What the gate compares with: float64, and `reference.mixed`."""

    x64: dict[str, Tensor]
    xr: dict[str, Tensor]


def expected(inputs: Inputs) -> Expected:
    """dq, dk, dv, softmax_d and, with a sink, d_sink [nhead_q] of both references."""
    q, k, v, sink, dout = inputs.q, inputs.k, inputs.v, inputs.sink, inputs.dout
    x64 = reference.definition_bwd(dout, q, k, v, sink, **inputs.case.mask)
    xr = reference.mixed_bwd(dout, q, k, v, inputs.out, inputs.lse, sink, **inputs.case.mask)
    return Expected(_named(x64), _named(xr))


def _named(gradients: reference.Gradients) -> dict[str, Tensor]:
    named = {name: x for name, x in gradients._asdict().items() if x is not None}
    if "d_sink" in named:
        named["d_sink"] = named["d_sink"].sum(0)
    return named


@contextmanager
def poisoned_workspace() -> Iterator[None]:
    """Within it, every workspace is filled with NaN before the kernels see it."""
    before = _tensors.workspace_fill
    _tensors.workspace_fill = lambda block: block.fill_(POISON)
    try:
        yield
    finally:
        _tensors.workspace_fill = before


def run_guarded(
    inputs: Inputs,
    layouts: Mapping[str, str] | None = None,
    d_sink_start: float = 0.0,
    mha_bwd: MhaBwd | None = None,
) -> dict[str, Tensor]:
    """One call of `mha_bwd` with poisoned outputs and workspace and guard bands on every buffer.

    Args:
        inputs: what is computed.
        layouts: tensor name to a name in `inputs.LAYOUTS`; others are contiguous BSHD.
        d_sink_start: what d_sink holds before the call.
        mha_bwd: what is run, `mha_sink.mha_bwd` by default.

    Returns:
        dq, dk, dv, softmax_d and, with a sink, d_sink less `d_sink_start`.

    Raises:
        AssertionError: a byte outside an output, or an input, was written, or a supplied output
            was not the one returned.
    """
    layouts = dict(layouts or {})
    case = inputs.case
    given = {"dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out}
    buffers = {
        name: GuardedTensor.of(name, x, LAYOUTS[layouts.pop(name, "bshd")](*x.shape))
        for name, x in given.items()
    }
    for name, like in {"dq": inputs.q, "dk": inputs.k, "dv": inputs.v}.items():
        strides = LAYOUTS[layouts.pop(name, "bshd")](*like.shape)
        buffers[name] = GuardedTensor(name, like.shape, strides, like.dtype)
    buffers["softmax_lse"] = GuardedTensor.of("softmax_lse", inputs.lse)
    if inputs.sink is not None:
        buffers["sink"] = GuardedTensor.of("sink", inputs.sink)
        start = torch.full((case.nhead_q,), d_sink_start, dtype=torch.float32)
        buffers["d_sink"] = GuardedTensor.of("d_sink", start)
    if layouts:
        raise ValueError(f"no tensor is called {', '.join(layouts)}")

    before = {name: buffers[name].view.clone() for name in (*given, "softmax_lse")}
    views: dict[str, Any] = {name: buffer.view for name, buffer in buffers.items()}
    with poisoned_workspace():
        dq, dk, dv, softmax_d = (mha_bwd or mha_sink.mha_bwd)(
            dropout_p=0.0,
            softmax_scale=case.scale,
            is_causal=case.causal,
            window_size_left=case.window[0],
            window_size_right=case.window[1],
            deterministic=False,
            **views,
        )
    for buffer in buffers.values():
        buffer.check()
    for name, x in before.items():
        assert torch.equal(_bits(views[name]), _bits(x)), f"the call changed its input {name}"
    written = {"dq": dq, "dk": dk, "dv": dv}
    for name, x in written.items():
        assert x is views[name], f"{name} was given but another tensor came back"
    written["softmax_d"] = softmax_d
    if inputs.sink is not None:
        written["d_sink"] = views["d_sink"] - d_sink_start
    return written


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def check_mha_bwd(
    inputs: Inputs,
    layouts: Mapping[str, str] | None = None,
    against: Expected | None = None,
) -> GateResult:
    """`run_guarded`, through the gate.

    Args:
        inputs: what is computed.
        layouts: as of `run_guarded`.
        against: `expected(inputs)`, when the caller has it already.
    """
    against = against or expected(inputs)
    return check(run_guarded(inputs, layouts), against.x64, against.xr)
