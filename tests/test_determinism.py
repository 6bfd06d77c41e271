"""`deterministic=True`: equal bits in every result, however workgroups and waves are scheduled."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from mha_sink.testing import Case, case, check, check_mha_bwd, expected, make_inputs, run_guarded

SHAPES = [
    Case("dense", 2, 130, 300, 4, 2, 64, causal=True),
    Case("windowed", 1, 300, 300, 2, 1, 128, causal=True, window=(100, 0)),
    case("packed/padded"),
]


def bits(results):
    return {name: x.contiguous().view(torch.uint8) for name, x in results.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_twenty_repeats_are_equal_to_the_bit(shape, schedule, threads):
    inputs = make_inputs(shape)
    first = run_guarded(inputs, deterministic=True)
    against = expected(inputs)
    result = check(first, against.x64, against.xr)
    assert result.passed, str(result)
    for repeat in range(20):
        threads(1 + repeat % 3)
        with schedule((0, 1, 7, 50)[repeat % 4], repeat % 2 == 1):
            again = bits(run_guarded(inputs, deterministic=True))
        for name, x in bits(first).items():
            assert torch.equal(again[name], x), (repeat, name)


@pytest.mark.parametrize(
    "name",
    ["hdim/d32", "hdim/d96-fp16", "hdim/d192-v128", "hdim/d256", "hdim/d72-v24", "gqa/h6-k2",
     "window/both", "window/right-beyond-keys", "corner/most-rows-empty", "corner/q1-k259"],
)  # fmt: skip
def test_named_cases(name):
    result = check_mha_bwd(make_inputs(case(name)), deterministic=True)
    assert result.passed, str(result)


def test_only_dq_depends_on_the_mode():
    inputs = make_inputs(case("gqa/h6-k2"))
    fast, exact = (run_guarded(inputs, deterministic=mode) for mode in (False, True))
    for name in ("dk", "dv", "softmax_d", "d_sink"):
        assert torch.equal(fast[name], exact[name]), name


@pytest.mark.parametrize("layout", ["bhsd", "sliced", "odd"])
def test_strided_layouts(layout):
    layouts = dict.fromkeys(("dout", "q", "k", "v", "out", "dq", "dk", "dv"), layout)
    shape = dataclasses.replace(case("gqa/h6-k2"), hdim=40)
    result = check_mha_bwd(make_inputs(shape), layouts, deterministic=True)
    assert result.passed, str(result)
