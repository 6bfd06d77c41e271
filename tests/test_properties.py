"""Invariants that hold for any input."""

from __future__ import annotations

import dataclasses
import math

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mha_sink
from mha_sink import reference
from mha_sink.testing import (
    Case,
    Inputs,
    check,
    check_mha_bwd,
    expected,
    make_inputs,
    packed_case,
    run_guarded,
)

OFFSETS = st.lists(st.floats(-30, 30), min_size=1, max_size=4).map(tuple)


@st.composite
def shapes(draw, max_seqlen: int, hdims: tuple[int, ...]) -> Case:
    nhead_k = draw(st.integers(1, 2))
    return Case(
        "drawn",
        batch=draw(st.integers(1, 3)),
        seqlen_q=draw(st.integers(1, max_seqlen)),
        seqlen_k=draw(st.integers(1, max_seqlen)),
        nhead_q=nhead_k * draw(st.integers(1, 3)),
        nhead_k=nhead_k,
        hdim=draw(st.sampled_from(hdims)),
        causal=draw(st.booleans()),
        window=(draw(st.integers(-1, max_seqlen)), draw(st.integers(-1, max_seqlen))),
        sink_offsets=draw(OFFSETS),
    )


@st.composite
def packed_shapes(draw, max_seqlen: int, hdims: tuple[int, ...]) -> Case:
    """Sequences of any length, each side with gaps or without, and a tail."""

    def lengths(count: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(0, max_seqlen), min_size=count, max_size=count)))

    def rooms(seqlens: tuple[int, ...]) -> tuple[int, ...]:
        gaps = draw(st.sampled_from(((), (0, 1, 9, 70))))
        return tuple(n + draw(st.sampled_from(gaps)) for n in seqlens) if gaps else ()

    count, nhead_k = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    seqlens_q, seqlens_k = lengths(count), lengths(count)
    return packed_case(
        "drawn",
        seqlens_q,
        seqlens_k,
        (nhead_k * draw(st.integers(1, 3)), nhead_k),
        draw(st.sampled_from(hdims)),
        padded_q=rooms(seqlens_q),
        padded_k=rooms(seqlens_k),
        tail=(draw(st.integers(0, 5)), draw(st.integers(0, 5))),
        causal=draw(st.booleans()),
        window=(draw(st.integers(-1, max_seqlen)), draw(st.integers(-1, max_seqlen))),
        sink_offsets=draw(OFFSETS),
    )


drawn = given(shapes(12, (4,)), st.integers(0, 2**31))
emulated = given(shapes(130, (64, 128)), st.integers(0, 2**31))
emulated_packed = given(packed_shapes(130, (64, 128)), st.integers(0, 2**31), st.booleans())
few = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
many = settings(max_examples=60, deadline=None, derandomize=True)


def call(inputs: Inputs, **changes):
    arguments = {name: getattr(inputs, name) for name in ("dout", "q", "k", "v", "out", "sink")}
    arguments |= {"softmax_lse": inputs.lse, "deterministic": False}
    return mha_sink.mha_bwd(**{**arguments, **changes}, **mask(inputs))


def packed_call(inputs: Inputs, **arguments):
    return mha_sink.mha_varlen_bwd(
        **arguments, **mask(inputs), max_seqlen_q=inputs.case.seqlen_q,
        max_seqlen_k=inputs.case.seqlen_k, zero_tensors=False, deterministic=True,
    )  # fmt: skip


def mask(inputs: Inputs):
    return {
        "dropout_p": 0.0, "softmax_scale": inputs.case.scale, "is_causal": inputs.case.causal,
        "window_size_left": inputs.case.window[0], "window_size_right": inputs.case.window[1],
    }  # fmt: skip


@many
@drawn
def test_probabilities_and_the_sink_sum_to_one(shape, seed):
    inputs = make_inputs(shape, seed)
    ones = torch.ones_like(inputs.v)
    total, lse = reference.definition(inputs.q, inputs.k, ones, inputs.sink, **shape.mask)
    p_sink = torch.exp(inputs.sink.double().unsqueeze(-1) - lse)
    torch.testing.assert_close(total[..., 0].transpose(1, 2) + p_sink, torch.ones_like(lse))


@many
@drawn
def test_moving_scores_and_sinks_together_changes_nothing(shape, seed):
    """Softmax ignores a common shift, so the gradients of scores and sink sum to zero."""
    inputs = make_inputs(shape, seed)
    # One more key dimension, constant in q: its key gradient is the sum of dS over queries.
    q = torch.cat([inputs.q, torch.ones_like(inputs.q[..., :1])], -1).double()
    k = torch.cat([inputs.k, torch.zeros_like(inputs.k[..., :1])], -1).double()
    grads = reference.definition_bwd(inputs.dout, q, k, inputs.v, inputs.sink, **shape.mask)
    of_scores = grads.dk[..., -1].sum(1) / shape.scale
    of_sinks = grads.d_sink.unflatten(1, (shape.nhead_k, -1)).sum(-1)
    torch.testing.assert_close(of_scores, -of_sinks, rtol=1e-9, atol=1e-9)


@many
@drawn
def test_no_sink_is_a_sink_of_minus_infinity(shape, seed):
    inputs = make_inputs(shape, seed)
    gone = torch.full_like(inputs.sink, -math.inf)
    a = reference.definition_bwd(inputs.dout, inputs.q, inputs.k, inputs.v, None, **shape.mask)
    b = reference.definition_bwd(inputs.dout, inputs.q, inputs.k, inputs.v, gone, **shape.mask)
    assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
    assert (b.d_sink == 0).all()


@few
@emulated
def test_any_shape_passes_the_gate(shape, seed):
    inputs = make_inputs(shape, seed)
    against = expected(inputs)
    result = check(run_guarded(inputs), against.x64, against.xr)
    assert not result.failures, f"{shape}\n{result}"


@few
@emulated_packed
def test_any_packing_passes_the_gate(shape, seed, deterministic):
    inputs = make_inputs(shape, seed)
    result = check_mha_bwd(inputs, deterministic=deterministic)
    assert not result.failures, f"{shape}\n{result}"


@few
@emulated
def test_permuting_the_batch_permutes_the_results(shape, seed):
    inputs = make_inputs(dataclasses.replace(shape, batch=3), seed)
    order = torch.tensor([2, 0, 1])
    permuted = {
        name: getattr(inputs, name)[order] for name in ("dout", "q", "k", "v", "out", "sink")
    }
    d_sink, d_sink_permuted = torch.zeros(shape.nhead_q), torch.zeros(shape.nhead_q)
    straight = call(inputs, d_sink=d_sink)
    moved = call(inputs, **permuted, softmax_lse=inputs.lse[order], d_sink=d_sink_permuted)
    # dq is summed by atomics in any order; everything else is computed once.
    for x, y in zip(straight[1:], moved[1:], strict=True):
        assert torch.equal(x[order], y)
    torch.testing.assert_close(
        d_sink_permuted, d_sink, rtol=1e-4, atol=1e-5 * d_sink.abs().max().item()
    )


@few
@emulated
def test_each_head_is_computed_as_if_alone(shape, seed):
    inputs = make_inputs(shape, seed)
    group = shape.nhead_q // shape.nhead_k
    _, dk, dv, softmax_d = call(inputs)
    heads = slice((shape.nhead_k - 1) * group, shape.nhead_q)
    alone = {name: getattr(inputs, name)[:, :, heads] for name in ("dout", "q", "out")}
    alone |= {name: getattr(inputs, name)[:, :, -1:] for name in ("k", "v")}
    _, dk_alone, dv_alone, softmax_d_alone = call(
        inputs, **alone, sink=inputs.sink[:, heads].contiguous(), softmax_lse=inputs.lse[:, heads]
    )
    assert torch.equal(dk[:, :, -1:], dk_alone)
    assert torch.equal(dv[:, :, -1:], dv_alone)
    assert torch.equal(softmax_d[:, heads], softmax_d_alone)


@few
@emulated
def test_packed_equals_batched(shape, seed):
    inputs = make_inputs(shape, seed)
    d_sink, d_sink_packed = torch.zeros(shape.nhead_q), torch.zeros(shape.nhead_q)
    batched = call(inputs, d_sink=d_sink, deterministic=True)
    rows = {name: getattr(inputs, name).flatten(0, 1) for name in ("dout", "q", "k", "v", "out")}
    lse = inputs.lse.transpose(0, 1).flatten(1)
    ends = torch.arange(shape.batch + 1, dtype=torch.int32)
    packed = packed_call(
        inputs, **rows, softmax_lse=lse, sink=inputs.sink, d_sink=d_sink_packed,
        cu_seqlens_q=ends * shape.seqlen_q, cu_seqlens_k=ends * shape.seqlen_k,
    )  # fmt: skip
    for x, y in zip(batched[:3], packed[:3], strict=True):
        assert torch.equal(x.flatten(0, 1), y)
    assert torch.equal(batched[3].transpose(0, 1).flatten(1), packed[3])
    torch.testing.assert_close(
        d_sink_packed, d_sink, rtol=1e-4, atol=1e-5 * d_sink.abs().max().item()
    )


@few
@given(packed_shapes(130, (64, 128)), st.integers(0, 2**31))
def test_packed_sequences_are_computed_as_if_alone(shape, seed):
    inputs = make_inputs(shape, seed)
    together = run_guarded(inputs, deterministic=True)
    for at in inputs.packing.sequences():
        queries, keys = at.queries, at.keys
        alone = {name: getattr(inputs, name)[None, queries] for name in ("dout", "q", "out")}
        alone |= {name: getattr(inputs, name)[None, keys] for name in ("k", "v")}
        dq, dk, dv, softmax_d = call(
            inputs, **alone, softmax_lse=inputs.lse[None, :, queries], deterministic=True,
            sink=inputs.sink[at.number : at.number + 1],
        )  # fmt: skip
        assert torch.equal(dq[0], together["dq"][queries])
        assert torch.equal(dk[0], together["dk"][keys])
        assert torch.equal(dv[0], together["dv"][keys])
        assert torch.equal(softmax_d[0], together["softmax_d"][:, queries])
