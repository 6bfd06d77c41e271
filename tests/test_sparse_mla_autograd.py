"""`sparse_mla` under autograd, against float64."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import mha_sink
from mha_sink import sparse_reference
from mha_sink.testing import SparseCase, check, make_sparse_inputs

SHAPE = SparseCase("autograd", 20, 8, 64, num_pool=7)
SINK = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0, 5.0, 7.0, -math.inf])


def inputs_with_an_empty_token(shape=SHAPE, sink=SINK):
    indices = shape.indices()
    indices[2] = -1
    return make_sparse_inputs(shape, topk_indices=indices, sink=sink)


def leaves(inputs, sink_dtype=torch.float32):
    sink = inputs.sink
    if sink is not None:
        sink = sink.clone().to(sink_dtype).requires_grad_()
    return inputs.q.clone().requires_grad_(), inputs.kv.clone().requires_grad_(), sink


def gradients_pass(inputs, do, dlse, q, kv, sink):
    """The gate on what autograd left in the leaves, from the kernels' own `o` and `lse`."""
    given = (inputs.q, inputs.kv, inputs.topk_indices, None if sink is None else sink.float())
    with torch.no_grad():
        o, lse = mha_sink.sparse_mla_fwd_dsv4(*given)
        x64 = sparse_reference.definition_bwd(do, *given, scale=SHAPE.scale, dlse=dlse)
        xr = sparse_reference.mixed_bwd(
            do, inputs.q, inputs.kv, o, lse, *given[2:], scale=SHAPE.scale, dlse=dlse
        )
    against = [{"dq": grads.dq, "dkv": grads.dkv} for grads in (x64, xr)]
    written = {"dq": q.grad, "dkv": kv.grad}
    if sink is not None:
        assert sink.grad.dtype == sink.dtype
        written["d_sink"] = sink.grad
        against[0]["d_sink"], against[1]["d_sink"] = x64.d_sink, xr.d_sink.to(sink.dtype)
    result = check(written, *against)
    assert result.passed, str(result)


@pytest.mark.parametrize("sink", [None, SINK])
def test_gradients(sink):
    inputs = inputs_with_an_empty_token(sink=sink)
    q, kv, sink = leaves(inputs)
    o = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink)
    o.backward(inputs.do)
    gradients_pass(inputs, inputs.do, None, q, kv, sink)


@pytest.mark.parametrize("sink", [None, SINK])
def test_gradients_through_lse(sink):
    inputs = inputs_with_an_empty_token(sink=sink)
    dlse = 3 * torch.randn(inputs.lse.shape, generator=torch.Generator().manual_seed(1))
    q, kv, sink = leaves(inputs)
    o, lse = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink, return_lse=True)
    assert lse.dtype == torch.float32
    torch.autograd.backward((o, lse), (inputs.do, dlse))
    gradients_pass(inputs, inputs.do, dlse, q, kv, sink)


def test_gradients_through_lse_alone():
    inputs = inputs_with_an_empty_token()
    q, kv, sink = leaves(inputs)
    _, lse = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink, return_lse=True)
    seen = lse.isfinite()
    loss = (lse[seen] ** 2).sum()  # a z-loss
    loss.backward()
    dlse = (2 * lse.detach()).masked_fill(~seen, 0.0)
    gradients_pass(inputs, torch.zeros_like(inputs.do), dlse, q, kv, sink)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_gradient_of_the_sink_has_its_dtype(dtype):
    inputs = inputs_with_an_empty_token()
    q, kv, sink = leaves(inputs, dtype)
    mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink).backward(inputs.do)
    gradients_pass(inputs, inputs.do, None, q, kv, sink)


def test_it_is_the_forward_and_the_backward():
    inputs = make_sparse_inputs(SHAPE)
    q, kv, sink = leaves(inputs)
    o, lse = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink, 0.05, True)
    given = (inputs.q, inputs.kv, inputs.topk_indices, inputs.sink, 0.05)
    expected_o, expected_lse = mha_sink.sparse_mla_fwd_dsv4(*given)
    assert torch.equal(o, expected_o)
    assert torch.equal(lse, expected_lse)
    o.backward(inputs.do)
    grads = mha_sink.sparse_mla_bwd_dsv4(
        inputs.q, inputs.kv, inputs.do, expected_o, expected_lse, *given[2:]
    )
    for x, y in zip((q.grad, kv.grad, sink.grad), grads, strict=True):
        assert torch.equal(x, y)


def test_layers_that_share_a_plan():
    inputs = make_sparse_inputs(SHAPE)
    plan = mha_sink.sparse_mla_plan(inputs.topk_indices, inputs.kv.shape[0])

    def two_layers(plan):
        q, kv, sink = leaves(inputs)
        between = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink, plan=plan)
        o = mha_sink.sparse_mla(between, kv, inputs.topk_indices, sink, plan=plan)
        o.backward(inputs.do)
        return o.detach(), q.grad, kv.grad, sink.grad

    for x, y in zip(two_layers(plan), two_layers(None), strict=True):
        assert torch.equal(x, y)


def test_only_what_needs_a_gradient_gets_one():
    inputs = make_sparse_inputs(SHAPE)
    q, kv, sink = inputs.q.clone(), inputs.kv, inputs.sink.clone().requires_grad_()
    o = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink)
    o.backward(inputs.do)
    assert sink.grad is not None
    assert q.grad is kv.grad is None
    assert not mha_sink.sparse_mla(q, kv, inputs.topk_indices, inputs.sink).requires_grad
    with torch.no_grad():
        assert not mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink).requires_grad


def test_an_expanded_gradient():
    inputs = make_sparse_inputs(SHAPE)
    q, kv, sink = leaves(inputs)
    o, lse = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink, return_lse=True)
    (o.float().sum() + lse.sum()).backward()
    do, dlse = torch.ones_like(inputs.do), torch.ones_like(inputs.lse)
    gradients_pass(inputs, do, dlse, q, kv, sink)


def test_changing_an_input_in_place_is_noticed():
    inputs = make_sparse_inputs(SHAPE)
    q, kv, sink = leaves(inputs)
    shifted = q * 1
    o = mha_sink.sparse_mla(shifted, kv, inputs.topk_indices, sink)
    shifted.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_there_is_no_second_derivative():
    inputs = make_sparse_inputs(SHAPE)
    q, kv, sink = leaves(inputs)
    o = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink)
    (dq,) = torch.autograd.grad(o.float().pow(2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


@pytest.mark.parametrize(("tokens", "topk"), [(0, 32), (4, 0)])
def test_nothing_to_attend_to(tokens, topk):
    inputs = make_sparse_inputs(dataclasses.replace(SHAPE, tokens=tokens, topk=topk), sink=SINK)
    q, kv, sink = leaves(inputs)
    o, lse = mha_sink.sparse_mla(q, kv, inputs.topk_indices, sink, return_lse=True)
    torch.autograd.backward((o, lse), (inputs.do, torch.ones_like(lse)))
    assert (q.grad == 0).all()
    assert (kv.grad == 0).all()
    # lse is the sink: its gradient is that of lse, and 0 where no sink was.
    assert torch.equal(sink.grad, tokens * (sink.detach() != -math.inf).float())


def test_an_argument_that_is_refused():
    inputs = make_sparse_inputs(SHAPE)
    with pytest.raises(mha_sink.InvalidArgument, match=r"kv.* 5 given, at least 20 needed"):
        mha_sink.sparse_mla(inputs.q, inputs.kv[:5], inputs.topk_indices)
    with pytest.raises(TypeError, match="q is a int"):
        mha_sink.sparse_mla(3, inputs.kv, inputs.topk_indices)
