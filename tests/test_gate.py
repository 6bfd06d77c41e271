"""The gate and the guard bands: they pass what is right and notice what is not."""

from __future__ import annotations

import math

import pytest
import torch

from mha_sink.testing import LAYOUTS, GuardedTensor, Status, case, cases, check, check_tensor
from mha_sink.testing.cases import AXES, full_grid, pairwise_grid
from mha_sink.testing.covering import pairwise

X64 = torch.tensor([1.0, -4.0, 2.0], dtype=torch.float64)
XR = X64 + torch.tensor([0.0, 0.01, 0.0], dtype=torch.float64)
BOUND = 2 * 0.01 + 2**-20 * 4


@pytest.mark.parametrize(
    ("error", "status"),
    [(0.0, Status.PASS), (0.999 * BOUND, Status.PASS), (1.001 * BOUND, Status.FAIL)],
)
def test_bound(error, status):
    result = check_tensor("x", X64 - error, X64, XR)
    assert result.status is status
    assert result.error == pytest.approx(error)
    assert result.allowed == pytest.approx(BOUND)
    assert (result.reason == "") == (status is Status.PASS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_stray_special_value_fails(value):
    x = X64.clone()
    x[1] = value
    result = check_tensor("x", x, X64, XR)
    assert result.status is Status.FAIL
    assert "first [1]" in result.reason
    assert check_tensor("x", X64, x, XR).status is Status.FAIL


def test_special_values_where_float64_has_them_pass():
    x64, xr = X64.clone(), XR.clone()
    x64[0] = xr[0] = math.nan
    assert check_tensor("x", xr, x64, xr).status is Status.PASS
    x64[2] = xr[2] = math.inf
    assert check_tensor("x", xr, x64, xr).status is Status.PASS
    x = xr.clone()
    x[2] = -math.inf
    assert check_tensor("x", x, x64, xr).status is Status.FAIL


def test_unresolvable_is_no_pass():
    xr = X64 + 0.41
    result = check({"x": X64}, {"x": X64}, {"x": xr})
    assert result["x"].status is Status.UNRESOLVABLE
    assert not result.passed
    assert result.unresolvable == ["x"]
    assert result.failures == []
    assert "unresolvable in this dtype" in str(result)
    nan = torch.full_like(X64, math.nan)
    assert check_tensor("x", X64, X64, nan).status is Status.UNRESOLVABLE
    assert check_tensor("x", nan, X64, xr).status is Status.FAIL


def test_zeros_must_be_zeros():
    zeros = torch.zeros(3, dtype=torch.float64)
    assert check_tensor("x", zeros, zeros, zeros).status is Status.PASS
    assert check_tensor("x", zeros + 1e-30, zeros, zeros).status is Status.FAIL


def test_empty_tensors_pass():
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert check_tensor("x", empty, empty, empty).status is Status.PASS


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="shapes"):
        check_tensor("x", X64[:2], X64, XR)
    with pytest.raises(ValueError, match=r"float32; need torch\.float64"):
        check_tensor("x", X64, X64.float(), XR)
    with pytest.raises(ValueError, match="same tensors"):
        check({}, {"x": X64}, {"x": XR})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_guard_bands(layout):
    shape = (2, 3, 4, 8)
    x = torch.randn(shape).to(torch.bfloat16)
    guarded = GuardedTensor.of("x", x, LAYOUTS[layout](*shape))
    assert torch.equal(guarded.view, x)
    guarded.check()
    if layout in ("sliced", "odd"):  # the holes are guarded too
        guarded.view.as_strided((1,), (1,), guarded.view.storage_offset() + 8).fill_(0)
        with pytest.raises(AssertionError, match="x: 1 elements outside the tensor"):
            guarded.check()


@pytest.mark.parametrize("offset", [-1, 24])
def test_guard_bands_around_the_tensor(offset):
    guarded = GuardedTensor("x", (24,), (1,), torch.float32)
    assert guarded.view.isnan().all()
    guarded.view.as_strided((1,), (1,), guarded.view.storage_offset() + offset).fill_(0)
    with pytest.raises(AssertionError, match=f"the first {offset} elements from its start"):
        guarded.check()


def test_names_of_cases():
    assert case("gqa/h6-k2").nhead_k == 2
    assert {c.group for c in cases("gqa", "mqa")} == {"gqa", "mqa"}
    assert len({c.name for c in cases()}) == len(cases())
    with pytest.raises(ValueError, match="no case 'nope'; cases are smoke/d64"):
        case("nope")
    with pytest.raises(ValueError, match="no case group 'nope'; groups are smoke"):
        cases("nope")


def test_pairwise_covers_every_pair():
    rows = pairwise(AXES)
    for i, a in enumerate(AXES):
        for j, b in enumerate(AXES[:i]):
            assert {(row[i], row[j]) for row in rows} == {(x, y) for x in a for y in b}
    assert len(pairwise_grid()) == len(rows) < len(full_grid()) / 20
