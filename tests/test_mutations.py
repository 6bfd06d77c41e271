"""Mutants of the backward: each has one mistake that a kernel could have, and must be caught."""

from __future__ import annotations

import functools

import pytest
import torch

from mha_sink import reference
from mha_sink.testing import case, check, expected, make_inputs, run_guarded

CASES = ("irregular/q113-k203", "gqa/h6-k2", "window/both")


def backward(edit_mask=None, edit=None, accumulate=True):
    """`mha_bwd` by `reference.mixed_bwd`; `edit` changes tensors before it, or gradients after."""

    def mha_bwd(dq, dk, dv, d_sink, **arguments):
        given = {name: arguments[name] for name in ("dout", "q", "k", "v", "out", "sink")}
        given["lse"] = arguments["softmax_lse"]
        mask = {
            "scale": arguments["softmax_scale"],
            "causal": arguments["is_causal"],
            "window": (arguments["window_size_left"], arguments["window_size_right"]),
        }
        if edit_mask:
            edit_mask(given, mask)
        grads = reference.mixed_bwd(**given, **mask)._asdict()
        if edit:
            edit(given, grads)
        dq.copy_(grads["dq"])
        dk.copy_(grads["dk"])
        dv.copy_(grads["dv"])
        if not accumulate:
            d_sink.zero_()
        d_sink += grads["d_sink"].sum(0)
        return dq, dk, dv, grads["softmax_d"]

    return mha_bwd


@functools.cache
def prepared(name):
    inputs = make_inputs(case(name))
    return inputs, expected(inputs)


def failures(name, mutant, **options):
    inputs, against = prepared(name)
    result = check(run_guarded(inputs, mha_bwd=mutant, **options), against.x64, against.xr)
    assert not result.unresolvable, str(result)
    return set(result.failures)


@pytest.mark.parametrize("name", CASES)
def test_the_original_passes(name):
    assert failures(name, backward(), d_sink_start=2.0) == set()


def flipped_sink_sign(given, grads):
    grads["d_sink"].neg_()


def flipped_delta_sign(given, mask):
    given["out"] = -given["out"]


def sink_left_out_of_lse(given, mask):
    lse, sink = given["lse"].double(), given["sink"].double().unsqueeze(-1)
    given["lse"] = (lse + torch.log1p(-torch.exp(sink - lse))).float()


def sink_of_the_next_head(given, mask):
    given["sink"] = given["sink"].roll(1, dims=-1)


def mask_edge(given, mask):
    mask["window"] = (mask["window"][0], 1 if mask["causal"] else mask["window"][1] + 1)
    mask["causal"] = False


def top_left_alignment(given, mask):
    # Moves the diagonal from the bottom right to the top left.
    shift = given["k"].shape[1] - given["q"].shape[1]
    mask["window"] = (
        -1,
        -shift if shift < 0 else shift + (mask["window"][1] if not mask["causal"] else 0),
    )
    mask["causal"] = False


def scale_applied_twice(given, grads):
    grads["dq"].mul_(given["q"].shape[-1] ** -0.5)


def one_head_of_a_group_missing(given, mask):
    given["dout"] = given["dout"].clone()
    given["dout"][:, :, 0] = 0


def last_row_missing(given, grads):
    grads["dq"][:, -1] = 0


def last_key_missing(given, grads):
    grads["dk"][:, -1] = 0


def batch_sum_counted_twice(given, grads):
    grads["d_sink"].mul_(2)


MUTANTS = {
    "flipped sign of d_sink": (None, flipped_sink_sign, {"d_sink"}),
    "flipped sign of delta": (flipped_delta_sign, None, {"dq", "dk", "softmax_d", "d_sink"}),
    "sink dropped from lse": (sink_left_out_of_lse, None, {"dq", "dk", "dv", "d_sink"}),
    "sink of the wrong head": (sink_of_the_next_head, None, {"d_sink"}),
    "mask edge off by one": (mask_edge, None, {"dq", "dk", "dv"}),
    "mask aligned at the top left": (top_left_alignment, None, {"dq", "dk", "dv"}),
    "scale applied twice": (None, scale_applied_twice, {"dq"}),
    "a head of a group missing": (one_head_of_a_group_missing, None, {"dq", "dk", "dv"}),
    "last query row missing": (None, last_row_missing, {"dq"}),
    "last key missing": (None, last_key_missing, {"dk"}),
    "d_sink doubled": (None, batch_sum_counted_twice, {"d_sink"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_fails(name, mutant):
    edit_mask, edit, wrong = MUTANTS[mutant]
    assert failures(name, backward(edit_mask, edit)) >= wrong


def test_overwriting_d_sink_fails():
    assert failures(CASES[0], backward(accumulate=False), d_sink_start=2.0) == {"d_sink"}


def test_an_unwritten_element_fails():
    def mutant(**arguments):
        results = backward()(**arguments)
        arguments["dv"][0, 5, 1, 3] = torch.nan
        return results

    assert failures(CASES[0], mutant) == {"dv"}


def test_a_write_outside_is_noticed():
    def mutant(**arguments):
        results = backward()(**arguments)
        dk = arguments["dk"]
        dk.as_strided((1,), (1,), dk.storage_offset() + dk.numel()).fill_(0)
        return results

    with pytest.raises(AssertionError, match="dk: 1 elements outside the tensor were written"):
        run_guarded(make_inputs(case(CASES[0])), mha_bwd=mutant)


def test_a_changed_input_is_noticed():
    def mutant(**arguments):
        results = backward()(**arguments)
        arguments["v"][0, 0, 0, 0] += 1
        return results

    with pytest.raises(AssertionError, match="changed its input v"):
        run_guarded(make_inputs(case(CASES[0])), mha_bwd=mutant)


def test_returning_another_tensor_is_noticed():
    def mutant(**arguments):
        dq, *others = backward()(**arguments)
        return dq.clone(), *others

    with pytest.raises(AssertionError, match="dq was given but another tensor came back"):
        run_guarded(make_inputs(case(CASES[0])), mha_bwd=mutant)
