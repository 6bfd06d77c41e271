"""Every refusal of `mha_varlen_bwd` that `mha_bwd` has not: lengths, and packed shapes."""

from __future__ import annotations

import re

import pytest
import torch

import mha_sink
from mha_sink.testing import make_inputs, packed_case

SHAPE = packed_case("errors", (5, 3), (7, 4), (4, 2), 64, tail=(2, 1))


def arguments():
    inputs = make_inputs(SHAPE)
    return {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "cu_seqlens_q": inputs.packing.cu_seqlens_q,
        "cu_seqlens_k": inputs.packing.cu_seqlens_k, "max_seqlen_q": 5, "max_seqlen_k": 7,
        "dropout_p": 0.0, "softmax_scale": 0.125, "zero_tensors": False, "is_causal": False,
        "window_size_left": -1, "window_size_right": -1, "deterministic": False,
        "dq": torch.full_like(inputs.q, 7.0), "dk": torch.full_like(inputs.k, 7.0),
        "dv": torch.full_like(inputs.v, 7.0), "sink": inputs.sink, "d_sink": torch.full((4,), 7.0),
    }  # fmt: skip


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


# (replacement arguments from the good ones, the argument, given, needed)
INVALID = {
    "lengths int64": (
        lambda given: {"cu_seqlens_q": given["cu_seqlens_q"].long()},
        "cu_seqlens_q", "dtype int64", "int32"),
    "lengths as float": (
        lambda given: {"cu_seqlens_k": given["cu_seqlens_k"].float()},
        "cu_seqlens_k", "dtype float32", "int32"),
    "lengths of rank 2": (
        lambda given: {"cu_seqlens_q": given["cu_seqlens_q"][None], "sink": None, "d_sink": None},
        "cu_seqlens_q", "[1, 3]", "[b + 1]"),
    "lengths of other counts": (
        lambda given: {"cu_seqlens_k": int32(0, 7, 9, 11)}, "cu_seqlens_k", "[4]", "[3]"),
    "lengths with strides": (
        lambda given: {"cu_seqlens_q": int32(0, 0, 5, 0, 8, 0)[::2]},
        "cu_seqlens_q", "stride", "1"),
    "padded lengths int64": (
        lambda given: {"cu_seqlens_q_padded": torch.tensor([0, 5, 8])},
        "cu_seqlens_q_padded", "dtype int64", "int32"),
    "padded lengths of other counts": (
        lambda given: {"cu_seqlens_k_padded": int32(0, 7)}, "cu_seqlens_k_padded", "[2]", "[3]"),
    "no sequence": (
        lambda given: {
            "cu_seqlens_q": int32(0), "cu_seqlens_k": int32(0), "sink": None, "d_sink": None},
        "cu_seqlens_q", "[1]", "2 entries or more"),
    "no lengths at all": (
        lambda given: {"cu_seqlens_q": int32(), "sink": None, "d_sink": None},
        "cu_seqlens_q", "[0]", "2 entries or more"),
    "lengths that are missing": (
        lambda given: {"cu_seqlens_q": None}, "cu_seqlens_q", "None", "a tensor"),
    "lengths of keys that are missing": (
        lambda given: {"cu_seqlens_k": None}, "cu_seqlens_k", "None", "a tensor"),
    "lengths elsewhere": (
        lambda given: {"cu_seqlens_q": given["cu_seqlens_q"].to("meta")},
        "cu_seqlens_q", "meta", "cpu"),
    "lengths that start late": (
        lambda given: {"cu_seqlens_q": int32(1, 5, 8)}, "cu_seqlens_q", "1", "0"),
    "lengths that fall": (
        lambda given: {"cu_seqlens_k": int32(0, 7, 4)}, "cu_seqlens_k", "4 after 7", "decrease"),
    "lengths beyond the rows": (
        lambda given: {"cu_seqlens_q": int32(0, 5, 11), "max_seqlen_q": 8},
        "cu_seqlens_q", "11", "10"),
    "lengths of keys beyond the rows": (
        lambda given: {"cu_seqlens_k": int32(0, 7, 13)}, "cu_seqlens_k", "13", "12"),
    "longer than max_seqlen_q": (
        lambda given: {"max_seqlen_q": 4}, "cu_seqlens_q", "length 5", "max_seqlen_q = 4"),
    "longer than max_seqlen_k": (
        lambda given: {"max_seqlen_k": 6}, "cu_seqlens_k", "length 7", "max_seqlen_k = 6"),
    "negative max_seqlen_q": (
        lambda given: {"max_seqlen_q": -1}, "cu_seqlens_q", "length 5", "max_seqlen_q = -1"),
    "room beyond the rows": (
        lambda given: {"cu_seqlens_q_padded": int32(0, 6, 11)}, "cu_seqlens_q_padded", "11", "10"),
    "room that starts late": (
        lambda given: {"cu_seqlens_q_padded": int32(1, 6, 10)}, "cu_seqlens_q_padded", "1", "0"),
    "room that falls": (
        lambda given: {"cu_seqlens_k_padded": int32(0, 8, 7)},
        "cu_seqlens_k_padded", "7 after 8", "decrease"),
    "a sequence longer than its room": (
        lambda given: {"cu_seqlens_q_padded": int32(0, 4, 10)},
        "cu_seqlens_q", "length 5", "4 rows by cu_seqlens_q_padded"),
    "q as a batch": (lambda given: {"q": given["q"][None]}, "q", "[1, 10, 4, 64]", "[total_q"),
    "k of other rows than v": (
        lambda given: {"v": given["v"][:-1], "dv": None}, "v", "[11, 2, 64]", "[12, 2, 64]"),
    "lse as a batch": (
        lambda given: {"softmax_lse": given["softmax_lse"][None]},
        "softmax_lse", "[1, 4, 10]", "[hq, total_q]"),
    "lse by rows": (
        lambda given: {"softmax_lse": given["softmax_lse"].T.contiguous()},
        "softmax_lse", "[10, 4]", "[4, 10]"),
    "dq shape": (lambda given: {"dq": given["dq"][1:]}, "dq", "[9, 4, 64]", "[10, 4, 64]"),
    "sink of three sequences": (
        lambda given: {"sink": torch.zeros(3, 4)}, "sink", "[3, 4]", "[2, 4]"),
    "d_sink of three sequences": (
        lambda given: {"d_sink": torch.zeros(3, 4)}, "d_sink", "[3, 4]", "4]"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name):
    change, argument, given, needed = INVALID[name]
    good = arguments()
    before = {key: x.clone() for key, x in good.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(mha_sink.InvalidArgument) as caught:
        mha_sink.mha_varlen_bwd(**{**good, **change(good)})
    message = str(caught.value)
    named, _, rest = message.partition(":")
    assert re.search(rf"\b{argument}\b", named), message
    assert given in message, message
    assert needed in rest, message
    for key, x in before.items():
        assert torch.equal(good[key].view(torch.uint8), x.view(torch.uint8)), f"{key} was written"


def test_the_arguments_are_good():
    good = arguments()
    mha_sink.mha_varlen_bwd(**good)
    assert not (good["dk"] == 7).all()


def test_a_list_is_no_lengths():
    with pytest.raises(TypeError, match="mha_varlen_bwd: cu_seqlens_q is a list; need"):
        mha_sink.mha_varlen_bwd(**{**arguments(), "cu_seqlens_q": [0, 5, 8]})


def test_the_longest_sequence_must_be_a_number():
    with pytest.raises(TypeError):
        mha_sink.mha_varlen_bwd(**{**arguments(), "max_seqlen_q": "5"})


def test_dropout_and_alibi_are_unsupported():
    for name, value in {"dropout_p": 0.1, "alibi_slopes": torch.zeros(4)}.items():
        with pytest.raises(mha_sink.Unsupported, match=f"^{name}: "):
            mha_sink.mha_varlen_bwd(**{**arguments(), name: value})
