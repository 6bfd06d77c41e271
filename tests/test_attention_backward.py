"""`attention_backward`: the gradient of lse, d_sink as the sink's gradient, keywords, refusals."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
import torch

import mha_sink
from mha_sink import reference
from mha_sink.testing import Case, case, check, make_inputs, packed_case

DENSE = Case("dense", 2, 33, 65, 4, 2, 64, causal=True)
PACKED = packed_case("packed", (33, 0, 17), (65, 9, 20), (4, 2), 64, causal=True)
SHAPES = [DENSE, PACKED]


def tensors(inputs):
    return tuple(getattr(inputs, name) for name in ("dout", "q", "k", "v", "out", "lse"))


def options(inputs, **more):
    lengths = {} if inputs.packing is None else inputs.packing._asdict()
    return {"causal": inputs.case.causal, "window": inputs.case.window, **lengths, **more}


def gate(inputs, grads, sink, dlse=None):
    """dq, dk, dv and d_sink, of the sink's own shape, against the references."""
    dout, q, k, v, out, lse = tensors(inputs)
    given = {"dlse": dlse, **inputs.case.mask}
    if inputs.packing is None:
        x64 = reference.definition_bwd(dout, q, k, v, sink, **given)
        xr = reference.mixed_bwd(dout, q, k, v, out, lse, sink, **given)
    else:
        x64 = reference.packed_definition_bwd(dout, q, k, v, inputs.packing, sink, **given)
        xr = reference.packed_mixed_bwd(dout, q, k, v, out, lse, inputs.packing, sink, **given)
    names = [name for name, x in grads._asdict().items() if x is not None]
    result = check(*({name: getattr(x, name) for name in names} for x in (grads, x64, xr)))
    assert result.passed, str(result)


def with_shared_sink(inputs):
    """The first sequence's sink for all, and the forward of it."""
    sink = inputs.sink[0]
    q, k, v = inputs.q, inputs.k, inputs.v
    if inputs.packing is None:
        out, lse = reference.mixed(q, k, v, sink, **inputs.case.mask)
    else:
        out, lse = reference.packed_mixed(q, k, v, inputs.packing, sink, **inputs.case.mask)
    return dataclasses.replace(inputs, out=out, lse=lse, sink=sink)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("shared", [True, False])
def test_d_sink_has_the_shape_of_the_sink(shape, shared):
    inputs = make_inputs(shape)
    inputs = with_shared_sink(inputs) if shared else inputs
    grads = mha_sink.attention_backward(*tensors(inputs), **options(inputs, sink=inputs.sink))
    assert grads.d_sink.shape == inputs.sink.shape
    gate(inputs, grads, inputs.sink)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_d_sink_has_the_dtype_of_the_sink(dtype):
    inputs = with_shared_sink(make_inputs(DENSE))
    sink = inputs.sink.to(dtype)
    grads = mha_sink.attention_backward(*tensors(inputs), **options(inputs, sink=sink))
    in_float = mha_sink.attention_backward(*tensors(inputs), **options(inputs, sink=sink.float()))
    assert grads.d_sink.dtype == dtype
    assert torch.equal(grads.d_sink, in_float.d_sink.to(dtype))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_without_a_sink_there_is_no_d_sink(shape):
    inputs = make_inputs(dataclasses.replace(shape, sink_offsets=()))
    grads = mha_sink.attention_backward(*tensors(inputs), **options(inputs))
    assert grads.d_sink is None
    gate(inputs, grads, None)


@pytest.mark.parametrize("shape", [*SHAPES, case("window/both"), case("packed/padded")], ids=str)
@pytest.mark.parametrize("with_sink", [True, False])
def test_gradient_of_lse(shape, with_sink):
    inputs = make_inputs(shape if with_sink else dataclasses.replace(shape, sink_offsets=()))
    dlse = torch.randn_like(inputs.lse)
    grads = mha_sink.attention_backward(
        *tensors(inputs), **options(inputs, sink=inputs.sink, dlse=dlse)
    )
    gate(inputs, grads, inputs.sink, dlse)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_loss_on_lse_alone(shape):
    """A z-loss: dout is 0, so that everything comes from dlse."""
    inputs = make_inputs(shape)
    inputs = dataclasses.replace(inputs, dout=torch.zeros_like(inputs.dout))
    dlse = inputs.lse.nan_to_num() * 0.1
    grads = mha_sink.attention_backward(
        *tensors(inputs), **options(inputs, sink=inputs.sink, dlse=dlse)
    )
    assert (grads.dv == 0).all()
    assert grads.dq.abs().max() > 0
    gate(inputs, grads, inputs.sink, dlse)


def test_expanded_gradients():
    """What autograd hands over for the loss out.sum() + lse.sum()."""
    inputs = make_inputs(DENSE)
    dout = torch.ones((), dtype=inputs.dout.dtype).expand_as(inputs.dout)
    dlse = torch.ones(()).expand_as(inputs.lse)
    assert set(dout.stride()) == set(dlse.stride()) == {0}
    inputs = dataclasses.replace(inputs, dout=dout)
    grads = mha_sink.attention_backward(
        *tensors(inputs), **options(inputs, sink=inputs.sink, dlse=dlse)
    )
    gate(inputs, grads, inputs.sink, dlse)


def test_the_default_scale_is_that_of_the_head_dim_before_padding():
    inputs = make_inputs(dataclasses.replace(DENSE, hdim=59, sink_offsets=()))
    default = mha_sink.attention_backward(*tensors(inputs), **options(inputs))
    explicit = mha_sink.attention_backward(*tensors(inputs), **options(inputs, scale=59**-0.5))
    assert torch.equal(default.dk, explicit.dk)
    gate(inputs, default, None)


def test_longest_sequences_may_be_given_or_found():
    inputs = make_inputs(PACKED)
    found = mha_sink.attention_backward(*tensors(inputs), **options(inputs))
    given = mha_sink.attention_backward(
        *tensors(inputs), **options(inputs, max_seqlen_q=33, max_seqlen_k=100)
    )
    assert torch.equal(found.dk, given.dk)
    assert torch.equal(found.dv, given.dv)


def test_the_third_window_value_may_be_zero():
    inputs = make_inputs(case("window/both"))
    two = mha_sink.attention_backward(*tensors(inputs), **options(inputs, window=(40, 20)))
    three = mha_sink.attention_backward(*tensors(inputs), **options(inputs, window=[40, 20, 0]))
    assert torch.equal(two.dk, three.dk)


def refused(error, inputs, message, **changes):
    with pytest.raises(error, match=message):
        mha_sink.attention_backward(*tensors(inputs), **options(inputs, **changes))


def test_sink_tokens_are_refused():
    refused(
        mha_sink.Unsupported, make_inputs(DENSE),
        r"^window: sink_size 4 .*first keys.*supported: 0.*learnable sink is the argument sink",
        window=(40, 0, 4),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": (3,)}, r"^window: \(3,\) given, \(left, right\) needed"),
        ({"window": (-2, 0)}, r"^window\[0\]: -2 given"),
        ({"window": (0, -3), "causal": False}, r"^window\[1\]: -3 given"),
        ({"scale": float("nan")}, r"^scale: nan given"),
        ({"sink": torch.zeros(3)}, r"^sink: shape \[3\] given, \[hq\] = \[4\] or"),
        ({"dlse": torch.zeros(2, 4, 32)}, r"^dlse: shape \[2, 4, 32\] given.*\[2, 4, 33\]"),
        ({"dlse": torch.zeros(2, 4, 33).double()}, r"^dlse: dtype float64 given"),
        ({"cu_seqlens_k": torch.tensor([0, 3])}, r"^cu_seqlens_q: None given with cu_seqlens_k"),
        ({"max_seqlen_q": 3}, r"^cu_seqlens_q: None given with max_seqlen_q"),
        (
            {"cu_seqlens_q": torch.tensor([0, 3], dtype=torch.int32)},
            r"^q: shape \[2, 33, 4, 64\] given, 3 dimensions",
        ),
    ],
)
def test_refusals(changes, message):
    refused(mha_sink.InvalidArgument, make_inputs(DENSE), message, **changes)


def test_packed_tensors_need_the_lengths_of_keys():
    refused(
        mha_sink.InvalidArgument, make_inputs(PACKED),
        r"^cu_seqlens_k: None given, a tensor needed", cu_seqlens_k=None,
    )  # fmt: skip


def test_refusals_name_lse_as_it_is_called_here():
    inputs = make_inputs(DENSE)
    inputs = dataclasses.replace(inputs, lse=inputs.lse.double())
    refused(mha_sink.InvalidArgument, inputs, r"^lse: dtype float64 given, float32 needed")


@pytest.mark.parametrize("name", ["sink", "dlse", "cu_seqlens_q"])
def test_no_tensor(name):
    inputs = make_inputs(DENSE)
    with pytest.raises(TypeError, match=f"attention_backward: {name} is a list; need"):
        mha_sink.attention_backward(*tensors(inputs), **options(inputs, **{name: [0.0]}))


@pytest.mark.parametrize("name", ["dout", "q", "k", "v", "out", "lse"])
def test_missing_tensor(name):
    inputs = make_inputs(DENSE)
    given = dict(zip(("dout", "q", "k", "v", "out", "lse"), tensors(inputs), strict=True))
    with pytest.raises(mha_sink.InvalidArgument, match=f"^{name}: None given, a tensor needed"):
        mha_sink.attention_backward(**{**given, name: None})


def test_every_argument_is_documented():
    documented = re.findall(r"^ {4}(\w+): ", inspect.getdoc(mha_sink.attention_backward), re.M)
    assert documented == list(inspect.signature(mha_sink.attention_backward).parameters)
