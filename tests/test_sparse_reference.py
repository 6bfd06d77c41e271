"""The sparse references against torch.softmax, numerical derivatives, closed forms, each other."""

from __future__ import annotations

import math

import pytest
import torch

from mha_sink import sparse_reference
from mha_sink.testing.sparse_indices import uniform_indices

SCALE = 0.4
SINKS = {
    "none": None,
    "random": torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64),
    "infinite": torch.tensor([math.inf, -math.inf, 0.5], dtype=torch.float64),
}


def random_inputs(tokens=4, heads=3, num_kv=6, topk=5, dim=4):
    """Indices with empty slots, a token without any, and rows of kv that a token sees twice."""
    generator = torch.Generator().manual_seed(5)
    q, do = (torch.randn(tokens, heads, dim, generator=generator).double() for _ in range(2))
    kv = torch.randn(num_kv, dim, generator=generator).double()
    dlse = torch.randn(tokens, heads, generator=generator).double()
    indices = uniform_indices(tokens, topk, num_kv, empty=0.25, seed=3)
    indices[1] = -1
    indices[2, :5] = torch.tensor([2, 2, -1, 2, 5])
    return q, kv, do, dlse, indices


def by_softmax(q, kv, indices, sink):
    """torch.softmax over the sink and all rows of kv, weighted by how often the token sees each."""
    count = torch.zeros(len(q), len(kv), dtype=torch.float64)
    for token, row in enumerate(indices.tolist()):
        for index in row:
            count[token, index] += index >= 0
    scores = SCALE * torch.einsum("thd,nd->thn", q, kv) + count.log().unsqueeze(1)
    column = torch.full(q.shape[:2], -math.inf, dtype=torch.float64) if sink is None else (
        sink.expand(q.shape[:2])
    )  # fmt: skip
    logits = torch.cat([scores, column.unsqueeze(-1)], -1)
    p = logits.softmax(-1)[..., :-1]
    return torch.einsum("thn,nd->thd", p, kv), logits.logsumexp(-1)


@pytest.mark.parametrize("sink", ["none", "random"])
def test_definition_is_softmax_weighted_by_multiplicity(sink):
    q, kv, _, _, indices = random_inputs()
    o, lse = sparse_reference.definition(q, kv, indices, SINKS[sink], scale=SCALE)
    expected_o, expected_lse = by_softmax(q, kv, indices, SINKS[sink])
    seen = (indices >= 0).any(-1)
    torch.testing.assert_close(o[seen], expected_o[seen], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-13, atol=1e-13)


def test_one_slot_has_a_closed_form():
    q, kv, do = (torch.tensor(x).double() for x in ([[[1, 2]]], [[9, 9], [3, -1]], [[[2, 1]]]))
    sink = torch.tensor([0.25], dtype=torch.float64)
    row = kv[1]
    score, pull = 0.5 * (3 - 2), 2 * 3 - 1
    p = 1 / (1 + math.exp(0.25 - score))
    indices = torch.tensor([[1]])
    o, lse = sparse_reference.definition(q, kv, indices, sink, scale=0.5)
    torch.testing.assert_close(o[0, 0], p * row)
    assert lse.item() == pytest.approx(math.log(math.exp(0.25) + math.exp(score)))
    grads = sparse_reference.definition_bwd(do, q, kv, indices, sink, scale=0.5)
    slope = p * (1 - p) * pull
    torch.testing.assert_close(grads.dq[0, 0], 0.5 * slope * row)
    torch.testing.assert_close(grads.dkv[1], 0.5 * slope * q[0, 0] + p * do[0, 0])
    assert (grads.dkv[0] == 0).all()
    assert grads.d_sink.item() == pytest.approx(-slope)


class ByBackward(torch.autograd.Function):
    """The definition's forward with the backward under test."""

    @staticmethod
    def forward(ctx, q, kv, sink, indices, backward):
        o, lse = sparse_reference.definition(q, kv, indices, sink, scale=SCALE)
        ctx.save_for_backward(q, kv, sink, indices, o, lse)
        ctx.backward = backward
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, kv, sink, indices, o, lse = ctx.saved_tensors
        if ctx.backward == "definition_bwd":
            grads = sparse_reference.definition_bwd(
                do, q, kv, indices, sink, scale=SCALE, dlse=dlse
            )
        else:
            grads = sparse_reference.formula_bwd(
                do, q, kv, o, lse, indices, sink, scale=SCALE, dlse=dlse
            )
        return *grads, None, None


@pytest.mark.parametrize("backward", ["definition_bwd", "formula_bwd"])
def test_gradients_are_numerical_derivatives(backward):
    q, kv, _, _, indices = random_inputs()
    leaves = [x.clone().requires_grad_() for x in (q, kv, SINKS["random"])]
    assert torch.autograd.gradcheck(lambda *x: ByBackward.apply(*x, indices, backward), leaves)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("with_dlse", [False, True])
def test_formula_equals_definition(sink, with_dlse):
    q, kv, do, dlse, indices = random_inputs()
    dlse = dlse if with_dlse else None
    o, lse = sparse_reference.definition(q, kv, indices, SINKS[sink], scale=SCALE)
    by_autograd = sparse_reference.definition_bwd(
        do, q, kv, indices, SINKS[sink], scale=SCALE, dlse=dlse
    )
    by_formula = sparse_reference.formula_bwd(
        do, q, kv, o, lse, indices, SINKS[sink], scale=SCALE, dlse=dlse
    )
    for x, y in zip(by_autograd, by_formula, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            torch.testing.assert_close(y, x, rtol=1e-12, atol=1e-12)


def test_blocks_of_tokens_change_nothing(monkeypatch):
    q, kv, do, dlse, indices = random_inputs()
    sink = SINKS["random"]
    whole = sparse_reference.definition_bwd(do, q, kv, indices, sink, scale=SCALE, dlse=dlse)
    o, lse = sparse_reference.definition(q, kv, indices, sink, scale=SCALE)
    monkeypatch.setattr(sparse_reference, "BLOCK_ELEMENTS", 3 * 5 * 4)
    parts = sparse_reference.definition_bwd(do, q, kv, indices, sink, scale=SCALE, dlse=dlse)
    for x, y in zip(whole, parts, strict=True):
        torch.testing.assert_close(y, x, rtol=1e-13, atol=1e-13)
    again = sparse_reference.definition(q, kv, indices, sink, scale=SCALE)
    torch.testing.assert_close(again.out, o, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(again.lse, lse, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("sink", SINKS)
def test_a_token_without_slots(sink):
    q, kv, do, dlse, indices = random_inputs()
    o, lse = sparse_reference.definition(q, kv, indices, SINKS[sink], scale=SCALE)
    assert (o[1] == 0).all()
    column = torch.full((3,), -math.inf) if sink == "none" else SINKS[sink]
    assert torch.equal(lse[1], column.double())
    without = indices.clone()
    without[:] = -1
    grads = sparse_reference.definition_bwd(do, q, kv, without, SINKS[sink], scale=SCALE, dlse=dlse)
    assert (grads.dq == 0).all()
    assert (grads.dkv == 0).all()
    if sink != "none":
        reached = dlse.sum(0).masked_fill(column == -math.inf, 0.0)
        torch.testing.assert_close(grads.d_sink, reached)


def test_no_sink_is_a_sink_of_minus_infinity():
    q, kv, do, _, indices = random_inputs()
    gone = torch.full((3,), -math.inf)
    a = sparse_reference.definition_bwd(do, q, kv, indices, None, scale=SCALE)
    b = sparse_reference.definition_bwd(do, q, kv, indices, gone, scale=SCALE)
    assert torch.equal(a.dq, b.dq)
    assert torch.equal(a.dkv, b.dkv)
    assert a.d_sink is None
    assert (b.d_sink == 0).all()


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_rounds_and_nothing_else(sink, dtype):
    """Within a few units of the dtype's last place of the float64 gradients of rounded inputs."""
    inputs = random_inputs(tokens=20, num_kv=30, topk=16, dim=32)
    q, kv, do = (x.to(dtype) for x in inputs[:3])
    indices = inputs[4]
    o, lse = sparse_reference.mixed(q, kv, indices, SINKS[sink], scale=SCALE)
    assert o.dtype == dtype
    assert lse.dtype == torch.float32
    x64 = sparse_reference.definition(q, kv, indices, SINKS[sink], scale=SCALE)
    grads = sparse_reference.mixed_bwd(do, q, kv, o, lse, indices, SINKS[sink], scale=SCALE)
    g64 = sparse_reference.definition_bwd(do, q, kv, indices, SINKS[sink], scale=SCALE)
    bound = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(lse.double(), x64.lse, rtol=1e-5, atol=1e-5)
    for x, y in [(o, x64.out), *zip(grads, g64, strict=True)]:
        if y is not None:
            assert (x.double() - y).abs().max() <= bound * y.abs().max()
    assert grads.dq.dtype == grads.dkv.dtype == dtype
