"""Invariants of sparse MLA that hold for any input."""

from __future__ import annotations

import dataclasses
import math

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mha_sink
from mha_sink import sparse_reference
from mha_sink.testing import (
    SparseCase,
    SparseInputs,
    check,
    check_sparse_bwd,
    check_sparse_fwd,
    expected_sparse_bwd,
    make_sparse_inputs,
)

few = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def shapes(draw) -> SparseCase:
    return SparseCase(
        "drawn",
        tokens=draw(st.integers(1, 40)),
        nhead=draw(st.integers(1, 128)),
        topk=draw(st.integers(1, 140)),
        num_pool=draw(st.integers(0, 60)),
        sink_offsets=draw(st.lists(st.floats(-20, 5), min_size=1, max_size=4).map(tuple)),
        dtype=draw(st.sampled_from(["bfloat16", "float16"])),
    )


@st.composite
def indices_of(draw, shape: SparseCase) -> torch.Tensor:
    """Any share of empty slots, and from many different rows of kv to a single one."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    rows = draw(st.integers(1, shape.num_kv))
    indices = torch.randint(rows, (shape.tokens, shape.topk), generator=generator)
    empty = torch.rand(indices.shape, generator=generator) < draw(st.floats(0, 1))
    return indices.masked_fill(empty, -1).int()


@st.composite
def drawn_inputs(draw) -> SparseInputs:
    shape = draw(shapes())
    return make_sparse_inputs(shape, draw(st.integers(0, 2**31)), draw(indices_of(shape)))


def both(inputs: SparseInputs, topk_indices: torch.Tensor, sink=None):
    """(o, lse, dq, dkv, d_sink) with other indices; `o` and `lse` of the backward stay."""
    sink = inputs.sink if sink is None else sink
    o, lse = mha_sink.sparse_mla_fwd_dsv4(inputs.q, inputs.kv, topk_indices, sink)
    grads = mha_sink.sparse_mla_bwd_dsv4(
        inputs.q, inputs.kv, inputs.do, inputs.o, inputs.lse, topk_indices, sink
    )
    return o, lse, *grads


@few
@given(drawn_inputs())
def test_any_input_passes_the_gate(inputs):
    for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
        assert not result.failures, f"{inputs.case}\n{result}"


@few
@given(drawn_inputs(), st.integers(1, 70), st.integers(0, 2**31))
def test_empty_slots_anywhere_change_no_bit(inputs, more, seed):
    """Slots are compacted in their order."""
    tokens, topk = inputs.topk_indices.shape
    place = torch.rand(tokens, topk + more, generator=torch.Generator().manual_seed(seed))
    place = place.topk(topk).indices.sort().values
    padded = torch.full((tokens, topk + more), -1, dtype=torch.int32)
    padded.scatter_(1, place, inputs.topk_indices)
    for x, y in zip(both(inputs, padded), both(inputs, inputs.topk_indices), strict=True):
        assert torch.equal(x, y)


@few
@given(drawn_inputs(), st.integers(0, 2**31))
def test_permuting_the_slots_of_a_token_changes_rounding_alone(inputs, seed):
    order = torch.rand(inputs.topk_indices.shape, generator=torch.Generator().manual_seed(seed))
    permuted = inputs.topk_indices.gather(1, order.argsort(1))
    against = expected_sparse_bwd(inputs)
    results = both(inputs, permuted)
    written = dict(zip(("dq", "dkv", "d_sink"), results[2:], strict=True))
    result = check(written, against.x64, against.xr)
    assert not result.failures, f"{inputs.case}\n{result}"
    straight = both(inputs, inputs.topk_indices)
    assert torch.equal(straight[4], results[4])
    finite = straight[1].isfinite()
    torch.testing.assert_close(results[1][finite], straight[1][finite], rtol=0, atol=2e-6)
    assert torch.equal(results[1][~finite], straight[1][~finite])


@few
@given(drawn_inputs())
def test_a_row_seen_twice_weighs_twice(inputs):
    """Every slot twice, and a sink that is log 2 higher: the same probabilities of each row."""
    twice = inputs.topk_indices.repeat(1, 2)
    sink = inputs.sink + math.log(2)
    o, lse = sparse_reference.mixed(inputs.q, inputs.kv, twice, sink, scale=inputs.case.scale)
    doubled = dataclasses.replace(inputs, o=o, lse=lse, sink=sink, topk_indices=twice)
    expected_lse = inputs.lse + math.log(2)
    torch.testing.assert_close(
        mha_sink.sparse_mla_fwd_dsv4(inputs.q, inputs.kv, twice, sink)[1], expected_lse,
        rtol=1e-6, atol=2e-6,
    )  # fmt: skip
    written = dict(zip(("dq", "dkv", "d_sink"), both(doubled, twice)[2:], strict=True))
    against = expected_sparse_bwd(inputs)  # of each row once
    result = check(written, against.x64, expected_sparse_bwd(doubled).xr)
    assert not result.failures, f"{inputs.case}\n{result}"


@few
@given(drawn_inputs(), st.integers(0, 2**31))
def test_permuting_tokens_and_rows_permutes_the_results(inputs, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randperm(inputs.case.tokens, generator=generator)
    rows = torch.randperm(inputs.case.num_kv, generator=generator)
    moved_to = torch.cat([rows.argsort(), torch.tensor([-1])]).int()  # indexed by -1 too
    moved = dataclasses.replace(
        inputs,
        **{name: getattr(inputs, name)[tokens] for name in ("q", "do", "o", "lse")},
        kv=inputs.kv[rows],
        topk_indices=moved_to[inputs.topk_indices[tokens].long()],
    )
    straight = both(inputs, inputs.topk_indices)
    permuted = both(moved, moved.topk_indices)
    for x, y in zip(straight[:3], permuted[:3], strict=True):
        assert torch.equal(x[tokens], y)
    # Sums over tokens, in another order.
    against = expected_sparse_bwd(moved)
    written = dict(zip(("dq", "dkv", "d_sink"), permuted[2:], strict=True))
    result = check(written, against.x64, against.xr)
    assert not result.failures, f"{inputs.case}\n{result}"


@few
@given(drawn_inputs(), st.integers(1, 128))
def test_each_head_is_computed_as_if_alone(inputs, heads):
    """Forward and dq; dkv sums over the heads."""
    heads = min(heads, inputs.case.nhead)
    some = {
        name: getattr(inputs, name)[:, -heads:].contiguous() for name in ("q", "do", "o", "lse")
    }
    alone = dataclasses.replace(inputs, **some, sink=inputs.sink[-heads:])
    results = both(alone, alone.topk_indices)
    whole = both(inputs, inputs.topk_indices)
    for x, y in zip(whole[:3], results[:3], strict=True):
        assert torch.equal(x[:, -heads:], y)
    assert torch.equal(whole[4][-heads:], results[4])
