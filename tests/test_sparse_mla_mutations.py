"""Mutants of the sparse backward: each has one mistake that a kernel could have, and is caught."""

from __future__ import annotations

import functools

import pytest
import torch

from mha_sink import sparse_reference
from mha_sink.testing import SparseCase, check, expected_sparse_bwd, make_sparse_inputs
from mha_sink.testing.sparse_mla import run_sparse_bwd

SHAPES = {
    "uniform": SparseCase("uniform", 40, 16, 96, num_pool=20),
    "window": SparseCase("window", 40, 16, 96, num_pool=80, window=32),
}


def backward(before=None, after=None):
    """`sparse_mla_bwd_dsv4` by `sparse_reference.mixed_bwd`.

    `before` changes its arguments, `after` its gradients, given the arguments.
    """

    def mutant(attn_sink, R_CHUNK, **given):
        arguments = {**given, "sink": attn_sink}
        if before:
            before(arguments)
        grads = sparse_reference.mixed_bwd(**arguments)._asdict()
        if after:
            after(grads, arguments)
        return grads["dq"], grads["dkv"], grads["d_sink"]

    return mutant


@functools.cache
def prepared(name):
    inputs = make_sparse_inputs(SHAPES[name])
    return inputs, expected_sparse_bwd(inputs)


def failures(name, mutant):
    inputs, against = prepared(name)
    result = check(run_sparse_bwd(inputs, mutant), against.x64, against.xr)
    assert not result.unresolvable, str(result)
    return set(result.failures)


def replace(name, change):
    def edit(tensors, _=None):
        tensors[name] = change(tensors[name])

    return edit


def read_empty_slots(arguments):
    arguments["topk_indices"] = arguments["topk_indices"].clamp(min=0)


def count_duplicates_once(arguments):
    indices = arguments["topk_indices"].clone()
    for row in indices:
        seen = set()
        for slot, index in enumerate(row.tolist()):
            if index in seen:
                row[slot] = -1
            seen.add(index)
    arguments["topk_indices"] = indices


def drop_slots(arguments):
    """The last slots of a block of 32."""
    indices = arguments["topk_indices"].clone()
    indices[:, 31::32] = -1
    arguments["topk_indices"] = indices


def ignore_the_sink(arguments):
    arguments["lse"] = sparse_reference.mixed(
        arguments["q"], arguments["kv"], arguments["topk_indices"], scale=arguments["scale"]
    ).lse


def key_gradient_alone(grads, arguments):
    q, kv, do = (arguments[name].float() for name in ("q", "kv", "do"))
    seen = arguments["topk_indices"] >= 0
    index = arguments["topk_indices"].long().clamp(min=0)
    p = torch.exp(q @ kv[index].mT * arguments["scale"] - arguments["lse"].unsqueeze(-1))
    of_values = (p * seen.unsqueeze(1)).mT @ do
    dkv = grads["dkv"].float().index_add(0, index.flatten(), -of_values.flatten(0, 1))
    grads["dkv"] = dkv.to(grads["dkv"].dtype)


def drop_a_head_of_dkv(grads, arguments):
    do, q = (arguments[name].clone() for name in ("do", "q"))
    do[:, 15] = 0
    q[:, 15] = 0
    lse = arguments["lse"].clone()
    lse[:, 15] = torch.inf
    grads["dkv"] = sparse_reference.mixed_bwd(**{**arguments, "do": do, "q": q, "lse": lse}).dkv


def overwrite_dq_by_the_last_chunk(grads, arguments):
    indices = arguments["topk_indices"].clone()
    indices[:, :64] = -1
    grads["dq"] = sparse_reference.mixed_bwd(**{**arguments, "topk_indices": indices}).dq


# name: (the mutant, what must fail with uniform indices, and with the window)
DKV, ALL = {"dkv"}, {"dq", "dkv", "d_sink"}
MUTANTS = {
    "delta is left out": (backward(replace("o", torch.zeros_like)), ALL, ALL),
    "delta has the other sign": (backward(replace("o", torch.neg)), ALL, ALL),
    "the scale is left out of the scores": (
        backward(replace("scale", lambda x: 1.0)), {"dq", "dkv"}, {"dq", "dkv"}),
    "dq is not scaled": (
        backward(after=replace("dq", lambda x: x * 512**0.5)), {"dq"}, {"dq"}),
    "the sink is dropped from lse": (backward(ignore_the_sink), ALL, ALL),
    "d_sink has the other sign": (
        backward(after=replace("d_sink", torch.neg)), {"d_sink"}, {"d_sink"}),
    "a token is missing from d_sink": (
        backward(after=replace("d_sink", lambda x: x * (39 / 40))), {"d_sink"}, {"d_sink"}),
    "an empty slot reads row 0": (backward(read_empty_slots), {"dq", "dkv"}, {"dq", "dkv"}),
    "a row seen twice counts once": (backward(count_duplicates_once), {"dq", "dkv"}, set()),
    "the last slots of a block are lost": (backward(drop_slots), {"dq", "dkv"}, {"dq", "dkv"}),
    "dkv is the gradient as key alone": (backward(after=key_gradient_alone), DKV, DKV),
    "a head is missing from dkv": (backward(after=drop_a_head_of_dkv), DKV, DKV),
    "the last chunk overwrites dq": (
        backward(after=overwrite_dq_by_the_last_chunk), {"dq"}, {"dq"}),
    "the last row of kv gets nothing": (
        backward(after=replace("dkv", lambda x: torch.cat([x[:39], x[39:40] * 0, x[40:]]))),
        DKV, DKV),
    "an element is never written": (
        backward(after=replace("dq", lambda x: x.index_fill(0, torch.tensor([7]), torch.nan))),
        {"dq"}, {"dq"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_the_original_passes(name):
    assert failures(name, backward()) == set()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    changed, uniform, window = MUTANTS[mutant]
    assert failures("uniform", changed) == uniform
    assert failures("window", changed) == window


def test_a_write_to_an_input_is_caught():
    def mutant(attn_sink, R_CHUNK, **given):
        grads = sparse_reference.mixed_bwd(**given, sink=attn_sink)
        given["kv"][0, 0] += 1
        return tuple(grads)

    with pytest.raises(AssertionError, match="changed its input kv"):
        failures("uniform", mutant)
