"""The references against closed forms, torch.softmax, numerical derivatives and each other."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from mha_sink import reference
from mha_sink.testing import case, make_inputs

MASKS: list[dict[str, Any]] = [
    {"causal": False, "window": (-1, -1)},
    {"causal": True, "window": (-1, -1)},
    {"causal": True, "window": (2, 5)},
    {"causal": False, "window": (1, 2)},
    {"causal": False, "window": (-1, 0)},
]
SEQLENS = [(5, 5), (3, 7), (7, 3), (1, 4)]


def random_inputs(sq: int, sk: int, hq: int = 4, hk: int = 2, d: int = 3, b: int = 2):
    torch.manual_seed(7)
    q, dout = (torch.randn(b, sq, hq, d, dtype=torch.float64) for _ in range(2))
    k, v = (torch.randn(b, sk, hk, d, dtype=torch.float64) for _ in range(2))
    return q, k, v, torch.randn(b, hq, dtype=torch.float64), dout


def by_softmax(q, k, v, sink, scale, causal, window):
    """torch.softmax over the scores with the sink as one more column, KV heads repeated."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    left, right = window
    right = 0 if causal else right
    for i, j in itertools.product(range(q.shape[1]), range(k.shape[1])):
        position = i + k.shape[1] - q.shape[1]
        if (left >= 0 and j < position - left) or (right >= 0 and j > position + right):
            scores[:, :, i, j] = -math.inf
    column = sink[:, :, None, None].expand(*scores.shape[:3], 1)
    logits = torch.cat([scores, column], dim=-1)
    out = torch.einsum("bhij,bjhd->bihd", logits.softmax(-1)[..., :-1], v)
    return out, logits.logsumexp(-1)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("sq", "sk"), SEQLENS)
def test_definition_is_softmax_with_one_more_column(sq, sk, mask):
    q, k, v, sink, _ = random_inputs(sq, sk)
    out, lse = reference.definition(q, k, v, sink, scale=0.7, **mask)
    expected_out, expected_lse = by_softmax(q, k, v, sink, 0.7, **mask)
    torch.testing.assert_close(out, expected_out, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-13, atol=1e-13)


def test_one_query_and_key_have_a_closed_form():
    q, k, v, dout = (
        torch.tensor(x).double().view(1, 1, 1, 2) for x in ([1, 2], [3, -1], [5, 7], [2, 1])
    )
    sink = torch.tensor([[0.25]], dtype=torch.float64)
    score, pull = 0.5 * (3 - 2), 2 * 5 + 7
    p = 1 / (1 + math.exp(0.25 - score))
    out, lse = reference.definition(q, k, v, sink, scale=0.5)
    torch.testing.assert_close(out, p * v)
    assert lse.item() == pytest.approx(math.log(math.exp(0.25) + math.exp(score)))
    grads = reference.definition_bwd(dout, q, k, v, sink, scale=0.5)
    torch.testing.assert_close(grads.dq, 0.5 * p * (1 - p) * pull * k)
    torch.testing.assert_close(grads.dk, 0.5 * p * (1 - p) * pull * q)
    torch.testing.assert_close(grads.dv, p * dout)
    assert grads.softmax_d.item() == pytest.approx(p * pull)
    assert grads.d_sink is not None
    assert grads.d_sink.item() == pytest.approx(-(1 - p) * p * pull)


class ByBackward(torch.autograd.Function):
    """The definition's forward with the backward under test."""

    @staticmethod
    def forward(ctx, q, k, v, sink, mask, backward):
        out, lse = reference.definition(q, k, v, sink, **mask)
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.mask, ctx.backward = mask, backward
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        q, k, v, sink, out, lse = ctx.saved_tensors
        if ctx.backward == "definition_bwd":
            grads = reference.definition_bwd(dout, q, k, v, sink, dlse=dlse, **ctx.mask)
        else:
            grads = reference.formula_bwd(dout, q, k, v, out, lse, sink, dlse=dlse, **ctx.mask)
        return grads.dq, grads.dk, grads.dv, grads.d_sink, None, None


@pytest.mark.parametrize("backward", ["definition_bwd", "formula_bwd"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("per_batch", [False, True])
def test_gradients_are_numerical_derivatives(mask, per_batch, backward):
    q, k, v, sink, _ = random_inputs(3, 4, hq=2, hk=1, d=2)
    inputs = [x.requires_grad_() for x in (q, k, v, sink if per_batch else sink[0].clone())]
    assert torch.autograd.gradcheck(
        lambda *x: ByBackward.apply(*x, {"scale": 0.6, **mask}, backward), inputs
    )


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("sq", "sk"), SEQLENS)
@pytest.mark.parametrize("with_sink", [False, True])
def test_formula_equals_definition(sq, sk, mask, with_sink):
    q, k, v, sink, dout = random_inputs(sq, sk)
    sink = sink if with_sink else None
    out, lse = reference.definition(q, k, v, sink, scale=0.7, **mask)
    by_autograd = reference.definition_bwd(dout, q, k, v, sink, scale=0.7, **mask)
    by_formula = reference.formula_bwd(dout, q, k, v, out, lse, sink, scale=0.7, **mask)
    for name, x in by_autograd._asdict().items():
        torch.testing.assert_close(getattr(by_formula, name), x, rtol=1e-12, atol=1e-12)


def test_mixed_in_float32_is_the_definition_to_float32():
    q, k, v, sink, dout = (x.float() for x in random_inputs(9, 11))
    mask = {"scale": 0.7, "causal": True}
    exact = reference.definition(q, k, v, sink, **mask)
    out, lse = reference.mixed(q, k, v, sink, **mask)
    assert out.dtype == lse.dtype == torch.float32
    torch.testing.assert_close(out.double(), exact.out, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(lse.double(), exact.lse, rtol=1e-6, atol=1e-6)
    exact_bwd = reference.definition_bwd(dout, q, k, v, sink, **mask)
    for name, x in reference.mixed_bwd(dout, q, k, v, out, lse, sink, **mask)._asdict().items():
        torch.testing.assert_close(x.double(), getattr(exact_bwd, name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["smoke/d64-causal", "gqa/h6-k2"])
def test_mixed_in_bfloat16_is_off_by_some_roundings(name):
    inputs = make_inputs(case(name))
    q, k, v, sink, mask = inputs.q, inputs.k, inputs.v, inputs.sink, inputs.case.mask
    exact = reference.definition_bwd(inputs.dout, q, k, v, sink, **mask)
    rounded = reference.mixed_bwd(inputs.dout, q, k, v, inputs.out, inputs.lse, sink, **mask)
    assert rounded.dq.dtype == rounded.dk.dtype == rounded.dv.dtype == torch.bfloat16
    assert rounded.softmax_d.dtype == torch.float32
    for name, x in rounded._asdict().items():
        error = (x.double() - getattr(exact, name)).abs().max() / getattr(exact, name).abs().max()
        # One rounding to bfloat16 is 2^-9 relative; neither none nor more than a few.
        assert 2**-12 < error < 2**-6, name


def test_gqa_sums_over_the_heads_of_a_group():
    q, k, v, sink, dout = random_inputs(4, 6)
    grads = reference.definition_bwd(dout, q, k, v, sink, scale=1.0)
    expanded = reference.definition_bwd(
        dout, q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2), sink, scale=1.0
    )
    torch.testing.assert_close(grads.dq, expanded.dq)
    torch.testing.assert_close(grads.dk, expanded.dk.unflatten(2, (2, 2)).sum(3))
    torch.testing.assert_close(grads.dv, expanded.dv.unflatten(2, (2, 2)).sum(3))


@pytest.mark.parametrize("sink", [None, 1.5, -math.inf])
def test_rows_that_see_no_key(sink):
    q, k, v, sinks, dout = random_inputs(5, 2)
    sinks = None if sink is None else torch.full_like(sinks, sink)
    mask = {"scale": 1.0, "causal": True}
    out, lse = reference.definition(q, k, v, sinks, **mask)
    assert (out[:, :3] == 0).all()
    assert (lse[:, :, :3] == (-math.inf if sink is None else sink)).all()
    alone = reference.definition_bwd(dout[:, 3:], q[:, 3:], k, v, sinks, **mask)
    for grads in (
        reference.definition_bwd(dout, q, k, v, sinks, **mask),
        reference.formula_bwd(dout, q, k, v, out, lse, sinks, **mask),
    ):
        assert (grads.dq[:, :3] == 0).all()
        torch.testing.assert_close(grads.dq[:, 3:], alone.dq)
        torch.testing.assert_close(grads.dk, alone.dk)
        torch.testing.assert_close(grads.dv, alone.dv)
        torch.testing.assert_close(grads.d_sink, alone.d_sink)


@pytest.mark.parametrize(("sq", "sk"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("with_sink", [False, True])
def test_empty_sequences(sq, sk, with_sink):
    q, k, v, sink, dout = random_inputs(sq, sk)
    sink = sink if with_sink else None
    out, lse = reference.definition(q, k, v, sink, scale=1.0)
    out32, lse32 = reference.mixed(q, k, v, sink, scale=1.0)
    empty_lse = torch.full_like(lse, -math.inf) if sink is None else sink[..., None].expand_as(lse)
    assert torch.equal(lse, empty_lse)
    assert torch.equal(lse32, empty_lse.float())
    assert (out == 0).all()
    assert (out32 == 0).all()
    for grads in (
        reference.definition_bwd(dout, q, k, v, sink, scale=1.0),
        reference.mixed_bwd(dout, q, k, v, out, lse, sink, scale=1.0),
    ):
        assert all((x == 0).all() for x in grads if x is not None)
        assert grads.dk.shape == k.shape


def test_infinite_sinks():
    q, k, v, sink, dout = random_inputs(4, 5)
    mask = {"scale": 1.0, "causal": True}
    without = reference.definition_bwd(dout, q, k, v, None, **mask)
    gone = reference.definition_bwd(dout, q, k, v, torch.full_like(sink, -math.inf), **mask)
    for name in ("dq", "dk", "dv", "softmax_d"):
        assert torch.equal(getattr(gone, name), getattr(without, name))
    assert gone.d_sink is not None
    assert (gone.d_sink == 0).all()
    everything = torch.full_like(sink, math.inf)
    for forward in (reference.definition, reference.mixed):
        out, lse = forward(q, k, v, everything, **mask)
        assert (out == 0).all()
        assert (lse == math.inf).all()
        for grads in (
            reference.definition_bwd(dout, q, k, v, everything, **mask),
            reference.mixed_bwd(dout, q, k, v, out, lse, everything, **mask),
        ):
            assert all((x == 0).all() for x in grads if x is not None)


def test_a_huge_finite_sink_overflows_nothing():
    q, k, v, sink, dout = random_inputs(4, 5)
    for value in (-3e38, -1000.0, 1000.0, 3e38):
        sinks = torch.full_like(sink, value)
        out, lse = reference.mixed(q.float(), k.float(), v.float(), sinks.float(), scale=1.0)
        grads = reference.mixed_bwd(dout, q, k, v, out, lse, sinks, scale=1.0)
        exact = reference.definition_bwd(dout, q, k, v, sinks, scale=1.0)
        assert all(x.isfinite().all() for x in (out, lse, *grads, *exact) if x is not None)


def test_a_shared_sink_gets_the_sum_over_the_batch():
    q, k, v, sink, dout = random_inputs(4, 5)
    shared = reference.definition_bwd(dout, q, k, v, sink[0], scale=1.0)
    each = reference.definition_bwd(dout, q, k, v, sink[0].expand(2, -1), scale=1.0)
    assert shared.d_sink is not None
    assert each.d_sink is not None
    assert shared.d_sink.shape == (4,)
    torch.testing.assert_close(shared.d_sink, each.d_sink.sum(0))


def test_lse_with_sink():
    q, k, v, sink, _ = random_inputs(5, 2)
    lse = reference.definition(q, k, v, scale=1.0, causal=True).lse
    expected = reference.definition(q, k, v, sink, scale=1.0, causal=True).lse
    torch.testing.assert_close(reference.lse_with_sink(lse, sink), expected)
    torch.testing.assert_close(reference.lse_with_sink(lse[:1], sink[0]), expected[:1])
    assert torch.equal(reference.lse_with_sink(lse, torch.full((4,), -math.inf)), lse)
    assert reference.lse_with_sink(lse.float(), sink).dtype == torch.float32
    with pytest.raises(ValueError, match=r"lse has shape \[2, 4, 5\] and sink \[3\]; need"):
        reference.lse_with_sink(lse, sink[0, :3])
    packed = lse.transpose(0, 1).flatten(1)
    expected = reference.lse_with_sink(lse, sink[0]).transpose(0, 1).flatten(1)
    assert torch.equal(reference.lse_with_sink(packed, sink[0]), expected)
    with pytest.raises(ValueError, match=r"lse has shape \[4, 10\] and sink \[2, 4\]; need"):
        reference.lse_with_sink(packed, sink)


def test_head_counts_that_do_not_divide():
    q, k, v, sink, _ = random_inputs(3, 3, hq=3, hk=2)
    with pytest.raises(ValueError, match="q has 3 heads and k has 2"):
        reference.definition(q, k, v, sink, scale=1.0)
