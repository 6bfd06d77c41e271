"""The references for packed sequences against the dense ones and torch.autograd."""

from __future__ import annotations

import math

import pytest
import torch

from mha_sink import reference
from mha_sink.reference import Packing
from mha_sink.testing import PACKED_CASES, make_inputs, packed_case
from mha_sink.testing.inputs import outside_sequences

MASK = {"scale": 0.7, "causal": True, "window": (5, 0)}


def lengths(*values):
    return torch.tensor([0, *values]).cumsum(0).int()


def tensors(total_q, total_k, hq=4, hk=2, d=3, dv=5, batch=3):
    torch.manual_seed(11)
    q, k = torch.randn(total_q, hq, d).double(), torch.randn(total_k, hk, d).double()
    v, dout = torch.randn(total_k, hk, dv).double(), torch.randn(total_q, hq, dv).double()
    return q, k, v, dout, torch.randn(batch, hq).double(), torch.randn(hq, total_q).double()


def forwards():
    return [
        (reference.definition, reference.packed_definition),
        (reference.mixed, reference.packed_mixed),
    ]


@pytest.mark.parametrize(("dense", "packed"), forwards())
def test_sequences_of_one_length_are_a_batch(dense, packed):
    q, k, v, _, sink, _ = tensors(3 * 4, 3 * 6)
    packing = Packing(lengths(4, 4, 4), lengths(6, 6, 6))
    out, lse = packed(q, k, v, packing, sink, **MASK)
    batched = dense(*(x.unflatten(0, (3, -1)) for x in (q, k, v)), sink, **MASK)
    assert torch.equal(out, batched.out.flatten(0, 1))
    assert torch.equal(lse, batched.lse.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("per_sequence", [False, True])
def test_backward_of_sequences_of_one_length_is_that_of_a_batch(per_sequence):
    q, k, v, dout, sink, dlse = tensors(3 * 4, 3 * 6)
    sink = sink if per_sequence else sink[0]
    packing = Packing(lengths(4, 4, 4), lengths(6, 6, 6))
    out, lse = reference.packed_definition(q, k, v, packing, sink, **MASK)
    batch = {
        name: x.unflatten(0, (3, -1))
        for name, x in {"dout": dout, "q": q, "k": k, "v": v, "out": out}.items()
    }
    rows = {
        name: x.unflatten(1, (3, -1)).transpose(0, 1) for name, x in (("lse", lse), ("dlse", dlse))
    }
    pairs = {
        "definition": (
            reference.packed_definition_bwd(dout, q, k, v, packing, sink, dlse=dlse, **MASK),
            reference.definition_bwd(
                *(batch[name] for name in ("dout", "q", "k", "v")), sink, dlse=rows["dlse"], **MASK
            ),
        ),
        "formula": (
            reference.packed_formula_bwd(dout, q, k, v, out, lse, packing, sink, dlse=dlse, **MASK),
            reference.formula_bwd(**batch, **rows, sink=sink, **MASK),
        ),
        "mixed": (
            reference.packed_mixed_bwd(dout, q, k, v, out, lse, packing, sink, dlse=dlse, **MASK),
            reference.mixed_bwd(**batch, **rows, sink=sink, **MASK),
        ),
    }
    for name, (packed, dense) in pairs.items():
        for x, y in zip(packed[:3], dense[:3], strict=True):
            assert torch.equal(x, y.flatten(0, 1)), name
        assert torch.equal(packed.softmax_d, dense.softmax_d.transpose(0, 1).flatten(1)), name
        assert packed.d_sink.shape == sink.shape
        torch.testing.assert_close(packed.d_sink, dense.d_sink)


def test_sequences_lie_where_the_padded_lengths_say():
    packing = Packing(lengths(2, 0, 3), lengths(1, 4, 2), lengths(5, 1, 3), None)
    assert list(packing.sequences()) == [
        (0, slice(0, 2), slice(0, 1)),
        (1, slice(5, 5), slice(1, 5)),
        (2, slice(6, 9), slice(5, 7)),
    ]


def test_padding_moves_rows_and_leaves_zeros():
    q, k, v, dout, sink, dlse = tensors(12, 14, batch=2)
    packing = Packing(lengths(3, 4), lengths(5, 4), lengths(6, 5), lengths(7, 6))
    used_q = torch.tensor([0, 1, 2, 6, 7, 8, 9])
    used_k = torch.tensor([0, 1, 2, 3, 4, 7, 8, 9, 10])
    for x in (q, dout):
        x[[3, 4, 5, 10, 11]] = math.nan
    for x in (k, v):
        x[[5, 6, 11, 12, 13]] = math.nan
    compact = Packing(packing.cu_seqlens_q, packing.cu_seqlens_k)
    grads = reference.packed_definition_bwd(dout, q, k, v, packing, sink, dlse=dlse, **MASK)
    expected = reference.packed_definition_bwd(
        dout[used_q], q[used_q], k[used_k], v[used_k], compact, sink, dlse=dlse[:, used_q], **MASK
    )
    for name, rows, total in (("dq", used_q, 12), ("dk", used_k, 14), ("dv", used_k, 14)):
        x = getattr(grads, name)
        assert torch.equal(x[rows], getattr(expected, name))
        unused = torch.ones(total, dtype=torch.bool)
        unused[rows] = False
        assert (x[unused] == 0).all()
    assert torch.equal(grads.softmax_d[:, used_q], expected.softmax_d)
    assert grads.softmax_d.count_nonzero() == expected.softmax_d.count_nonzero()
    assert torch.equal(grads.d_sink, expected.d_sink)


def test_a_sequence_without_queries_or_keys():
    q, k, v, dout, sink, dlse = tensors(5, 7)
    packing = Packing(lengths(2, 0, 3), lengths(0, 4, 3))
    out, lse = reference.packed_definition(q, k, v, packing, sink, **MASK)
    assert (out[:2] == 0).all()
    assert torch.equal(lse[:, :2], sink[0, :, None].expand(-1, 2))
    grads = reference.packed_definition_bwd(dout, q, k, v, packing, sink, dlse=dlse, **MASK)
    assert (grads.dq[:2] == 0).all()
    assert (grads.dk[:4] == 0).all()
    assert (grads.dv[:4] == 0).all()
    # Alone with the sink, P_sink = 1 and delta = 0: the gradient of lse is the sink's.
    torch.testing.assert_close(grads.d_sink[0], dlse[:, :2].sum(1))
    assert (grads.d_sink[1] == 0).all()


class LossOnLse(torch.autograd.Function):
    """Packed attention in float64 with the closed-form backward."""

    @staticmethod
    def forward(ctx, q, k, v, sink, packing):
        out, lse = reference.packed_definition(q, k, v, packing, sink, **MASK)
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.packing = packing
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        q, k, v, sink, out, lse = ctx.saved_tensors
        grads = reference.packed_formula_bwd(
            dout, q, k, v, out, lse, ctx.packing, sink, dlse=dlse, **MASK
        )
        return grads.dq, grads.dk, grads.dv, grads.d_sink, None


@pytest.mark.parametrize("per_sequence", [False, True])
def test_gradients_of_out_and_lse_are_numerical_derivatives(per_sequence):
    q, k, v, _, sink, _ = tensors(5, 7, hq=2, hk=1, d=2, dv=3, batch=2)
    packing = Packing(lengths(2, 3), lengths(4, 3))
    inputs = [x.requires_grad_() for x in (q, k, v, sink if per_sequence else sink[0].clone())]
    assert torch.autograd.gradcheck(lambda *x: LossOnLse.apply(*x, packing), inputs)


def test_gradient_of_lse_where_the_sink_takes_everything():
    """lse is the sink there, so that its gradient is the sink's, and no key sees any of it."""
    q, k, v, dout, sink, dlse = (x[None] for x in tensors(4, 5, batch=1))
    sink = torch.full((1, 4), math.inf).double()
    out, lse = reference.definition(q, k, v, sink, scale=1.0)
    for grads in (
        reference.definition_bwd(dout, q, k, v, sink, scale=1.0, dlse=dlse),
        reference.formula_bwd(dout, q, k, v, out, lse, sink, scale=1.0, dlse=dlse),
    ):
        assert all((x == 0).all() for x in grads[:3])
        torch.testing.assert_close(grads.d_sink, dlse.sum(-1))


@pytest.mark.parametrize("shape", PACKED_CASES, ids=str)
def test_inputs_of_a_packed_case_hold_numbers_in_its_sequences_only(shape):
    inputs = make_inputs(shape)
    no_query, no_key = outside_sequences(shape, inputs.packing)
    assert (~no_query).sum() == sum(shape.seqlens_q)
    assert (~no_key).sum() == sum(shape.seqlens_k)
    for x, outside in ((inputs.q, no_query), (inputs.k, no_key), (inputs.lse.T, no_query)):
        assert x[outside].isnan().all()
        assert not x[~outside].isnan().any()
    if inputs.sink is not None:
        assert inputs.sink.shape == (len(shape.seqlens_q), shape.nhead_q)
        assert inputs.sink.isfinite().all()


def test_lists_of_a_packed_case_that_do_not_fit():
    with pytest.raises(ValueError, match="differ in length"):
        packed_case("bad", (1, 2), (3,), (2, 2), 64)
    with pytest.raises(ValueError, match="exceed their rooms"):
        packed_case("bad", (1, 2), (3, 3), (2, 2), 64, padded_k=(3, 2))
