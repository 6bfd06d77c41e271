"""Every refusal of `mha_bwd` names the argument, what was given and what is needed."""

from __future__ import annotations

import math
import re

import pytest
import torch

import mha_sink
from mha_sink.testing import Case, make_inputs

BSHD = ("q", "k", "v", "out", "dout")
SHAPE = Case("errors", 2, 5, 7, 4, 2, 64)


def arguments():
    inputs = make_inputs(SHAPE)
    return {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "dropout_p": 0.0, "softmax_scale": 0.125, "is_causal": False,
        "window_size_left": -1, "window_size_right": -1, "deterministic": False,
        "dq": torch.full_like(inputs.q, 7.0), "dk": torch.full_like(inputs.k, 7.0),
        "dv": torch.full_like(inputs.v, 7.0), "sink": inputs.sink, "d_sink": torch.full((4,), 7.0),
    }  # fmt: skip


def shaped(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def like(name, change):
    return lambda given: {name: change(given[name])}


def every_other(x):
    """The same values, last stride 2."""
    return torch.stack([x, x], dim=-1).flatten(-2)[..., ::2]


def misaligned(x):
    """The same values, at an address that is no multiple of the element size."""
    raw = torch.zeros(x.numel() * x.element_size() + 1, dtype=torch.uint8)
    address = raw.data_ptr()
    storage = (torch.frombuffer(memoryview(raw.numpy())[1:], dtype=x.dtype)).view(x.shape)
    assert storage.data_ptr() == address + 1
    return storage


def far_apart_rows(x):
    """A view whose rows lie further apart than 32-bit offsets within a tile reach."""
    stride = 2**22 + 1
    rows = torch.empty(7 * stride, dtype=x.dtype)
    return rows.as_strided(x.shape, (128, stride, 64, 1))


def shared(given):
    block = torch.zeros(2, 7, 2, 64, dtype=torch.bfloat16)
    return {"dk": block, "dv": block}


# argument: (replacement arguments from the good ones, the argument, given, needed or supported)
INVALID = {
    "dout dtype": (like("dout", torch.Tensor.float), "dout", "dtype float32", "bfloat16"),
    "k dtype": (like("k", torch.Tensor.half), "k", "dtype float16", "bfloat16"),
    "v dtype": (like("v", torch.Tensor.float), "v", "dtype float32", "bfloat16"),
    "out dtype": (like("out", torch.Tensor.float), "out", "dtype float32", "bfloat16"),
    "q float32": (like("q", torch.Tensor.float), "q", "dtype float32", "bfloat16 or float16"),
    "q rank": (like("q", lambda x: x[0]), "q", "[5, 4, 64]", "[b, sq, hq, d]"),
    "k rank": (like("k", lambda x: x[0]), "k", "[7, 2, 64]", "[b, sk, hk, d]"),
    "k batch": (like("k", lambda x: x[:1]), "k", "[1, 7, 2, 64]", "[2, 7, 2, 64]"),
    "k head dim": (like("k", lambda x: x[..., :32]), "k", "[2, 7, 2, 32]", "[2, 7, 2, 64]"),
    "v seqlen": (like("v", lambda x: x[:, :6]), "v", "[2, 6, 2, 64]", "[2, 7, 2, 64]"),
    "v heads": (like("v", lambda x: x[:, :, :1]), "v", "[2, 7, 1, 64]", "[2, 7, 2, 64]"),
    "out shape": (like("out", lambda x: x[:, :4]), "out", "[2, 4, 4, 64]", "[2, 5, 4, 64]"),
    "dout shape": (like("dout", lambda x: x.mT), "dout", "[2, 5, 64, 4]", "[2, 5, 4, 64]"),
    "lse dtype": (
        like("softmax_lse", torch.Tensor.double), "softmax_lse", "dtype float64", "float32"),
    "lse as [b, sq, hq]": (
        like("softmax_lse", lambda x: x.mT.contiguous()), "softmax_lse", "[2, 5, 4]", "[2, 4, 5]"),
    "lse rank": (like("softmax_lse", lambda x: x[0]), "softmax_lse", "[4, 5]", "[b, hq, sq]"),
    "lse strides": (
        like("softmax_lse", lambda x: x.mT.contiguous().mT), "softmax_lse", "last stride 4", "1"),
    "q strides": (like("q", every_other), "q", "last stride 2", "1"),
    "dout of a sum": (
        like("dout", lambda x: x[0, 0, 0, 0].expand_as(x)), "dout", "last stride 0", "1"),
    "head counts": (
        lambda given: {"k": shaped(2, 7, 3, 64), "v": shaped(2, 7, 3, 64), "dk": None, "dv": None},
        "nhead_k", "3", "nhead_q = 4"),
    "no KV heads": (
        lambda given: {"k": shaped(2, 7, 0, 64), "v": shaped(2, 7, 0, 64), "dk": None, "dv": None},
        "nhead_k", "0", "at least 1"),
    "empty batch": (
        lambda given: {
            **{name: given[name][:0] for name in (*BSHD, "softmax_lse", "sink")},
            "dq": None, "dk": None, "dv": None},
        "batch", "0", "at least 1"),
    "dq dtype": (like("dq", torch.Tensor.float), "dq", "dtype float32", "bfloat16"),
    "dq shape": (like("dq", lambda x: x[:, :4]), "dq", "[2, 4, 4, 64]", "[2, 5, 4, 64]"),
    "dk expanded to hq heads": (
        like("dk", lambda x: shaped(2, 7, 4, 64)), "dk", "[2, 7, 4, 64]", "[2, 7, 2, 64]"),
    "dv last stride": (like("dv", every_other), "dv", "last stride 2", "1"),
    "dq that shares elements": (
        like("dq", lambda x: x[:, :1].expand(2, 5, 4, 64)), "dq", "share", "one address"),
    "dk and dv are one": (shared, "dv", "share", "one address"),
    "dq is q": (lambda given: {"dq": given["q"]}, "dq", "q", "one address"),
    "sink dtype": (like("sink", torch.Tensor.int), "sink", "dtype int32", "float32"),
    "sink of one batch": (like("sink", lambda x: x[:1]), "sink", "[1, 4]", "[b, hq] = [2, 4]"),
    "sink shape": (like("sink", lambda x: x[:, :3]), "sink", "[2, 3]", "[2, 4]"),
    "d_sink without sink": (lambda given: {"sink": None}, "sink", "None", "d_sink"),
    "d_sink dtype": (like("d_sink", torch.Tensor.double), "d_sink", "dtype float64", "float32"),
    "d_sink of three entries": (
        like("d_sink", lambda x: x.repeat(3, 1)), "d_sink", "[3, 4]", "[2, 4]"),
    "d_sink of one address an entry": (
        like("d_sink", lambda x: x.expand(2, 4)), "d_sink", "strided", "contiguous"),
    "d_sink size": (like("d_sink", lambda x: x[:3]), "d_sink", "[3]", "[4]"),
    "d_sink strides": (like("d_sink", every_other), "d_sink", "stride", "1"),
    "scale": (lambda given: {"softmax_scale": math.nan}, "softmax_scale", "nan", "finite"),
    "scale beyond float32": (
        lambda given: {"softmax_scale": 1e39}, "softmax_scale", "1", "finite fp32"),
    "left window": (lambda given: {"window_size_left": -2}, "window_size_left", "-2", "-1"),
    "right window": (lambda given: {"window_size_right": -7}, "window_size_right", "-7", "-1"),
    "dropout of 1": (lambda given: {"dropout_p": 1.0}, "dropout_p", "1", "[0, 1)"),
    "dropout below 0": (lambda given: {"dropout_p": -0.5}, "dropout_p", "-0.5", "[0, 1)"),
    "dropout NaN": (lambda given: {"dropout_p": math.nan}, "dropout_p", "nan", "[0, 1)"),
    "k on another device": (
        like("k", lambda x: x.to("meta")), "k", "meta", "cpu"),
    "lse on another device": (
        like("softmax_lse", lambda x: x.to("meta")), "softmax_lse", "meta", "cpu"),
    "sink on another device": (like("sink", lambda x: x.to("meta")), "sink", "meta", "cpu"),
    "dq misaligned": (like("dq", misaligned), "dq", "address", "element size 2"),
    "lse misaligned": (like("softmax_lse", misaligned), "softmax_lse", "address", "element size 4"),
}  # fmt: skip

UNSUPPORTED = {
    "row stride": (like("k", far_apart_rows), "k", "4194305", "4194304"),
    "large head dim": (
        lambda given: {
            **{name: torch.cat([given[name]] * 5, dim=-1) for name in BSHD},
            "dq": None, "dk": None, "dv": None},
        "head dim", "320", "multiples of 8 up to 256"),
    "dropout": (lambda given: {"dropout_p": 0.1}, "dropout_p", "0.1", "0"),
    "bias": (lambda given: {"bias": shaped(5, 7)}, "bias", "value", "None"),
    "dbias": (lambda given: {"dbias": shaped(5, 7)}, "dbias", "value", "None"),
    "alibi_slopes": (
        lambda given: {"alibi_slopes": torch.zeros(4)}, "alibi_slopes", "value", "None"),
    "another device": (
        lambda given: {
            name: x.to("meta") for name, x in given.items() if isinstance(x, torch.Tensor)},
        "q", "meta", "cpu"),
}  # fmt: skip


def check_refused(change, error, argument, given, needed):
    good = arguments()
    before = {name: x.clone() for name, x in good.items() if isinstance(x, torch.Tensor)}
    changed = {**good, **change(good)}
    with pytest.raises(error) as caught:
        mha_sink.mha_bwd(**changed)
    message = str(caught.value)
    named, _, rest = message.partition(":")
    assert re.search(rf"\b{re.escape(argument)}\b", named), message
    assert given in message, message
    assert needed in rest, message
    for name, x in before.items():
        assert torch.equal(good[name], x), f"{name} was written"
    return caught.value


def test_the_arguments_are_good():
    good = arguments()
    mha_sink.mha_bwd(**good)
    assert not (good["dk"] == 7).all()


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name):
    error = check_refused(INVALID[name][0], mha_sink.InvalidArgument, *INVALID[name][1:])
    assert isinstance(error, (ValueError, mha_sink.Error))


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name):
    error = check_refused(UNSUPPORTED[name][0], mha_sink.Unsupported, *UNSUPPORTED[name][1:])
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("name", ["q", "softmax_lse", "sink", "dv"])
def test_no_tensor(name):
    with pytest.raises(TypeError, match=f"mha_bwd: {name} is a list; need a torch.Tensor"):
        mha_sink.mha_bwd(**{**arguments(), name: [1.0]})


def test_sparse_tensor():
    good = arguments()
    with pytest.raises(TypeError, match=r"mha_bwd: dout has layout torch.sparse_coo; need"):
        mha_sink.mha_bwd(**{**good, "dout": good["dout"].to_sparse()})


@pytest.mark.parametrize("name", ["dout", "q", "k", "v", "out", "softmax_lse"])
def test_missing_tensor(name):
    with pytest.raises(mha_sink.InvalidArgument, match=rf"\b{name}\b.*None.*a tensor"):
        mha_sink.mha_bwd(**{**arguments(), name: None})


@pytest.mark.parametrize("name", ["dropout_p", "softmax_scale", "window_size_left"])
def test_no_number(name):
    with pytest.raises(TypeError):
        mha_sink.mha_bwd(**{**arguments(), name: "1"})


def test_interleaved_outputs_are_legal():
    good = arguments()
    block = torch.full((2, 7, 2, 2, 64), 7.0, dtype=torch.bfloat16)
    mha_sink.mha_bwd(**{**good, "dk": block[:, :, :, 0], "dv": block[:, :, :, 1]})
    assert not (block == 7).all(dim=-1).any()
