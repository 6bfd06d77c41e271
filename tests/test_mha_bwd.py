"""`mha_bwd`, run as gfx950 machine code, against float64."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import mha_sink
from mha_sink import reference
from mha_sink.testing import (
    CASES,
    LAYOUTS,
    Case,
    Inputs,
    Status,
    case,
    check,
    check_mha_bwd,
    check_tensor,
    expected,
    make_inputs,
    run_guarded,
)
from mha_sink.testing.cases import full_grid, pairwise_grid

TENSORS = ("dout", "q", "k", "v", "out", "dq", "dk", "dv")


def call(inputs: Inputs, **changes):
    """`mha_bwd` on the inputs; `changes` replace or add arguments."""
    arguments = {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "dropout_p": 0.0, "softmax_scale": inputs.case.scale,
        "is_causal": inputs.case.causal, "window_size_left": inputs.case.window[0],
        "window_size_right": inputs.case.window[1], "deterministic": False, "sink": inputs.sink,
    }  # fmt: skip
    return mha_sink.mha_bwd(**{**arguments, **changes})


def named(results, d_sink=None):
    tensors = dict(zip(("dq", "dk", "dv", "softmax_d"), results, strict=True))
    return tensors if d_sink is None else {**tensors, "d_sink": d_sink}


def check_grid_case(shape: Case) -> None:
    result = check_mha_bwd(make_inputs(shape))
    assert not result.failures, f"{shape}\n{result}"
    if result.unresolvable:
        # Alone with its key, a query under a negligible sink has P = 1 and dS = P (dP - delta) = 0
        # up to the rounding of `out`. Under a sink of lse + 20, P is about e^-20 / seqlen_k, below
        # the smallest float16.
        alone = shape.seqlen_k == 1 and max(shape.sink_offsets) <= -2
        underflow = shape.dtype == "float16" and min(shape.sink_offsets) >= 20
        assert alone or underflow, f"{shape}\n{result}"
        allowed = {"dq", "dk"} if alone else {"dq", "dk", "dv", "softmax_d", "d_sink"}
        assert set(result.unresolvable) <= allowed, f"{shape}\n{result}"
        pytest.skip(f"{', '.join(result.unresolvable)} unresolvable in {shape.dtype}")


@pytest.mark.parametrize("shape", pairwise_grid(), ids=str)
def test_grid(shape):
    check_grid_case(shape)


@pytest.mark.full
@pytest.mark.parametrize("shape", full_grid(), ids=str)
def test_full_grid(shape):
    check_grid_case(shape)


@pytest.mark.parametrize("shape", CASES, ids=str)
def test_named_cases(shape):
    result = check_mha_bwd(make_inputs(shape))
    assert result.passed, str(result)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "bshd"])
@pytest.mark.parametrize("name", ["irregular/q113-k203", "gqa/h6-k2"])
def test_strided_layouts(name, layout):
    result = check_mha_bwd(make_inputs(case(name)), dict.fromkeys(TENSORS, layout))
    assert result.passed, str(result)


def test_every_tensor_has_its_own_strides():
    layouts = dict(zip(TENSORS, ["odd", "bhsd", "sliced", "sbhd"] * 2, strict=True))
    result = check_mha_bwd(make_inputs(case("gqa/h6-k2")), layouts)
    assert result.passed, str(result)


def test_packed_qkv_views():
    inputs = make_inputs(case("mqa/h8-causal"))
    sizes = [inputs.q.shape[2], 1, 1]
    packed = torch.cat([inputs.q, inputs.k, inputs.v], dim=2)
    d_packed = torch.full_like(packed, math.nan)
    d_sink = torch.zeros(sizes[0])
    q, k, v = packed.split(sizes, dim=2)
    dq, dk, dv = d_packed.split(sizes, dim=2)
    results = call(inputs, q=q, k=k, v=v, dq=dq, dk=dk, dv=dv, d_sink=d_sink)
    against = expected(inputs)
    result = check(named(results, d_sink), against.x64, against.xr)
    assert result.passed, str(result)
    assert not d_packed.isnan().any()


def test_expanded_inputs():
    inputs = make_inputs(case("gqa/h6-k2"))
    dout = inputs.dout[:1, :, :1].expand_as(inputs.dout)
    lse = inputs.lse[:1].expand_as(inputs.lse)
    sink = inputs.sink[:1].expand_as(inputs.sink).contiguous()
    q, out = (x[:1].expand_as(x) for x in (inputs.q, inputs.out))
    k, v = (x[:1].expand_as(x) for x in (inputs.k, inputs.v))
    same = dataclasses.replace(inputs, dout=dout, q=q, k=k, v=v, out=out, lse=lse, sink=sink)
    assert dout.stride()[0] == dout.stride()[2] == lse.stride()[0] == k.stride()[0] == 0
    d_sink = torch.zeros(6)
    results = call(same, d_sink=d_sink)
    against = expected(same)
    result = check(named(results, d_sink), against.x64, against.xr)
    assert result.passed, str(result)


def test_outputs_are_allocated_like_the_inputs():
    inputs = make_inputs(case("smoke/d64-causal"))
    q = inputs.q.transpose(1, 2).contiguous().transpose(1, 2)
    dq, dk, dv, softmax_d = call(inputs, q=q)
    for grad, like in ((dq, q), (dk, inputs.k), (dv, inputs.v)):
        assert (grad.shape, grad.dtype) == (like.shape, like.dtype)
        assert grad.stride() == like.stride()
        assert not grad.requires_grad
    assert softmax_d.shape == inputs.lse.shape
    assert softmax_d.dtype == torch.float32


def test_positional_arguments_follow_aiter():
    inputs = make_inputs(case("smoke/d64-causal"))
    dq, dk, dv = (torch.empty_like(x) for x in (inputs.q, inputs.k, inputs.v))
    d_sink = torch.zeros(inputs.q.shape[2])
    results = mha_sink.mha_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, 0.0, inputs.case.scale,
        True, -1, 0, False, dq, dk, dv, None, None, None, None, None, inputs.sink, d_sink,
    )  # fmt: skip
    against = expected(inputs)
    assert check(named(results, d_sink), against.x64, against.xr).passed
    assert all(x is y for x, y in zip(results, (dq, dk, dv), strict=False))


def test_outputs_written_in_place_are_seen_by_autograd():
    inputs = make_inputs(case("smoke/d64"))
    outputs = {"dq": inputs.q.clone(), "dk": inputs.k.clone(), "dv": inputs.v.clone()}
    outputs["d_sink"] = torch.zeros(inputs.q.shape[2])
    versions = {name: x._version for name, x in outputs.items()}
    call(inputs, **outputs)
    for name, x in outputs.items():
        assert x._version > versions[name], name


def test_inputs_that_require_grad_and_inference_mode():
    inputs = make_inputs(case("smoke/d64"))
    expected_dq = call(inputs)[0]
    dq = call(inputs, q=inputs.q.clone().requires_grad_())[0]
    assert torch.equal(dq, expected_dq)
    with torch.inference_mode():
        assert torch.equal(call(inputs)[0], expected_dq)


def test_d_sink_is_added_to():
    inputs = make_inputs(case("gqa/h6-k2"))
    fresh = run_guarded(inputs)["d_sink"]
    added = run_guarded(inputs, d_sink_start=0.5)["d_sink"]
    torch.testing.assert_close(added, fresh, rtol=0, atol=2**-22 * (0.5 + fresh.abs().max().item()))
    d_sink = torch.zeros(6)
    call(inputs, d_sink=d_sink)
    call(inputs, d_sink=d_sink)
    torch.testing.assert_close(d_sink, 2 * fresh, rtol=2**-22, atol=0)


def test_only_d_sink_depends_on_the_sink():
    inputs = make_inputs(case("irregular/q113-k203"))
    with_sink = call(inputs, d_sink=torch.zeros(4))
    for without in (call(inputs), call(inputs, sink=None)):
        assert all(torch.equal(x, y) for x, y in zip(with_sink[1:], without[1:], strict=True))


def test_a_sink_of_minus_infinity_is_no_sink(one_thread):
    plain = make_inputs(dataclasses.replace(case("irregular/q203-k113"), sink_offsets=()))
    d_sink = torch.zeros(4)
    gone = call(plain, sink=torch.full((1, 4), -math.inf), d_sink=d_sink)
    assert all(torch.equal(x, y) for x, y in zip(gone, call(plain), strict=True))
    assert (d_sink == 0).all()


def test_a_sink_of_plus_infinity_takes_everything():
    inputs = make_inputs(case("gqa/h6-k2"))
    sink = inputs.sink.clone()
    sink[:, 1] = math.inf
    out, lse = reference.mixed(inputs.q, inputs.k, inputs.v, sink, **inputs.case.mask)
    inputs = dataclasses.replace(inputs, out=out, lse=lse, sink=sink)
    written = run_guarded(inputs)
    assert (written["dq"][:, :, 1] == 0).all()
    assert written["d_sink"][1] == 0
    against = expected(inputs)
    result = check(written, against.x64, against.xr)
    assert result.passed, str(result)


@pytest.mark.parametrize("offset", [-1000.0, 100.0, 1000.0])
def test_far_away_sinks_stay_finite(offset):
    shape = dataclasses.replace(case("irregular/q17-k33"), sink_offsets=(offset,))
    written = run_guarded(make_inputs(shape))
    assert all(x.isfinite().all() for x in written.values())
    if offset < 0:
        assert (written["d_sink"] == 0).all()


def test_an_lse_without_the_sink_gives_the_formula():
    """What aiter's own sink tests compute: exp(sink - lse) far above 1."""
    shape = Case("aiter", 2, 128, 128, 4, 4, 64, sink_offsets=())
    inputs = make_inputs(shape)
    sink = torch.linspace(30, 60, 8).view(2, 4)
    arguments = (inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, sink)
    d_sink = torch.zeros(4)
    written = named(call(inputs, sink=sink, d_sink=d_sink), d_sink)
    x64 = reference.formula_bwd(*arguments, **shape.mask)._asdict()
    xr = reference.mixed_bwd(*arguments, **shape.mask)._asdict()
    x64["d_sink"], xr["d_sink"] = x64["d_sink"].sum(0), xr["d_sink"].sum(0)
    # d_sink cancels between rows; each term has the error of a float32 exponent of up to 60.
    terms = torch.exp(sink.double().unsqueeze(-1) - inputs.lse) * x64["softmax_d"].abs()
    bounds = {
        "softmax_d": 2**-20 * x64["softmax_d"].abs().max(),
        "d_sink": 60 * 2**-22 * terms.sum((0, 2)).max(),
    }
    for name, bound in bounds.items():
        torch.testing.assert_close(written[name].double(), x64[name], rtol=0, atol=bound.item())
    for name in ("dq", "dk", "dv"):
        assert check_tensor(name, written[name], x64[name], xr[name]).status is Status.PASS


def test_rows_that_see_no_key():
    inputs = make_inputs(case("corner/most-rows-empty"))
    blind = 259 - 3
    # Whatever an upstream kernel left in the rows of `out` that see nothing must not matter.
    assert (inputs.out[:, :blind] == 0).all()
    written = run_guarded(inputs)
    assert (written["dq"][:, :blind] == 0).all()
    without = dataclasses.replace(inputs, sink=None, lse=reference.mixed(
        inputs.q, inputs.k, inputs.v, **inputs.case.mask).lse)  # fmt: skip
    assert (without.lse[:, :, :blind] == -math.inf).all()
    written = run_guarded(without)
    assert (written["dq"][:, :blind] == 0).all()
    assert all(x.isfinite().all() for x in written.values())


def test_a_sink_with_an_lse_of_minus_infinity():
    """Contradicting arguments: exp(sink - lse) is infinite, delta 0, the contribution 0."""
    inputs = make_inputs(case("corner/most-rows-empty"))
    lse = inputs.lse.clone()
    lse[:, :, :100] = -math.inf
    written = run_guarded(dataclasses.replace(inputs, lse=lse))
    assert all(x.isfinite().all() for x in written.values())


@pytest.mark.parametrize(("sq", "sk"), [(0, 65), (65, 0), (0, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_empty_sequences(sq, sk, causal):
    inputs = make_inputs(Case("empty", 2, sq, sk, 4, 2, 64, causal))
    written = run_guarded(inputs)
    for name, x in written.items():
        assert (x == 0).all(), name
    assert written["dk"].shape == (2, sk, 2, 64)


def test_nan_stays_in_its_head():
    inputs = make_inputs(Case("nan", 2, 65, 130, 4, 2, 64))
    clean = run_guarded(inputs)
    q = inputs.q.clone()
    q[0, 5, 1, 3] = math.nan  # query head 1, KV head 0 of batch 0
    out, lse = reference.mixed(q, inputs.k, inputs.v, inputs.sink, **inputs.case.mask)
    dirty_inputs = dataclasses.replace(inputs, q=q, out=out, lse=lse)
    dirty = run_guarded(dirty_inputs)
    against = expected(dirty_inputs)
    assert check(dirty, against.x64, against.xr).failures == []
    nan = {name: torch.zeros_like(x, dtype=torch.bool) for name, x in clean.items()}
    nan["dq"][0, 5, 1] = nan["dk"][0, :, 0] = nan["dv"][0, :, 0] = True
    nan["softmax_d"][0, 1, 5] = nan["d_sink"][1] = True
    for name, x in dirty.items():
        assert torch.equal(x.isnan(), nan[name]), name
    for name in ("dk", "dv", "softmax_d"):
        assert torch.equal(dirty[name][~nan[name]], clean[name][~nan[name]]), name


def test_a_nan_sink_reaches_only_its_d_sink():
    inputs = make_inputs(case("gqa/h6-k2"))
    sink = inputs.sink.clone()
    sink[1, 2] = math.nan
    written = run_guarded(dataclasses.replace(inputs, sink=sink))
    assert written["d_sink"].isnan().tolist() == [False, False, True, False, False, False]
    assert all(not written[name].isnan().any() for name in ("dq", "dk", "dv", "softmax_d"))


@pytest.mark.parametrize(
    "name", ["smoke/d64-causal", "gqa/h6-k2", "smoke/d128-causal", "window/both"]
)
def test_schedules_agree(name, schedule, one_thread):
    inputs = make_inputs(case(name))
    results = {}
    for quantum in (1, 50, 0):
        for reverse in (False, True):
            with schedule(quantum, reverse):
                results[quantum, reverse] = run_guarded(inputs)
    first = results.pop((1, False))
    against = expected(inputs)
    assert check(first, against.x64, against.xr).passed
    for key, other in results.items():
        for tensor, x in first.items():
            assert torch.equal(other[tensor], x), (key, tensor)
