"""`mha_varlen_bwd`, run as gfx950 machine code, against float64 and against `mha_bwd`."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import mha_sink
from mha_sink import reference
from mha_sink.reference import Packing
from mha_sink.testing import (
    LAYOUTS,
    PACKED_CASES,
    Case,
    case,
    check,
    check_mha_bwd,
    expected,
    make_inputs,
    packed_case,
    run_guarded,
)
from mha_sink.testing.inputs import outside_sequences

TENSORS = ("dout", "q", "k", "v", "out", "dq", "dk", "dv")
GRADS = ("dq", "dk", "dv", "softmax_d")


def call(inputs, **changes):
    """`mha_varlen_bwd` on packed inputs; `changes` replace or add arguments."""
    arguments = {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, **inputs.packing._asdict(),
        "max_seqlen_q": max(inputs.case.seqlens_q), "max_seqlen_k": max(inputs.case.seqlens_k),
        "dropout_p": 0.0, "softmax_scale": inputs.case.scale, "zero_tensors": False,
        "is_causal": inputs.case.causal, "window_size_left": inputs.case.window[0],
        "window_size_right": inputs.case.window[1], "deterministic": False, "sink": inputs.sink,
    }  # fmt: skip
    return mha_sink.mha_varlen_bwd(**{**arguments, **changes})


def named(results, d_sink=None):
    tensors = dict(zip(GRADS, results, strict=True))
    return tensors if d_sink is None else {**tensors, "d_sink": d_sink}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("shape", PACKED_CASES, ids=str)
def test_named_cases(shape, deterministic):
    result = check_mha_bwd(make_inputs(shape), deterministic=deterministic)
    assert result.passed, str(result)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("bshd", "sbhd")])
def test_strided_layouts(layout):
    result = check_mha_bwd(make_inputs(case("packed/padded")), dict.fromkeys(TENSORS, layout))
    assert result.passed, str(result)


def test_packed_qkv_views():
    inputs = make_inputs(packed_case("qkv", (33, 70), (33, 70), (4, 1), 64, causal=True))
    packed = torch.cat([inputs.q, inputs.k, inputs.v], dim=1)
    d_packed = torch.full_like(packed, math.nan)
    q, k, v = packed.split([4, 1, 1], dim=1)
    dq, dk, dv = d_packed.split([4, 1, 1], dim=1)
    d_sink = torch.zeros(4)
    results = call(inputs, q=q, k=k, v=v, dq=dq, dk=dk, dv=dv, d_sink=d_sink)
    against = expected(inputs)
    result = check(named(results, d_sink), against.x64, against.xr)
    assert result.passed, str(result)
    assert not d_packed.isnan().any()


@pytest.mark.parametrize("deterministic", [False, True])
def test_sequences_of_one_length_are_a_batch(deterministic):
    dense = make_inputs(Case("batch", 3, 65, 130, 4, 2, 64, causal=True))
    flat = {name: getattr(dense, name).flatten(0, 1) for name in ("dout", "q", "k", "v", "out")}
    lse = dense.lse.transpose(0, 1).flatten(1)
    shape = packed_case("batch", (65,) * 3, (130,) * 3, (4, 2), 64, causal=True)
    packed = dataclasses.replace(dense, case=shape, lse=lse, packing=make_inputs(shape).packing,
                                 **flat)  # fmt: skip
    d_sinks = torch.zeros(2, 4)
    results = call(packed, d_sink=d_sinks[0], deterministic=deterministic)
    batch = mha_sink.mha_bwd(
        dense.dout, dense.q, dense.k, dense.v, dense.out, dense.lse, 0.0, shape.scale, True, -1, -1,
        deterministic, sink=dense.sink, d_sink=d_sinks[1],
    )  # fmt: skip
    expected_ = named((*(x.flatten(0, 1) for x in batch[:3]), batch[3].transpose(0, 1).flatten(1)))
    for name, x in named(results).items():
        if name == "dq" and not deterministic:  # summed by atomics, in any order
            torch.testing.assert_close(x, expected_[name], rtol=2**-6, atol=1e-3)
        else:
            assert torch.equal(x, expected_[name]), name
    torch.testing.assert_close(*d_sinks, rtol=1e-5, atol=1e-5)


def test_each_sequence_is_computed_as_if_alone():
    inputs = make_inputs(case("packed/lengths"))
    results = named(call(inputs, deterministic=True))
    for at in inputs.packing.sequences():
        q, k = at.queries, at.keys
        alone = mha_sink.mha_bwd(
            inputs.dout[None, q], inputs.q[None, q], inputs.k[None, k], inputs.v[None, k],
            inputs.out[None, q], inputs.lse[None, :, q].contiguous(), 0.0, inputs.case.scale,
            True, -1, -1, True,
        )  # fmt: skip
        for name, x in named(alone).items():
            mine = results[name]
            mine = mine[:, q] if name == "softmax_d" else mine[k if name in ("dk", "dv") else q]
            assert torch.equal(mine, x[0]), (at.number, name)


def test_padding_changes_no_number():
    padded = make_inputs(case("packed/padded"))
    rows_q, rows_k = (~x for x in outside_sequences(padded.case, padded.packing))
    compact = dataclasses.replace(
        padded,
        **{name: getattr(padded, name)[rows_q] for name in ("dout", "q", "out")},
        **{name: getattr(padded, name)[rows_k] for name in ("k", "v")},
        lse=padded.lse[:, rows_q],
        packing=Packing(padded.packing.cu_seqlens_q, padded.packing.cu_seqlens_k),
    )
    d_sinks = torch.zeros(2, 4)
    first = named(call(padded, d_sink=d_sinks[0], deterministic=True))
    second = named(call(compact, d_sink=d_sinks[1], deterministic=True))
    for name, rows in (("dq", rows_q), ("dk", rows_k), ("dv", rows_k)):
        assert torch.equal(first[name][rows], second[name])
    assert torch.equal(first["softmax_d"][:, rows_q], second["softmax_d"])
    assert torch.equal(*d_sinks)


def test_nan_stays_in_its_sequence():
    inputs = make_inputs(case("packed/lengths"))
    clean = run_guarded(inputs)
    sequence = list(inputs.packing.sequences())[2]
    tensors = {name: getattr(inputs, name).clone() for name in ("q", "k", "v", "dout", "out")}
    for name, x in tensors.items():
        x[sequence.keys if name in ("k", "v") else sequence.queries] = math.nan
    dirty = run_guarded(dataclasses.replace(inputs, **tensors))
    for name in ("dk", "dv", "softmax_d"):
        rows = sequence.keys if name in ("dk", "dv") else sequence.queries
        mine, theirs = (x.T if name == "softmax_d" else x for x in (dirty[name], clean[name]))
        others = torch.ones(len(mine), dtype=torch.bool)
        others[rows] = False
        assert mine[rows].isnan().all()
        assert torch.equal(mine[others], theirs[others])
    others = torch.ones(len(dirty["dq"]), dtype=torch.bool)
    others[sequence.queries] = False
    assert not dirty["dq"][others].isnan().any()


@pytest.mark.parametrize(
    ("seqlens_q", "seqlens_k", "tail"),
    [
        ((0, 0), (17, 33), (0, 0)),
        ((17, 33), (0, 0), (0, 0)),
        ((0, 0), (0, 0), (0, 0)),
        ((0,), (0,), (70, 3)),
        ((0, 5), (5, 0), (0, 0)),
    ],
)
def test_nothing_to_attend_to(seqlens_q, seqlens_k, tail):
    inputs = make_inputs(packed_case("empty", seqlens_q, seqlens_k, (4, 2), 64, tail=tail))
    for name, x in run_guarded(inputs).items():
        assert (x == 0).all(), name


def test_positional_arguments_follow_aiter():
    inputs = make_inputs(case("packed/padded"))
    dq, dk, dv = (torch.empty_like(x) for x in (inputs.q, inputs.k, inputs.v))
    d_sink = torch.zeros(4)
    packing = inputs.packing
    results = mha_sink.mha_varlen_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, packing.cu_seqlens_q,
        packing.cu_seqlens_k, 70, 70, 0.0, inputs.case.scale, False, True, -1, 0, False, dq, dk, dv,
        None, None, None, packing.cu_seqlens_q_padded, packing.cu_seqlens_k_padded, inputs.sink,
        d_sink,
    )  # fmt: skip
    against = expected(inputs)
    assert check(named(results, d_sink), against.x64, against.xr).passed
    assert all(x is y for x, y in zip(results, (dq, dk, dv), strict=False))


def test_outputs_are_allocated_like_the_inputs():
    inputs = make_inputs(case("packed/tail"))
    q = inputs.q.transpose(0, 1).contiguous().transpose(0, 1)
    dq, dk, dv, softmax_d = call(inputs, q=q)
    assert dq.stride() == q.stride()
    assert (dk.shape, dv.shape) == (inputs.k.shape, inputs.v.shape)
    assert (softmax_d.shape, softmax_d.dtype) == (inputs.lse.shape, torch.float32)


@pytest.mark.parametrize(
    "changes", [{"max_seqlen_q": 1000, "max_seqlen_k": 500}, {"zero_tensors": True}]
)
def test_what_changes_no_result(changes):
    inputs = make_inputs(case("packed/lengths"))
    plain = call(inputs, deterministic=True)
    changed = call(inputs, deterministic=True, **changes)
    assert all(torch.equal(x, y) for x, y in zip(plain, changed, strict=True))


def test_d_sink_is_added_to():
    inputs = make_inputs(case("packed/lengths"))
    against = expected(inputs)
    result = check(run_guarded(inputs, d_sink_start=2.0), against.x64, against.xr)
    assert result.passed, str(result)


def test_d_sink_of_each_sequence():
    inputs = make_inputs(case("packed/lengths"))
    d_sink = torch.full((4, 6), 0.5)
    call(inputs, d_sink=d_sink)
    grads = reference.packed_definition_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.packing, inputs.sink, **inputs.case.mask
    )
    rounded = reference.packed_mixed_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, inputs.packing,
        inputs.sink, **inputs.case.mask,
    )  # fmt: skip
    result = check(*({"d_sink": x} for x in (d_sink - 0.5, grads.d_sink, rounded.d_sink)))
    assert result.passed, str(result)


@pytest.mark.parametrize(("hdim", "hdim_v"), [(59, 111), (20, 64)])
def test_head_dims_that_are_no_multiple_of_8(hdim, hdim_v):
    shape = packed_case(
        "odd", (33, 0, 17), (65, 9, 20), (4, 2), hdim, hdim_v=hdim_v, tail=(3, 2), causal=True
    )
    result = check_mha_bwd(make_inputs(shape))
    assert result.passed, str(result)


@pytest.mark.parametrize("name", ["packed/lengths", "packed/padded-d128"])
def test_schedules_agree(name, schedule, one_thread):
    inputs = make_inputs(case(name))
    results = []
    for quantum, reverse in ((1, False), (50, True), (0, False)):
        with schedule(quantum, reverse):
            results.append(run_guarded(inputs))
    against = expected(inputs)
    assert check(results[0], against.x64, against.xr).passed
    for other in results[1:]:
        for tensor, x in results[0].items():
            assert torch.equal(other[tensor], x), tensor
