"""The cases of aiter's own tests of the sink in the backward, at their tolerances and at ours.

Their lse comes from a forward without the sink, so that exp(sink - lse) is far above 1 and d_sink
is the formula's value, no gradient.
"""

from __future__ import annotations

import pytest
import torch

import mha_sink
from mha_sink import reference
from mha_sink.testing import Case, make_inputs, packed_case

DTYPES = ("float16", "bfloat16")
DENSE = [
    Case("published", *shape, causal, sink_offsets=(), dtype=dtype)
    for shape in ((2, 128, 128, 4, 4, 64), (1, 64, 64, 6, 2, 128))
    for dtype in DTYPES
    for causal in (False, True)
]
PACKED = [
    packed_case(f"published-{dtype}", lengths, lengths, (4, 4), 64, sink_offsets=(), dtype=dtype)
    for lengths in ((64, 64), (48, 80))
    for dtype in DTYPES
]


def name(shape):
    lengths = "-".join(map(str, shape.seqlens_q)) or f"{shape.batch}x{shape.seqlen_q}"
    return f"{lengths}-d{shape.hdim}-{'causal' if shape.causal else 'full'}-{shape.dtype}"


def sinks_of(shape):
    """[b, hq] from 30 to 60."""
    torch.manual_seed(3)
    return torch.empty(shape.batch, shape.nhead_q).uniform_(30, 60)


def call(inputs, **more):
    arguments = {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "dropout_p": 0.0, "softmax_scale": inputs.case.scale,
        "is_causal": inputs.case.causal, "window_size_left": -1, "window_size_right": -1,
        "deterministic": False, **more,
    }  # fmt: skip
    if inputs.packing is None:
        return mha_sink.mha_bwd(**arguments)
    lengths = inputs.packing._asdict()
    longest = max(inputs.case.seqlens_q)
    return mha_sink.mha_varlen_bwd(
        **arguments, **lengths, max_seqlen_q=longest, max_seqlen_k=longest, zero_tensors=False
    )


@pytest.mark.parametrize("shape", [*DENSE, *PACKED], ids=name)
def test_d_sink_is_the_formula(shape):
    inputs, sink = make_inputs(shape), sinks_of(shape)
    d_sink = torch.zeros(shape.nhead_q)
    softmax_d = call(inputs, sink=sink, d_sink=d_sink)[3]
    given = (inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse)
    if inputs.packing is None:
        grads = reference.formula_bwd(*given, sink, **shape.mask)
        by_row = sink.double().unsqueeze(-1) - inputs.lse
    else:
        grads = reference.packed_formula_bwd(*given, inputs.packing, sink, **shape.mask)
        by_row = sink.double().repeat_interleave(torch.tensor(shape.seqlens_q), 0).T - inputs.lse
    x64 = grads.d_sink.sum(0)
    assert d_sink.isfinite().all()
    assert d_sink.abs().max() > 0
    # Theirs: rtol 0.02, atol 0.5.
    torch.testing.assert_close(d_sink.double(), x64, rtol=0.02, atol=0.5)
    # Ours: rows cancel; each term has the error of a float32 exponent of up to 60.
    terms = torch.exp(by_row) * grads.softmax_d.abs()
    of_heads = terms.sum((0, 2)) if terms.dim() == 3 else terms.sum(1)
    assert ((d_sink - x64).abs() <= 60 * 2**-22 * of_heads).all()
    error = (softmax_d - grads.softmax_d).abs().max()
    assert error <= 2**-20 * grads.softmax_d.abs().max()


@pytest.mark.parametrize("shape", DENSE, ids=name)
def test_a_negligible_sink_leaves_the_other_gradients(shape):
    inputs = make_inputs(shape)
    plain = call(inputs, deterministic=True)
    sink = torch.full((shape.batch, shape.nhead_q), -1000.0)
    d_sink = torch.zeros(shape.nhead_q)
    with_sink = call(inputs, deterministic=True, sink=sink, d_sink=d_sink)
    # Theirs: 0.01 in fp16, 0.02 in bf16, for which this stands too.
    assert all(torch.equal(x, y) for x, y in zip(with_sink, plain, strict=True))
    assert (d_sink == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_sink_is_an_omitted_sink(dtype):
    inputs = make_inputs(Case("null", 2, 64, 64, 4, 4, 64, sink_offsets=(), dtype=dtype))
    omitted = call(inputs, deterministic=True)
    null = call(inputs, deterministic=True, sink=None, d_sink=None)
    assert all(torch.equal(x, y) for x, y in zip(omitted, null, strict=True))
