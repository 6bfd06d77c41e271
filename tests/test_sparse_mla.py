"""Sparse MLA forward and backward, run as gfx950 machine code, against float64."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

import mha_sink
from mha_sink import _C, _tensors, sparse_reference
from mha_sink.testing import (
    SparseCase,
    SparseInputs,
    check,
    check_sparse_bwd,
    check_sparse_fwd,
    expected_sparse_bwd,
    make_sparse_inputs,
    run_sparse_bwd,
)
from mha_sink.testing.sparse_mla import (
    PUBLISHED,
    full_sparse_grid,
    pairwise_sparse_grid,
    poisoned,
)

SMALL = SparseCase("small", 24, 16, 64, num_pool=9)
CHUNKED = dataclasses.replace(SMALL, topk=96, r_chunk=32)


def backward(inputs: SparseInputs, **changes):
    """`sparse_mla_bwd_dsv4` on the inputs; `changes` replace or add arguments."""
    arguments = {
        "q": inputs.q, "kv": inputs.kv, "do": inputs.do, "o": inputs.o, "lse": inputs.lse,
        "topk_indices": inputs.topk_indices, "attn_sink": inputs.sink, "scale": inputs.case.scale,
        "R_CHUNK": inputs.case.r_chunk,
    }  # fmt: skip
    with poisoned():
        return mha_sink.sparse_mla_bwd_dsv4(**{**arguments, **changes})


def forward(inputs: SparseInputs, **changes):
    arguments = {
        "q": inputs.q, "kv": inputs.kv, "topk_indices": inputs.topk_indices,
        "attn_sink": inputs.sink, "scale": inputs.case.scale,
    }  # fmt: skip
    with poisoned():
        return mha_sink.sparse_mla_fwd_dsv4(**{**arguments, **changes})


def same(x, y):
    return all(torch.equal(a, b) for a, b in zip(x, y, strict=True))


def check_grid_case(shape: SparseCase) -> None:
    inputs = make_sparse_inputs(shape)
    results = {"forward": check_sparse_fwd(inputs), "backward": check_sparse_bwd(inputs)}
    for result in results.values():
        assert not result.failures, f"{shape}\n{result}"
    unresolvable = {name for result in results.values() for name in result.unresolvable}
    if unresolvable:
        # A token whose slots all hold one row, under a negligible sink, has P = 1 / count and
        # dS = P (dP - delta) = 0 up to the rounding of `o`. Under a sink of lse + 20, P is about
        # e^-20 / TOPK, below the smallest float16.
        alone = shape.tokens == 1 and max(shape.sink_offsets, default=-math.inf) <= -2
        underflow = shape.dtype == "float16" and min(shape.sink_offsets, default=0) >= 20
        assert alone or underflow, f"{shape}\n{results}"
        pytest.skip(f"{', '.join(sorted(unresolvable))} unresolvable in {shape.dtype}")


@pytest.mark.parametrize("shape", pairwise_sparse_grid(), ids=str)
def test_grid(shape):
    check_grid_case(shape)


@pytest.mark.full
@pytest.mark.parametrize("shape", full_sparse_grid(), ids=str)
def test_full_grid(shape):
    check_grid_case(shape)


@pytest.mark.parametrize("shape", PUBLISHED, ids=str)
def test_published_shapes(shape):
    """What aiter's tests ask, with their weak sinks, and the gate."""
    sink = None
    if shape.sink_offsets:
        sink = 0.1 * torch.randn(shape.nhead, generator=torch.Generator().manual_seed(1))
    inputs = make_sparse_inputs(shape, sink=sink)
    against = expected_sparse_bwd(inputs)
    written = run_sparse_bwd(inputs)
    for name, x in written.items():
        cosine = cosine_similarity(x.double().flatten(), against.x64[name].flatten(), dim=0)
        assert cosine > 0.999, name
    result = check(written, against.x64, against.xr)
    assert result.passed, str(result)


@pytest.mark.parametrize("nhead", [1, 5, 17, 33, 96, 127])
def test_any_number_of_heads(nhead):
    inputs = make_sparse_inputs(dataclasses.replace(SMALL, nhead=nhead))
    for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
        assert result.passed, str(result)


@pytest.mark.parametrize("topk", [1, 31, 33, 100])
def test_any_number_of_slots(topk):
    inputs = make_sparse_inputs(dataclasses.replace(SMALL, topk=topk))
    for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
        assert result.passed, str(result)


@pytest.mark.parametrize("r_chunk", [32, 64, 96, 192])
def test_chunks(r_chunk):
    inputs = make_sparse_inputs(dataclasses.replace(SMALL, topk=192, r_chunk=r_chunk))
    result = check_sparse_bwd(inputs)
    assert result.passed, str(result)


def test_one_chunk_of_all_slots_is_no_chunk():
    inputs = make_sparse_inputs(SMALL)
    assert same(backward(inputs, R_CHUNK=None), backward(inputs, R_CHUNK=64))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_large_pool(dtype):
    inputs = make_sparse_inputs(dataclasses.replace(SMALL, num_pool=5000, dtype=dtype))
    written = run_sparse_bwd(inputs)
    against = expected_sparse_bwd(inputs)
    result = check(written, against.x64, against.xr)
    assert result.passed, str(result)
    unseen = torch.ones(inputs.kv.shape[0], dtype=torch.bool)
    unseen[inputs.topk_indices[inputs.topk_indices >= 0].long()] = False
    assert unseen.any()
    assert (written["dkv"][unseen] == 0).all()


def test_another_scale():
    inputs = make_sparse_inputs(SMALL)
    scale = 0.1
    o, lse = sparse_reference.mixed(
        inputs.q, inputs.kv, inputs.topk_indices, inputs.sink, scale=scale
    )
    inputs = dataclasses.replace(inputs, o=o, lse=lse)
    grads = sparse_reference.definition_bwd(
        inputs.do, inputs.q, inputs.kv, inputs.topk_indices, inputs.sink, scale=scale
    )
    mixed = sparse_reference.mixed_bwd(
        inputs.do, inputs.q, inputs.kv, o, lse, inputs.topk_indices, inputs.sink, scale=scale
    )
    written = sparse_reference.Gradients(*backward(inputs, scale=scale))
    result = check(written._asdict(), grads._asdict(), mixed._asdict())
    assert result.passed, str(result)


def test_the_default_scale():
    inputs = make_sparse_inputs(SMALL)
    assert same(backward(inputs, scale=None), backward(inputs, scale=512**-0.5))
    assert same(forward(inputs, scale=None), forward(inputs, scale=512**-0.5))


def test_positional_arguments_follow_aiter():
    inputs = make_sparse_inputs(CHUNKED)
    results = mha_sink.sparse_mla_bwd_dsv4(
        inputs.q, inputs.kv, inputs.do, inputs.o, inputs.lse, inputs.topk_indices, inputs.sink,
        inputs.case.scale, 32,
    )  # fmt: skip
    assert same(results, backward(inputs))
    dq, dkv, d_sink = results
    for x, like in ((dq, inputs.q), (dkv, inputs.kv), (d_sink, inputs.sink)):
        assert (x.shape, x.dtype, x.is_contiguous()) == (like.shape, like.dtype, True)
        assert not x.requires_grad


def test_without_a_sink_there_is_no_d_sink():
    inputs = make_sparse_inputs(dataclasses.replace(SMALL, sink_offsets=()))
    assert backward(inputs)[2] is None


def test_lse_of_another_dtype_is_taken_as_float32():
    inputs = make_sparse_inputs(SMALL)
    strided = torch.stack([inputs.lse.double()] * 2, -1)[..., 0]
    assert not strided.is_contiguous()
    assert same(backward(inputs, lse=strided), backward(inputs))


def test_inputs_that_require_grad_and_inference_mode():
    inputs = make_sparse_inputs(SMALL)
    expected = backward(inputs)
    assert same(backward(inputs, q=inputs.q.clone().requires_grad_()), expected)
    with torch.inference_mode():
        assert same(backward(inputs), expected)
        assert same(forward(inputs), forward(inputs))


class TestSlots:
    def test_every_slot_empty(self):
        empty = torch.full((SMALL.tokens, SMALL.topk), -1, dtype=torch.int32)
        inputs = make_sparse_inputs(SMALL, topk_indices=empty, sink=torch.linspace(-3, 3, 16))
        o, lse = forward(inputs)
        assert (o == 0).all()
        assert torch.equal(lse, inputs.sink.expand_as(lse))
        assert all((x == 0).all() for x in run_sparse_bwd(inputs).values())
        assert (forward(inputs, attn_sink=None)[1] == -math.inf).all()
        without = dataclasses.replace(inputs, sink=None, lse=torch.full_like(lse, -math.inf))
        assert all((x == 0).all() for x in run_sparse_bwd(without).values())

    @pytest.mark.parametrize("offsets", [(), SMALL.sink_offsets])
    def test_some_tokens_without_slots(self, offsets):
        indices = SMALL.indices()
        indices[::3] = -1
        shape = dataclasses.replace(SMALL, sink_offsets=offsets)
        inputs = make_sparse_inputs(shape, topk_indices=indices)
        for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
            assert result.passed, str(result)
        assert (backward(inputs)[0][::3] == 0).all()

    def test_every_slot_the_same_row(self):
        indices = torch.full((SMALL.tokens, SMALL.topk), 7, dtype=torch.int32)
        inputs = make_sparse_inputs(
            dataclasses.replace(SMALL, sink_offsets=(0.0,)), topk_indices=indices
        )
        for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
            assert result.passed, str(result)
        dkv = backward(inputs)[1]
        assert (dkv[7] != 0).any()
        assert (torch.cat([dkv[:7], dkv[8:]]) == 0).all()

    @pytest.mark.parametrize("seen", [0, 1, 31, 32, 33, 63, 64])
    def test_slots_that_end_anywhere(self, seen):
        """The empty slots are at the end, as padding puts them."""
        indices = SMALL.indices().clamp(min=0)
        indices[:, seen:] = -1
        inputs = make_sparse_inputs(SMALL, topk_indices=indices)
        result = check_sparse_bwd(inputs)
        assert result.passed, str(result)

    def test_counts_that_differ_from_token_to_token(self):
        indices = CHUNKED.indices().clamp(min=0)
        for token in range(CHUNKED.tokens):
            indices[token, token * 4 :] = -1
        inputs = make_sparse_inputs(CHUNKED, topk_indices=indices)
        for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
            assert result.passed, str(result)

    def test_an_empty_slot_reads_no_row(self):
        """NaN in the first and the last row of kv, which an index of -1 could be taken for."""
        indices = SMALL.indices()
        indices[(indices == 0) | (indices == SMALL.num_kv - 1)] = -1
        inputs = make_sparse_inputs(SMALL, topk_indices=indices)
        kv = inputs.kv.clone()
        kv[0] = kv[-1] = math.nan
        assert same(forward(inputs, kv=kv), forward(inputs))
        assert same(backward(inputs, kv=kv), backward(inputs))


class TestEmpty:
    @pytest.mark.parametrize("num_pool", [0, 5])
    @pytest.mark.parametrize(("tokens", "topk"), [(0, 32), (5, 0), (0, 0)])
    def test_no_tokens_or_slots(self, tokens, topk, num_pool):
        shape = SparseCase("empty", tokens, 16, topk, num_pool=num_pool)
        sink = torch.linspace(-3, 3, 16)
        inputs = make_sparse_inputs(shape, sink=sink)
        o, lse = forward(inputs)
        assert (o == 0).all()
        assert torch.equal(lse, sink.expand(tokens, 16))
        written = run_sparse_bwd(inputs)
        assert written["dq"].shape == (tokens, 16, 512)
        assert written["dkv"].shape == (tokens + num_pool, 512)
        assert written["d_sink"].shape == (16,)
        assert all((x == 0).all() for x in written.values())

    def test_a_plan_of_nothing(self):
        inputs = make_sparse_inputs(SparseCase("empty", 0, 16, 32), sink=torch.zeros(16))
        plan = mha_sink.sparse_mla_plan(inputs.topk_indices, 0)
        assert (backward(inputs, plan=plan)[2] == 0).all()


class TestPlan:
    @pytest.mark.parametrize("shape", [SMALL, CHUNKED, dataclasses.replace(SMALL, topk=33)])
    def test_a_plan_changes_no_bit(self, shape):
        inputs = make_sparse_inputs(shape)
        with poisoned():
            plan = mha_sink.sparse_mla_plan(inputs.topk_indices, inputs.kv.shape[0])
        before = plan.data.clone()
        for _ in range(2):
            assert same(forward(inputs, plan=plan), forward(inputs))
            assert same(backward(inputs, plan=plan), backward(inputs))
        assert torch.equal(plan.data, before)

    def test_a_plan_serves_other_tensors(self):
        plan = mha_sink.sparse_mla_plan(SMALL.indices(), SMALL.num_kv)
        other = dataclasses.replace(SMALL, nhead=40, dtype="float16")
        inputs = make_sparse_inputs(other, topk_indices=SMALL.indices())
        assert same(backward(inputs, plan=plan), backward(inputs))


class TestLargeScores:
    @pytest.mark.parametrize("falling", [False, True])
    @pytest.mark.parametrize("top", [1.0, 30.0, 300.0])
    def test_scores_that_grow_or_shrink_along_the_slots(self, top, falling):
        """A running maximum that moves at each slot, up to scores that overflow exp in float32."""
        shape = dataclasses.replace(SMALL, topk=128, num_pool=128 - SMALL.tokens, sink_offsets=())
        order = torch.arange(128, dtype=torch.int32)
        indices = (order.flip(0) if falling else order).repeat(shape.tokens, 1)
        inputs = make_sparse_inputs(shape, topk_indices=indices)
        direction = torch.ones(512) * 512**-0.25
        ramp = torch.linspace(0, top, 128)[:, None] * direction
        kv = (ramp + 0.1 * inputs.kv.float()).to(inputs.kv.dtype)
        q = (direction + 0.1 * inputs.q.float()).to(inputs.q.dtype)
        o, lse = sparse_reference.mixed(q, kv, indices, scale=shape.scale)
        assert (lse.min() > 88) == (top == 300)
        inputs = dataclasses.replace(inputs, q=q, kv=kv, o=o, lse=lse)
        for result in (check_sparse_fwd(inputs), check_sparse_bwd(inputs)):
            assert not result.failures, str(result)
            assert set(result.unresolvable) <= {"dq"}, str(result)


class TestWorkspace:
    @pytest.mark.parametrize("shape", [SMALL, CHUNKED, dataclasses.replace(SMALL, topk=33)])
    @pytest.mark.parametrize("with_plan", [False, True])
    def test_its_size_is_known_in_advance(self, shape, with_plan, monkeypatch):
        inputs = make_sparse_inputs(shape)
        tokens, topk = inputs.topk_indices.shape
        num_kv = inputs.kv.shape[0]
        plan = mha_sink.sparse_mla_plan(inputs.topk_indices, num_kv) if with_plan else None
        asked = []
        monkeypatch.setattr(_tensors, "workspace_fill", lambda block: asked.append(len(block)))
        arguments = (inputs.q, inputs.kv, inputs.do, inputs.o, inputs.lse, inputs.topk_indices)
        mha_sink.sparse_mla_bwd_dsv4(*arguments, inputs.sink, None, shape.r_chunk, plan=plan)
        assert asked == [
            _C.sparse_mla_bwd_workspace_bytes(
                tokens, shape.nhead, topk, num_kv, shape.r_chunk, with_plan
            )
        ]
        asked.clear()
        mha_sink.sparse_mla_fwd_dsv4(inputs.q, inputs.kv, inputs.topk_indices, plan=plan)
        size = _C.sparse_mla_fwd_workspace_bytes(tokens, topk, with_plan)
        assert asked == [size] * (size > 0)

    def test_chunks_shrink_it(self):
        def size(r_chunk):
            return _C.sparse_mla_bwd_workspace_bytes(4096, 128, 1024, 5120, r_chunk, True)

        slot = 4096 * (512 + 2 * 128) * 2  # its dkv, and P and dS of each head, in 16 bits
        sums = 4096 * 128 * 512 * 4 + 5120 * 512 * 4  # dq and dkv so far, in float32
        assert size(None) - size(512) >= 512 * slot - sums
        assert size(512) - size(128) >= 384 * slot


class TestRepeatability:
    @pytest.mark.parametrize("shape", [SMALL, CHUNKED])
    def test_bits_repeat_on_any_number_of_threads(self, shape, threads):
        inputs = make_sparse_inputs(dataclasses.replace(shape, num_pool=0))
        threads(1)
        first = (*forward(inputs), *backward(inputs))
        for count in (1, 2, 5):
            threads(count)
            assert same((*forward(inputs), *backward(inputs)), first), count

    @pytest.mark.parametrize("shape", [dataclasses.replace(SMALL, tokens=5), CHUNKED])
    def test_schedules_agree(self, shape, schedule):
        inputs = make_sparse_inputs(dataclasses.replace(shape, nhead=48))
        results = {}
        for quantum in (1, 50, 0):
            for reverse in (False, True):
                with schedule(quantum, reverse):
                    results[quantum, reverse] = (*forward(inputs), *backward(inputs))
        first = results.pop((0, False))
        for key, other in results.items():
            assert same(other, first), key


class TestSink:
    def test_minus_infinity_is_no_sink(self):
        inputs = make_sparse_inputs(dataclasses.replace(SMALL, sink_offsets=()))
        sink = torch.full((16,), -math.inf)
        assert same(forward(inputs, attn_sink=sink), forward(inputs))
        *gone, d_sink = backward(inputs, attn_sink=sink)
        assert same(gone, backward(inputs)[:2])
        assert (d_sink == 0).all()

    def test_only_d_sink_depends_on_the_sink(self):
        inputs = make_sparse_inputs(SMALL)
        assert same(backward(inputs)[:2], backward(inputs, attn_sink=None)[:2])

    @pytest.mark.parametrize("offset", [-1000.0, 100.0, 1000.0])
    def test_far_away_sinks_stay_finite(self, offset):
        inputs = make_sparse_inputs(dataclasses.replace(SMALL, sink_offsets=(offset,)))
        assert all(x.isfinite().all() for x in forward(inputs))
        written = run_sparse_bwd(inputs)
        assert all(x.isfinite().all() for x in written.values())
        if offset < 0:
            assert (written["d_sink"] == 0).all()

    def test_a_nan_sink_reaches_only_its_head(self):
        inputs = make_sparse_inputs(SMALL)
        sink = inputs.sink.clone()
        sink[2] = math.nan
        o, lse = forward(inputs, attn_sink=sink)
        head = torch.zeros(16, dtype=torch.bool)
        head[2] = True
        assert torch.equal(lse.isnan(), head.expand_as(lse))
        assert not o[:, ~head].isnan().any()
        dq, dkv, d_sink = backward(inputs, attn_sink=sink)
        assert torch.equal(d_sink.isnan(), head)
        assert not dq.isnan().any()
        assert not dkv.isnan().any()

    def test_an_lse_without_the_sink_gives_the_formula(self):
        inputs = make_sparse_inputs(dataclasses.replace(SMALL, sink_offsets=()))
        sink = torch.linspace(8, 12, 16)
        arguments = (
            inputs.do,
            inputs.q,
            inputs.kv,
            inputs.o,
            inputs.lse,
            inputs.topk_indices,
            sink,
        )
        x64 = sparse_reference.formula_bwd(*arguments, scale=SMALL.scale)
        xr = sparse_reference.mixed_bwd(*arguments, scale=SMALL.scale)
        written = sparse_reference.Gradients(*backward(inputs, attn_sink=sink))
        assert torch.exp(sink - inputs.lse).min() > 1
        result = check(written._asdict(), x64._asdict(), xr._asdict())
        assert result.passed, str(result)

    def test_a_sink_with_an_lse_of_minus_infinity(self):
        """Contradicting arguments: a row whose lse says that it has no slot gives nothing."""
        inputs = make_sparse_inputs(SMALL)
        lse = inputs.lse.clone()
        lse[:5] = -math.inf
        written = run_sparse_bwd(dataclasses.replace(inputs, lse=lse))
        assert all(x.isfinite().all() for x in written.values())
        assert (written["dq"][:5] == 0).all()


class TestLseGradient:
    @pytest.mark.parametrize("offsets", [(), (-math.inf, 0.0, -2.0, 2.0), SMALL.sink_offsets])
    @pytest.mark.parametrize("shape", [SMALL, CHUNKED])
    def test_through_the_gate(self, shape, offsets):
        indices = shape.indices()
        indices[3] = -1
        inputs = make_sparse_inputs(
            dataclasses.replace(shape, sink_offsets=offsets), topk_indices=indices
        )
        generator = torch.Generator().manual_seed(2)
        dlse = 4 * torch.randn(inputs.lse.shape, generator=generator)
        x64 = sparse_reference.definition_bwd(
            inputs.do, inputs.q, inputs.kv, indices, inputs.sink, scale=shape.scale, dlse=dlse
        )
        xr = sparse_reference.mixed_bwd(
            inputs.do, inputs.q, inputs.kv, inputs.o, inputs.lse, indices, inputs.sink,
            scale=shape.scale, dlse=dlse,
        )  # fmt: skip
        written = sparse_reference.Gradients(*backward(inputs, dlse=dlse))
        named = [
            {k: x for k, x in g._asdict().items() if x is not None} for g in (written, x64, xr)
        ]
        result = check(*named)
        assert result.passed, str(result)

    def test_zero_is_none(self):
        inputs = make_sparse_inputs(SMALL)
        assert same(backward(inputs, dlse=torch.zeros_like(inputs.lse)), backward(inputs))


class TestNan:
    def poison(self, name, at):
        inputs = make_sparse_inputs(SMALL)
        x = getattr(inputs, name).clone()
        x[at] = math.nan
        clean = backward(inputs)
        return inputs, clean, backward(inputs, **{name: x})

    @pytest.mark.parametrize("name", ["q", "do", "o", "lse"])
    def test_of_a_head_stays_with_it_and_its_rows(self, name):
        token, head = 5, 3
        at = (token, head) if name == "lse" else (token, head, 100)
        inputs, clean, dirty = self.poison(name, at)
        mine = torch.zeros(SMALL.tokens, 16, dtype=torch.bool)
        mine[token, head] = True
        assert dirty[0][mine].isnan().any()
        assert torch.equal(dirty[0][~mine], clean[0][~mine])
        row = inputs.topk_indices[token]
        seen = torch.zeros(SMALL.num_kv, dtype=torch.bool)
        seen[row[row >= 0].long()] = True
        assert dirty[1][seen].isnan().any(-1).all()
        assert torch.equal(dirty[1][~seen], clean[1][~seen])
        heads = torch.arange(16) == head
        assert torch.equal(dirty[2].isnan(), heads if name != "q" else heads & False)

    def test_of_a_row_of_kv_stays_with_the_tokens_that_see_it(self):
        inputs, clean, dirty = self.poison("kv", (7, 100))
        sees = (inputs.topk_indices == 7).any(-1)
        assert sees.any()
        assert not sees.all()
        assert dirty[0][sees].isnan().any(-1).all()
        assert torch.equal(dirty[0][~sees], clean[0][~sees])
        assert torch.equal(dirty[2], clean[2])
