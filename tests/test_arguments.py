"""What the Python layer makes of its arguments: sinks of any form, head dims that no kernel has."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch

import mha_sink
from mha_sink.testing import Case, check, expected, make_inputs, run_guarded

SHAPE = Case("arguments", 2, 17, 33, 4, 2, 64, causal=True)
SINK_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def arguments(inputs):
    return {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "dropout_p": 0.0, "softmax_scale": inputs.case.scale,
        "is_causal": inputs.case.causal, "window_size_left": -1, "window_size_right": -1,
        "deterministic": False,
    }  # fmt: skip


def d_sink_of(inputs, sink):
    d_sink = torch.zeros(inputs.case.nhead_q)
    mha_sink.mha_bwd(**arguments(inputs), sink=sink, d_sink=d_sink)
    return d_sink


@pytest.mark.parametrize("dtype", SINK_DTYPES)
@pytest.mark.parametrize("per_batch", [False, True])
def test_a_sink_of_any_shape_and_dtype_is_its_float32_value(dtype, per_batch):
    inputs = make_inputs(SHAPE)
    sink = (inputs.sink if per_batch else inputs.sink[0]).to(dtype)
    as_float = sink.float().expand(2, 4).contiguous()
    assert torch.equal(d_sink_of(inputs, sink), d_sink_of(inputs, as_float))


def test_a_sink_of_any_strides():
    inputs = make_inputs(SHAPE)
    straight = d_sink_of(inputs, inputs.sink)
    transposed = inputs.sink.T.contiguous().T
    assert not transposed.is_contiguous()
    assert torch.equal(d_sink_of(inputs, transposed), straight)
    expanded = inputs.sink[:1].expand(2, 4)
    assert torch.equal(d_sink_of(inputs, expanded), d_sink_of(inputs, inputs.sink[0]))


def test_a_sink_that_is_a_parameter():
    inputs = make_inputs(SHAPE)
    parameter = torch.nn.Parameter(inputs.sink[0].clone())
    assert torch.equal(d_sink_of(inputs, parameter), d_sink_of(inputs, inputs.sink[0]))
    assert parameter.grad is None


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), "sink: dtype int64 given, float16, bfloat16, float32"),
        (torch.zeros(3), "sink: shape [3] given, [hq] = [4] or [b, hq] = [2, 4] needed"),
        (torch.zeros(1, 4), "sink: shape [1, 4] given, [hq] = [4] or [b, hq] = [2, 4] needed"),
        (torch.zeros(2, 4, 1), "sink: shape [2, 4, 1] given, [hq] = [4]"),
        (torch.zeros(()), "sink: shape [] given, [hq] = [4]"),
    ],
)
def test_what_is_no_sink(sink, message):
    with pytest.raises(mha_sink.InvalidArgument, match=f"^{re.escape(message)}"):
        d_sink_of(make_inputs(SHAPE), sink)


HDIMS = [(59, 59), (111, 111), (64, 36), (5, 3), (201, 128), (1, 64)]


@pytest.mark.parametrize(("hdim", "hdim_v"), HDIMS)
def test_head_dims_that_are_no_multiple_of_8(hdim, hdim_v):
    inputs = make_inputs(dataclasses.replace(SHAPE, hdim=hdim, hdim_v=hdim_v))
    d_sink = torch.zeros(4)
    results = mha_sink.mha_bwd(**arguments(inputs), sink=inputs.sink, d_sink=d_sink)
    for x, like in zip(results, (inputs.q, inputs.k, inputs.v, inputs.lse), strict=True):
        assert (x.shape, x.dtype) == (like.shape, like.dtype)
    written = dict(zip(("dq", "dk", "dv", "softmax_d"), results, strict=True))
    against = expected(inputs)
    result = check({**written, "d_sink": d_sink}, against.x64, against.xr)
    assert result.passed, str(result)


@pytest.mark.parametrize(("hdim", "hdim_v"), [(59, 111), (64, 36)])
@pytest.mark.parametrize("layout", ["bshd", "sliced", "odd"])
def test_given_outputs_of_such_head_dims_are_written(hdim, hdim_v, layout):
    inputs = make_inputs(dataclasses.replace(SHAPE, hdim=hdim, hdim_v=hdim_v))
    layouts = dict.fromkeys(("q", "v", "dout", "dq", "dk", "dv"), layout)
    against = expected(inputs)
    result = check(run_guarded(inputs, layouts, d_sink_start=0.5), against.x64, against.xr)
    assert not result.failures, str(result)


def odd(**changes):
    inputs = make_inputs(dataclasses.replace(SHAPE, hdim=59, hdim_v=20))
    return {**arguments(inputs), **changes}


ODD_REFUSALS = {
    "k of the head dim that q is padded to": (
        {"k": torch.zeros(2, 33, 2, 64, dtype=torch.bfloat16)}, "k: ", "[2, 33, 2, 59]"),
    "out of another head dim": (
        {"out": torch.zeros(2, 17, 4, 21, dtype=torch.bfloat16)}, "out: ", "[2, 17, 4, 20]"),
    "dq of the padded head dim": (
        {"dq": torch.zeros(2, 17, 4, 64, dtype=torch.bfloat16)}, "dq: ", "[2, 17, 4, 59]"),
    "dk dtype": ({"dk": torch.zeros(2, 33, 2, 59)}, "dk: dtype float32", "59 of q and 20 of v"),
    "dv that shares elements": (
        {"dv": torch.zeros(2, 1, 2, 20, dtype=torch.bfloat16).expand(2, 33, 2, 20)},
        "dv: ", "share"),
    "lse dtype": ({"softmax_lse": torch.zeros(2, 4, 17).double()}, "softmax_lse: dtype", "59 of q"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_REFUSALS)
def test_refusals_at_such_head_dims(name):
    changes, start, part = ODD_REFUSALS[name]
    before = {key: x.clone() for key, x in changes.items()}
    with pytest.raises(mha_sink.InvalidArgument) as caught:
        mha_sink.mha_bwd(**odd(**changes))
    assert str(caught.value).startswith(start)
    assert part in str(caught.value)
    assert all(torch.equal(changes[key], x) for key, x in before.items())


def test_given_outputs_of_a_head_dim_below_8():
    inputs = make_inputs(dataclasses.replace(SHAPE, hdim=4))
    with pytest.raises(mha_sink.Unsupported, match=r"head dim below 8.*supported: None"):
        mha_sink.mha_bwd(**arguments(inputs), dq=torch.empty_like(inputs.q))


def test_head_dims_beyond_256():
    inputs = make_inputs(dataclasses.replace(SHAPE, hdim=257))
    with pytest.raises(mha_sink.Unsupported, match=r"264.*257 of q and 257 of v are padded"):
        mha_sink.mha_bwd(**arguments(inputs))


def test_outputs_of_such_head_dims_are_seen_by_autograd():
    inputs = make_inputs(dataclasses.replace(SHAPE, hdim=59))
    dq = torch.full_like(inputs.q, math.nan)
    version = dq._version
    assert mha_sink.mha_bwd(**arguments(inputs), dq=dq)[0] is dq
    assert dq._version > version
    assert not dq.isnan().any()
