"""The timing MODEL against published times of kernels that it was not fitted on."""

from __future__ import annotations

import pytest

from oracles.timing_table import PUBLISHED, Published, modelled, tflops
from wheels import Unavailable


@pytest.mark.parametrize("case", [c for c in PUBLISHED if c.seqlen == 8192], ids=str)
def test_long_sequences_are_modelled_within_a_fifth(case: Published) -> None:
    try:
        value = tflops(case, modelled(case))
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert 0.8 <= value / case.tflops <= 1.2
