"""Runs a backward on a case between guard bands and puts what it wrote through the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mha_sink
from mha_sink import _tensors, reference
from mha_sink.reference import Packing
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.inputs import (
    POISON,
    GuardedTensor,
    Inputs,
    layout_strides,
    outside_sequences,
)

MhaBwd = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Expected:
    """What the gate compares with: float64, and `reference.mixed`."""

    x64: dict[str, Tensor]
    xr: dict[str, Tensor]


def expected(inputs: Inputs) -> Expected:
    """dq, dk, dv, softmax_d and, with a sink, d_sink [nhead_q] of both references."""
    dout, q, k, v, packing = inputs.dout, inputs.q, inputs.k, inputs.v, inputs.packing
    out, lse, sink, mask = inputs.out, inputs.lse, inputs.sink, inputs.case.mask
    if packing is None:
        x64 = reference.definition_bwd(dout, q, k, v, sink, **mask)
        xr = reference.mixed_bwd(dout, q, k, v, out, lse, sink, **mask)
    else:
        x64 = reference.packed_definition_bwd(dout, q, k, v, packing, sink, **mask)
        xr = reference.packed_mixed_bwd(dout, q, k, v, out, lse, packing, sink, **mask)
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
    deterministic: bool = False,
) -> dict[str, Tensor]:
    """One backward with poisoned outputs and workspace and guard bands on every buffer.

    Args:
        inputs: what is computed.
        layouts: tensor name to a name in `inputs.LAYOUTS`; others are contiguous BSHD.
        d_sink_start: what d_sink holds before the call.
        mha_bwd: what is run; by default `mha_sink.mha_bwd`, or `mha_sink.mha_varlen_bwd` when the
            inputs are packed.
        deterministic: passed on.

    Returns:
        dq, dk, dv, softmax_d and, with a sink, d_sink less `d_sink_start`.

    Raises:
        AssertionError: a byte outside an output, or an input, was written, a supplied output was
            not the one returned, or a row that belongs to no sequence is not 0.
    """
    layouts = dict(layouts or {})
    case = inputs.case
    given = {"dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out}
    buffers = {
        name: GuardedTensor.of(name, x, layout_strides(layouts.pop(name, "bshd"), x.shape))
        for name, x in given.items()
    }
    for name, like in {"dq": inputs.q, "dk": inputs.k, "dv": inputs.v}.items():
        strides = layout_strides(layouts.pop(name, "bshd"), like.shape)
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
    if inputs.packing is None:
        run, lengths = mha_bwd or mha_sink.mha_bwd, {}
    else:
        run, lengths = mha_bwd or mha_sink.mha_varlen_bwd, _lengths(inputs, inputs.packing)
    with poisoned_workspace():
        dq, dk, dv, softmax_d = run(
            dropout_p=0.0,
            softmax_scale=case.scale,
            is_causal=case.causal,
            window_size_left=case.window[0],
            window_size_right=case.window[1],
            deterministic=deterministic,
            **lengths,
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
    if inputs.packing is not None:
        no_query, no_key = outside_sequences(case, inputs.packing)
        outside = {"dq": no_query, "dk": no_key, "dv": no_key, "softmax_d": no_query}
        for name, rows in outside.items():
            x = written[name].T if name == "softmax_d" else written[name]
            assert (x[rows] == 0).all(), f"{name}: a row that belongs to no sequence is not 0"
    if inputs.sink is not None:
        written["d_sink"] = views["d_sink"] - d_sink_start
    return written


def _lengths(inputs: Inputs, packing: Packing) -> dict[str, Any]:
    """The arguments that `mha_varlen_bwd` has and `mha_bwd` has not."""
    return {
        **packing._asdict(),
        "max_seqlen_q": max(inputs.case.seqlens_q),
        "max_seqlen_k": max(inputs.case.seqlens_k),
        "zero_tensors": False,
    }


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def check_mha_bwd(
    inputs: Inputs,
    layouts: Mapping[str, str] | None = None,
    against: Expected | None = None,
    deterministic: bool = False,
) -> GateResult:
    """`run_guarded` on a dense or packed case, through the gate.

    Args:
        inputs: what is computed.
        layouts: as of `run_guarded`.
        against: `expected(inputs)`, when the caller has it already.
        deterministic: as of `run_guarded`.
    """
    against = against or expected(inputs)
    written = run_guarded(inputs, layouts, deterministic=deterministic)
    return check(written, against.x64, against.xr)
