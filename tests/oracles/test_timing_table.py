"""The timing MODEL against published times of kernels that it was not fitted on."""

from __future__ import annotations

import pytest

from oracles.timing_table import PUBLISHED, TRITON, Published, lines, modelled, tflops
from wheels import Unavailable


def value(case: Published) -> float:
    try:
        return tflops(case, modelled(case))
    except Unavailable as reason:
        pytest.skip(str(reason))


LONG = [c for c in PUBLISHED if c.same and c.gpu == "MI355X" and c.seqlen == 8192]


@pytest.mark.parametrize("case", LONG, ids=str)
def test_long_sequences_are_modelled_within_a_fifth(case: Published) -> None:
    assert 0.8 <= value(case) / case.tflops <= 1.2


@pytest.mark.parametrize("stem", ["bwd_hd64_bf16_a32_rtne_pssk", f"{TRITON}causal"])
def test_the_other_kernels_are_modelled_too(stem: str) -> None:
    """Half-rate MFMA bounds aiter's D 64; no published time of an MI355X says more."""
    case = next(c for c in PUBLISHED if c.stem == stem)._replace(seqlen=1024)
    assert 20 < value(case) < 1250


def test_a_miss_and_another_kernel_are_said_in_the_table() -> None:
    right, *_ = LONG
    wrong = right._replace(tflops=right.tflops / 3, fitted=False)
    *_, missed, other = lines([wrong, wrong._replace(same=False)])
    if "not run" in missed:
        pytest.skip(missed)
    assert missed.endswith("| **miss** |")
    assert other.endswith("| another kernel |")
