"""Mutants of the packed backward: what only packing can get wrong must be caught."""

from __future__ import annotations

import functools

import pytest
import torch

from mha_sink import reference
from mha_sink.reference import Packing
from mha_sink.testing import case, check, expected, make_inputs, run_guarded


def backward(edit_packing=None, edit=None):
    """`mha_varlen_bwd` by `reference.packed_mixed_bwd`; `edit` changes what it wrote."""

    def mha_varlen_bwd(dq, dk, dv, d_sink, **arguments):
        given = {name: arguments[name] for name in ("dout", "q", "k", "v", "out", "sink")}
        packing = Packing(**{name: arguments[name] for name in Packing._fields})
        packing = edit_packing(packing) if edit_packing else packing
        mask = {
            "scale": arguments["softmax_scale"],
            "causal": arguments["is_causal"],
            "window": (arguments["window_size_left"], arguments["window_size_right"]),
        }
        grads = reference.packed_mixed_bwd(
            **given, lse=arguments["softmax_lse"], packing=packing, **mask
        )._asdict()
        if edit:
            edit(grads, packing)
        dq.copy_(grads["dq"])
        dk.copy_(grads["dk"])
        dv.copy_(grads["dv"])
        d_sink += grads["d_sink"].sum(0)
        return dq, dk, dv, grads["softmax_d"]

    return mha_varlen_bwd


@functools.cache
def prepared(name):
    inputs = make_inputs(case(name))
    return inputs, expected(inputs)


def failures(mutant, name="packed/padded"):
    inputs, against = prepared(name)
    result = check(run_guarded(inputs, mha_bwd=mutant), against.x64, against.xr)
    assert not result.unresolvable, str(result)
    return set(result.failures)


def test_the_original_passes():
    assert failures(backward()) == set()


def one_key_less(packing):
    cu_seqlens_k = packing.cu_seqlens_k.clone()
    cu_seqlens_k[-1] -= 1
    return packing._replace(cu_seqlens_k=cu_seqlens_k)


def last_query_skipped(packing):
    cu_seqlens_q = packing.cu_seqlens_q.clone()
    cu_seqlens_q[-1] -= 1
    return packing._replace(cu_seqlens_q=cu_seqlens_q)


def the_room_as_length_of_keys(packing):
    return packing._replace(cu_seqlens_k=packing.cu_seqlens_k_padded)


def places_by_the_plain_lengths(packing):
    return packing._replace(cu_seqlens_k_padded=None)


@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        (one_key_less, {"dq", "dk", "dv"}),
        (last_query_skipped, {"dq", "dk", "dv", "softmax_d", "d_sink"}),
    ],
)
def test_a_wrong_length_fails(edit, wrong):
    assert failures(backward(edit), "packed/lengths") >= wrong


@pytest.mark.parametrize("edit", [the_room_as_length_of_keys, places_by_the_plain_lengths])
def test_a_wrong_place_fails(edit):
    with pytest.raises(AssertionError, match="a row that belongs to no sequence is not 0"):
        failures(backward(edit))


def test_a_sink_of_another_sequence_fails():
    def mutant(**arguments):
        sink = arguments["sink"].roll(1, dims=0)
        return backward()(**{**arguments, "sink": sink})

    assert failures(mutant) == {"d_sink"}


@pytest.mark.parametrize(("name", "row"), [("dq", 33), ("dk", 65), ("dv", -1), ("softmax_d", -1)])
@pytest.mark.parametrize("value", [torch.nan, 1e-30])
def test_a_row_of_no_sequence_that_is_not_zero_fails(name, row, value):
    def edit(grads, packing):
        x = grads[name].T if name == "softmax_d" else grads[name]
        x[row].view(-1)[0] = value

    with pytest.raises(AssertionError, match=f"{name}: a row that belongs to no sequence is not 0"):
        failures(backward(edit=edit))
