"""`mha_sink.integrations.aiter` against a stand-in for aiter: its interface, none of its code."""

from __future__ import annotations

import importlib
import inspect
import sys
import types

import pytest
import torch

from mha_sink.integrations import aiter as integration
from mha_sink.testing import Case, check, expected, make_inputs

# aiter's interface as published: names in order, None where there is no default.
REQUIRED = inspect.Parameter.empty
DENSE = {
    **dict.fromkeys(
        ("dout", "q", "k", "v", "out", "softmax_lse", "dropout_p", "softmax_scale", "is_causal",
         "window_size_left", "window_size_right", "deterministic"), REQUIRED),
    **dict.fromkeys(
        ("dq", "dk", "dv", "dbias", "bias", "alibi_slopes", "rng_state", "gen", "sink", "d_sink")),
}  # fmt: skip
PACKED = {
    **dict.fromkeys(
        ("dout", "q", "k", "v", "out", "softmax_lse", "cu_seqlens_q", "cu_seqlens_k",
         "max_seqlen_q", "max_seqlen_k", "dropout_p", "softmax_scale", "zero_tensors", "is_causal",
         "window_size_left", "window_size_right", "deterministic"), REQUIRED),
    **dict.fromkeys(
        ("dq", "dk", "dv", "alibi_slopes", "rng_state", "gen", "cu_seqlens_q_padded",
         "cu_seqlens_k_padded", "sink", "d_sink")),
}  # fmt: skip
FUNCTIONS = {"mha_bwd": DENSE, "mha_varlen_bwd": PACKED}
SHAPE = Case("aiter", 2, 17, 33, 4, 2, 64, causal=True)


def stub_source() -> str:
    """Functions that only know their names, behind wrappers that hide the signature and hand
    keywords on, as aiter's do; and a torch operator that calls one, as aiter's autograd does."""
    lines = ["import torch", "import functools", "", "", "def _operator(function):"]
    lines += ["    def wrapper(*args, **kwargs):", "        return function(*args, **kwargs)"]
    lines += ["    wrapper.function = function", "    return wrapper"]
    for name, parameters in FUNCTIONS.items():
        listed = [p if d is REQUIRED else f"{p}={d}" for p, d in parameters.items()]
        lines += ["", "", "@_operator", f"def {name}({', '.join(listed)}):", f"    return '{name}'"]
    return "\n".join(lines) + CALLERS


CALLERS = """


def dense_backward(dout, q, k, v, out, lse, dq, dk, dv, scale, sink, d_sink):
    return mha_bwd(
        dout, q, k, v, out, lse, 0.0, scale, True, -1, -1, False, dq, dk, dv, None, None, None,
        None, None, sink, d_sink,
    )


def packed_backward(dout, q, k, v, out, lse, lengths, longest, dq, dk, dv, scale, sink, d_sink):
    return mha_varlen_bwd(
        dout, q, k, v, out, lse, *lengths, *longest, 0.0, scale, False, True, -1, -1, False,
        dq, dk, dv, None, None, None, None, None, sink=sink, d_sink=d_sink,
    )
"""


@pytest.fixture
def aiter(tmp_path, monkeypatch):
    """An importable `aiter`, gone afterwards."""
    ops = tmp_path / "aiter" / "ops"
    ops.mkdir(parents=True)
    (tmp_path / "aiter" / "__init__.py").write_text("from .ops.mha import *\n")
    (ops / "__init__.py").write_text("")
    (ops / "mha.py").write_text(stub_source())
    monkeypatch.syspath_prepend(tmp_path)
    forget_aiter()
    yield importlib.import_module("aiter")
    forget_aiter()


def forget_aiter():
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiter"]:
        del sys.modules[name]


def functions_of(aiter: types.ModuleType):
    modules = (aiter, importlib.import_module("aiter.ops.mha"))
    return [getattr(module, name) for module in modules for name in FUNCTIONS]


OURS = [integration.mha_bwd, integration.mha_varlen_bwd] * 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_are_those_of_aiter(aiter, name):
    def parameters(function):
        return [
            (p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()
        ]

    theirs = getattr(aiter, name).function
    assert parameters(getattr(integration, name)) == parameters(theirs)


def test_patch_as_a_call(aiter):
    theirs = functions_of(aiter)
    patch = integration.patch()
    assert functions_of(aiter) == OURS
    patch.restore()
    assert functions_of(aiter) == theirs
    patch.restore()
    assert functions_of(aiter) == theirs


def test_restoring_twice_leaves_a_later_patch_alone(aiter):
    first = integration.patch()
    first.restore()
    with integration.patch():
        first.restore()
        assert functions_of(aiter) == OURS


def test_patch_as_a_context(aiter):
    theirs = functions_of(aiter)
    with integration.patch() as patch:
        assert functions_of(aiter) == OURS
        patch.restore()
        assert functions_of(aiter) == theirs
    assert functions_of(aiter) == theirs


def test_an_exception_ends_the_patch_and_passes(aiter):
    theirs = functions_of(aiter)
    with pytest.raises(RuntimeError, match="of the block"), integration.patch():
        raise RuntimeError("of the block")
    assert functions_of(aiter) == theirs


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_nested_patches_end_in_any_order(aiter, order):
    theirs = functions_of(aiter)
    patches = [integration.patch(), integration.patch()]
    patches[order[0]].restore()
    assert functions_of(aiter) == OURS
    patches[order[1]].restore()
    assert functions_of(aiter) == theirs


def test_what_somebody_else_put_there_meanwhile_stays(aiter):
    theirs = functions_of(aiter)
    with integration.patch():
        aiter.mha_bwd = print
    assert functions_of(aiter) == [print, *theirs[1:]]


def test_without_aiter(monkeypatch):
    forget_aiter()
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    monkeypatch.setitem(sys.modules, "aiter", None)
    with pytest.raises(ImportError, match="no module aiter; patch\\(\\) exchanges functions"):
        integration.patch()


def test_an_aiter_without_the_functions_is_left_alone(aiter):
    module = importlib.import_module("aiter.ops.mha")
    del module.mha_varlen_bwd
    before = aiter.mha_bwd
    with pytest.raises(ImportError, match=r"aiter\.ops\.mha has no mha_varlen_bwd"):
        integration.patch()
    assert aiter.mha_bwd is module.mha_bwd is before


def test_an_aiter_that_does_not_import_says_why_itself(tmp_path, monkeypatch):
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("import a_module_that_aiter_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget_aiter()
    with pytest.raises(ModuleNotFoundError, match="a_module_that_aiter_needs"):
        integration.patch()
    forget_aiter()


def outputs(inputs):
    return {
        "dq": torch.full_like(inputs.q, torch.nan), "dk": torch.full_like(inputs.k, torch.nan),
        "dv": torch.full_like(inputs.v, torch.nan), "d_sink": torch.zeros(inputs.case.nhead_q),
    }  # fmt: skip


def gate(inputs, results, d_sink):
    written = dict(zip(("dq", "dk", "dv", "softmax_d"), results, strict=True))
    against = expected(inputs)
    return check({**written, "d_sink": d_sink}, against.x64, against.xr)


def test_aiters_callers_get_our_gradients(aiter):
    inputs, given = make_inputs(SHAPE), outputs(make_inputs(SHAPE))
    backward = importlib.import_module("aiter.ops.mha").dense_backward
    arguments = {
        name: getattr(inputs, name) for name in ("dout", "q", "k", "v", "out", "lse", "sink")
    }
    assert backward(**arguments, **given, scale=SHAPE.scale) == "mha_bwd"
    with integration.patch():
        results = backward(**arguments, **given, scale=SHAPE.scale)
    result = gate(inputs, results, given["d_sink"])
    assert result.passed, str(result)
    assert results[0] is given["dq"]


def test_a_torch_operator_may_call_the_patched_function(aiter):
    """aiter's own wrapper of the backward is one: it fills dq, dk and dv and returns softmax_d."""
    module = importlib.import_module("aiter.ops.mha")

    @torch.library.custom_op("mha_sink_test::backward", mutates_args=("dq", "dk", "dv", "d_sink"))
    def backward(
        dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
        lse: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, scale: float,
        sink: torch.Tensor, d_sink: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        softmax_d: torch.Tensor = module.dense_backward(
            dout, q, k, v, out, lse, dq, dk, dv, scale, sink, d_sink
        )[3]
        return softmax_d

    inputs, given = make_inputs(SHAPE), outputs(make_inputs(SHAPE))
    arguments = (inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse)
    with integration.patch():
        softmax_d = backward(
            *arguments, given["dq"], given["dk"], given["dv"], SHAPE.scale, inputs.sink,
            given["d_sink"],
        )  # fmt: skip
    results = (given["dq"], given["dk"], given["dv"], softmax_d)
    result = gate(inputs, results, given["d_sink"])
    assert result.passed, str(result)


def test_keywords_in_any_order(aiter):
    inputs = make_inputs(SHAPE)
    arguments = {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "dropout_p": 0, "softmax_scale": SHAPE.scale, "is_causal": True,
        "window_size_left": -1, "window_size_right": -1, "deterministic": False,
    }  # fmt: skip
    with integration.patch():
        straight = aiter.mha_bwd(**arguments)
        reversed_ = aiter.mha_bwd(**dict(reversed(arguments.items())))
    for x, y in zip(straight[1:], reversed_[1:], strict=True):
        assert torch.equal(x, y)
