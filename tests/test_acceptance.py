"""The acceptance matrix of dense and packed backward, sampled in pairs; in triples with `full`."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch

from mha_sink.testing import Case, make_inputs, run_guarded
from mha_sink.testing.covering import covering
from mha_sink.testing.gate import Status
from mha_sink.testing.grid import AXES, GridCase, acceptance_grid, check_grid_case


def may_be_unresolvable(chosen: GridCase) -> set[str]:
    """Tensors that the dtype cannot resolve in this case, and why."""
    case = chosen.case
    tensors: set[str] = set()
    offsets = case.sink_offsets or (-math.inf,)
    lengths = zip(case.seqlens_q, case.seqlens_k, strict=True)
    lengths = lengths if case.packed else [(case.seqlen_q, case.seqlen_k)]
    most_keys = max((keys for queries, keys in lengths if queries), default=0)
    left, right = case.window
    seen = min(most_keys, left + right + 1) if min(left, right) >= 0 else most_keys
    # A query that sees one key beside a small sink has P = 1 and dS = P (dP - delta) = 0, up to the
    # rounding of `out`.
    if seen <= 1 and max(offsets) <= 2:
        tensors |= {"dq", "dk"}
    # Under a sink of lse + 20, P is about e^-20 / keys, below the smallest float16.
    if case.dtype == "float16" and max(offsets) >= 20:
        tensors |= {"dq", "dk", "dv", "softmax_d", "d_sink"}
    return tensors


def check_case(chosen: GridCase) -> None:
    result = check_grid_case(chosen)
    assert not result.failures, f"{chosen}\n{result}"
    unresolvable = set(result.unresolvable)
    assert unresolvable <= may_be_unresolvable(chosen), f"{chosen}\n{result}"
    if unresolvable:
        pytest.skip(f"{', '.join(result.unresolvable)} unresolvable in {chosen.case.dtype}")


@pytest.mark.parametrize("chosen", acceptance_grid(), ids=str)
def test_pairs(chosen: GridCase) -> None:
    check_case(chosen)


def triples() -> list[GridCase]:
    return acceptance_grid(3)


@pytest.mark.full
@pytest.mark.parametrize("part", range(64))
def test_triples(part: int) -> None:
    """A 64th of the sample each: thousands of parameters would slow every collection."""
    unresolvable = []
    for chosen in triples()[part::64]:
        try:
            check_case(chosen)
        except pytest.skip.Exception:
            unresolvable.append(str(chosen))
    print(f"unresolvable: {len(unresolvable)}", *unresolvable, sep="\n  ")


def test_the_sample_holds_every_allowed_pair() -> None:
    axes = {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1, 2, 3)}
    rows = covering(axes, 2, lambda row: row.get("a") != 2 or row.get("c") != 3)
    pairs = {
        frozenset(pair) for row in rows for pair in itertools.combinations(sorted(row.items()), 2)
    }
    for x, y in itertools.combinations(axes, 2):
        for i, j in itertools.product(axes[x], axes[y]):
            met = frozenset([(x, i), (y, j)]) in pairs
            assert met == ((x, i, y, j) != ("a", 2, "c", 3))
    assert len(rows) < math.prod(map(len, axes.values()))


def test_every_value_of_every_axis_occurs() -> None:
    rows = acceptance_grid()
    lengths = {match[1] for row in rows if (match := re.search(r"-q(\d+k\d+)-", str(row)))}
    assert lengths == {f"{q}k{k}" for q, k in AXES["seqlens"]}
    assert {(row.case.nhead_q, row.case.nhead_k) for row in rows} == set(AXES["heads"])
    assert {(row.case.hdim, row.case.hdim_v) for row in rows} == set(AXES["hdims"])


@pytest.mark.parametrize("offset", [100.0, math.inf])
def test_a_dominant_sink_leaves_finite_gradients(offset: float) -> None:
    inputs = make_inputs(
        Case("dominant", 1, 65, 129, 2, 2, 64, causal=True, sink_offsets=(offset,))
    )
    for name, x in run_guarded(inputs).items():
        assert x.isfinite().all(), name
        # |P| <= e^-100, below the smallest normal float32, times at most 65 rows of about 64.
        bound = 0.0 if math.isinf(offset) else 2.0**-120
        assert name == "softmax_d" or x.abs().max() <= bound, name


def test_the_gate_of_a_grid_case_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = next(row for row in acceptance_grid() if row.case.sink_offsets == (0.0,))

    def without_sink(inputs, layouts, d_sink_start, deterministic):
        written = run_guarded(inputs, layouts, d_sink_start, deterministic=deterministic)
        return {**written, "d_sink": torch.zeros_like(written["d_sink"])}

    monkeypatch.setattr("mha_sink.testing.grid.run_guarded", without_sink)
    assert check_grid_case(chosen)["d_sink"].status is Status.FAIL
