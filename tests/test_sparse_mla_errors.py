"""Every refusal of sparse MLA names the argument, what was given and what is needed."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch

import mha_sink
from mha_sink.testing import SparseCase, make_sparse_inputs

SHAPE = SparseCase("errors", 6, 4, 64, num_pool=3)


def arguments():
    inputs = make_sparse_inputs(SHAPE)
    return {
        "q": inputs.q, "kv": inputs.kv, "do": inputs.do, "o": inputs.o, "lse": inputs.lse,
        "topk_indices": inputs.topk_indices, "attn_sink": inputs.sink, "scale": None,
    }  # fmt: skip


FORWARD = ("q", "kv", "topk_indices", "attn_sink", "scale")


def like(name, change):
    return lambda given: {name: change(given[name])}


def every_other(x):
    """The same values, not contiguous."""
    return torch.stack([x, x], dim=-1)[..., 0]


def misaligned(x):
    """The same values, at an address that is no multiple of the element size."""
    raw = torch.zeros(x.numel() * x.element_size() + 1, dtype=torch.uint8)
    return torch.frombuffer(memoryview(raw.numpy())[1:], dtype=x.dtype).view(x.shape)


def with_index(value):
    def change(given):
        indices = given["topk_indices"].clone()
        indices[4, 17] = value
        return {"topk_indices": indices}

    return change


def with_dlse(change):
    return lambda given: {"dlse": change(given["lse"])}


def with_heads(count):
    return lambda given: {
        **{name: given[name][:, :1].repeat(1, count, 1) for name in ("q", "do", "o")},
        "lse": given["lse"][:, :1].repeat(1, count), "attn_sink": torch.zeros(count),
    }  # fmt: skip


# what: (changed arguments from the good ones, the argument, given, needed)
INVALID = {
    "q dtype": (like("q", torch.Tensor.float), "q", "dtype float32", "bfloat16 or float16"),
    "kv dtype": (like("kv", torch.Tensor.half), "kv", "dtype float16", "bfloat16"),
    "do dtype": (like("do", torch.Tensor.float), "do", "dtype float32", "bfloat16"),
    "o dtype": (like("o", torch.Tensor.half), "o", "dtype float16", "bfloat16"),
    "lse dtype": (like("lse", torch.Tensor.long), "lse", "dtype int64", "float32"),
    "indices int64": (
        like("topk_indices", torch.Tensor.long), "topk_indices", "int64", "contiguous int32"),
    "sink dtype": (
        like("attn_sink", torch.Tensor.bfloat16), "attn_sink", "dtype bfloat16", "float32"),
    "dlse dtype": (with_dlse(torch.Tensor.half), "dlse", "dtype float16", "float32"),
    "q rank": (like("q", lambda x: x[0]), "q", "[4, 512]", "[T, H, 512]"),
    "kv rank": (like("kv", lambda x: x[:, None]), "kv", "[9, 1, 512]", "[num_kv, 512]"),
    "kv head dim": (like("kv", lambda x: x[:, :64].contiguous()), "kv", "[9, 64]", "512"),
    "fewer rows of kv than tokens": (like("kv", lambda x: x[:5]), "kv", "5", "6"),
    "do shape": (like("do", lambda x: x[:4]), "do", "[4, 4, 512]", "[6, 4, 512]"),
    "o shape": (like("o", lambda x: x[:, :2].contiguous()), "o", "[6, 2, 512]", "[6, 4, 512]"),
    "lse as [T, 1, H]": (like("lse", lambda x: x[:, None]), "lse", "[6, 1, 4]", "[T, H]"),
    "lse as [H, T]": (like("lse", lambda x: x.T.contiguous()), "lse", "[4, 6]", "[6, 4]"),
    "dlse shape": (with_dlse(lambda x: x[:5]), "dlse", "[5, 4]", "[6, 4]"),
    "indices of some tokens": (
        like("topk_indices", lambda x: x[:3]), "topk_indices", "[3, 64]", "T = 6"),
    "indices rank": (like("topk_indices", lambda x: x[0]), "topk_indices", "[64]", "[T, TOPK]"),
    "sink shape": (like("attn_sink", lambda x: x[:3]), "attn_sink", "[3]", "[4]"),
    "sink rank": (like("attn_sink", lambda x: x[None]), "attn_sink", "[1, 4]", "[H]"),
    "q strides": (like("q", every_other), "q", "strided", "contiguous"),
    "q transposed": (
        like("q", lambda x: x.mT.contiguous().mT), "q", "strided", "contiguous"),
    "kv strides": (like("kv", lambda x: x.repeat(1, 2)[:, :512]), "kv", "strided", "contiguous"),
    "do of a sum": (like("do", lambda x: x[:1].expand_as(x)), "do", "strided", "contiguous"),
    "o strides": (like("o", every_other), "o", "strided", "contiguous"),
    "indices strides": (
        like("topk_indices", every_other), "topk_indices", "strided", "contiguous int32"),
    "sink strides": (like("attn_sink", every_other), "attn_sink", "strided", "contiguous"),
    "dlse strides": (with_dlse(every_other), "dlse", "strided", "contiguous"),
    "kv on another device": (like("kv", lambda x: x.to("meta")), "kv", "meta", "cpu"),
    "lse on another device": (like("lse", lambda x: x.to("meta")), "lse", "meta", "cpu"),
    "indices on another device": (
        like("topk_indices", lambda x: x.to("meta")), "topk_indices", "meta", "cpu"),
    "sink on another device": (
        like("attn_sink", lambda x: x.to("meta")), "attn_sink", "meta", "cpu"),
    "index beyond kv": (
        with_index(9), "topk_indices", "9 given at [4, 17]", "below num_kv = 9"),
    "index far beyond kv": (
        with_index(2**31 - 1), "topk_indices", "2147483647", "below num_kv = 9"),
    "index below -1": (with_index(-2), "topk_indices", "-2 given", "must be -1"),
    "head dim": (
        lambda given: {
            name: given[name][..., :64].contiguous() for name in ("q", "kv", "do", "o")},
        "q", "[6, 4, 64]", "[T, H, 512]"),
    "no heads": (with_heads(0), "H", "0", "at least 1"),
    "scale NaN": (lambda given: {"scale": math.nan}, "scale", "nan", "finite"),
    "scale beyond float32": (lambda given: {"scale": 1e39}, "scale", "1", "finite"),
    "q misaligned": (like("q", misaligned), "q", "address", "a multiple of 16"),
    "indices misaligned": (
        like("topk_indices", misaligned), "topk_indices", "address", "a multiple of 4"),
    "R_CHUNK no multiple of 32": (lambda given: {"R_CHUNK": 48}, "R_CHUNK", "48", "multiple of 32"),
    "R_CHUNK 0": (lambda given: {"R_CHUNK": 0}, "R_CHUNK", "0", "multiple of 32"),
    "R_CHUNK below 0": (lambda given: {"R_CHUNK": -32}, "R_CHUNK", "-32", "multiple of 32"),
    "R_CHUNK no divisor": (
        lambda given: {"topk_indices": given["topk_indices"].repeat(1, 2), "R_CHUNK": 96},
        "R_CHUNK", "96", "must divide TOPK"),
    "R_CHUNK of more slots than there are": (
        lambda given: {"R_CHUNK": 128}, "R_CHUNK", "128", "must divide TOPK"),
    "R_CHUNK with a TOPK that is none": (
        lambda given: {"topk_indices": given["topk_indices"][:, :40].contiguous(), "R_CHUNK": 32},
        "R_CHUNK", "32", "must divide TOPK"),
}  # fmt: skip

UNSUPPORTED = {
    "heads": (with_heads(129), "H", "129", "at most 128"),
    "another device": (
        lambda given: {
            name: x.to("meta") for name, x in given.items() if isinstance(x, torch.Tensor)},
        "q", "meta", "cpu"),
}  # fmt: skip

BOTH = {**INVALID, **UNSUPPORTED}


def check_refused(error, call, changed, argument, given, needed):
    before = {name: x.clone() for name, x in changed.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(error) as caught:
        call(**changed)
    message = str(caught.value)
    assert re.search(rf"\b{re.escape(argument)}\b", message.partition(":")[0]), message
    assert given in message, message
    assert needed in message, message
    for name, x in before.items():
        if x.device.type == "cpu":
            assert torch.equal(changed[name], x), f"{name} was written"
    assert isinstance(caught.value, (ValueError, mha_sink.Error))


def error_of(name):
    return mha_sink.InvalidArgument if name in INVALID else mha_sink.Unsupported


def test_the_arguments_are_good():
    good = arguments()
    mha_sink.sparse_mla_bwd_dsv4(**good, dlse=good["lse"], R_CHUNK=32)
    mha_sink.sparse_mla_fwd_dsv4(**{name: good[name] for name in FORWARD})


@pytest.mark.parametrize("name", BOTH)
def test_backward(name):
    change, *expected = BOTH[name]
    good = arguments()
    changed = {**good, **change(good)}
    check_refused(error_of(name), mha_sink.sparse_mla_bwd_dsv4, changed, *expected)


@pytest.mark.parametrize("name", [name for name in BOTH if BOTH[name][1] in (*FORWARD, "H")])
def test_forward(name):
    change, *expected = BOTH[name]
    good = arguments()
    changed = {**good, **change(good)}
    changed = {key: changed[key] for key in FORWARD}
    check_refused(error_of(name), mha_sink.sparse_mla_fwd_dsv4, changed, *expected)


# A plan has no other tensor to compare the indices with.
OF_A_PLAN = [
    name for name in INVALID if INVALID[name][1] == "topk_indices"
    and name not in ("indices of some tokens", "indices on another device")
]  # fmt: skip


@pytest.mark.parametrize("name", OF_A_PLAN)
def test_plan(name):
    change, *expected = INVALID[name]
    good = arguments()
    check_refused(
        mha_sink.InvalidArgument, lambda topk_indices: mha_sink.sparse_mla_plan(topk_indices, 9),
        {"topk_indices": {**good, **change(good)}["topk_indices"]}, *expected,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("topk", "rows", "r_chunk", "message"),
    [
        (64, 64, 48, "multiple of 32"),
        (64, 32, None, "topk_indices must be"),
        (128, 64, 96, "must divide TOPK"),
    ],
)
def test_published_rejections(topk, rows, r_chunk, message):
    inputs = make_sparse_inputs(SparseCase("published", 64, 16, topk))
    with pytest.raises(mha_sink.InvalidArgument, match=message):
        mha_sink.sparse_mla_bwd_dsv4(
            inputs.q, inputs.kv, inputs.do, inputs.o, inputs.lse, inputs.topk_indices[:rows],
            inputs.sink, R_CHUNK=r_chunk,
        )  # fmt: skip


@pytest.mark.parametrize(
    "shape",
    [
        dataclasses.replace(SHAPE, tokens=7, num_pool=2),
        dataclasses.replace(SHAPE, topk=32),
        dataclasses.replace(SHAPE, num_pool=4),
    ],
)
def test_a_plan_of_other_sizes(shape):
    good = arguments()
    plan = mha_sink.sparse_mla_plan(shape.indices(), shape.num_kv)
    made = f"{shape.tokens}, {shape.topk}, {shape.num_kv}"
    with pytest.raises(mha_sink.InvalidArgument, match=f"plan: made for .* = {made}; .*6, 64, 9"):
        mha_sink.sparse_mla_bwd_dsv4(**good, plan=plan)


def test_a_plan_on_another_device():
    plan = mha_sink.sparse_mla_plan(SHAPE.indices(), SHAPE.num_kv)
    moved = dataclasses.replace(plan, data=plan.data.to("meta"))
    with pytest.raises(mha_sink.InvalidArgument, match=r"plan: .*meta.*cpu"):
        mha_sink.sparse_mla_bwd_dsv4(**arguments(), plan=moved)


def test_no_plan():
    with pytest.raises(TypeError, match="sparse_mla_bwd_dsv4: plan is a Tensor; need a SparseMlaP"):
        mha_sink.sparse_mla_bwd_dsv4(**arguments(), plan=torch.zeros(3))


@pytest.mark.parametrize("name", ["q", "kv", "lse", "topk_indices", "attn_sink"])
def test_no_tensor(name):
    with pytest.raises(TypeError, match=f"sparse_mla_bwd_dsv4: {name} is a list; need a torch.Te"):
        mha_sink.sparse_mla_bwd_dsv4(**{**arguments(), name: [1.0]})


@pytest.mark.parametrize("name", ["q", "kv", "do", "o", "lse", "topk_indices"])
def test_missing_tensor(name):
    with pytest.raises(mha_sink.InvalidArgument, match=rf"\b{name}\b.*None.*a tensor"):
        mha_sink.sparse_mla_bwd_dsv4(**{**arguments(), name: None})


@pytest.mark.parametrize("name", ["scale", "R_CHUNK"])
def test_no_number(name):
    with pytest.raises(TypeError):
        mha_sink.sparse_mla_bwd_dsv4(**{**arguments(), name: "32"})
