"""Executed instructions, where the design sets a bound. Counts, not time."""

from __future__ import annotations

import pytest
import torch

import mha_sink
from mha_sink import _C
from mha_sink.profiling.report import profile_mha_bwd
from mha_sink.testing import case


def executed(
    seqlen: int, hdim: int, window: tuple[int, int], deterministic: bool = False
) -> dict[str, _C.InstructionMix]:
    """Causal self-attention of one head, values of no interest."""
    x = torch.zeros(1, seqlen, 1, hdim, dtype=torch.bfloat16)
    _C.profile_start()
    try:
        mha_sink.mha_bwd(
            x, x, x, x, x, torch.zeros(1, 1, seqlen), 0.0, 1.0, True, *window, deterministic
        )
    finally:
        profile = _C.profile_stop()
    return profile


def total(profile: dict[str, _C.InstructionMix], kind: str | None = None) -> int:
    return sum(
        mix["wave_instructions"] if kind is None else mix["classes"][kind]
        for mix in profile.values()
    )


def test_deterministic_mode_costs_at_most_1_6_times_the_default():
    # 1.33 as measured.
    default, deterministic = (executed(2048, 128, (-1, 0), mode) for mode in (False, True))
    assert total(deterministic) <= 1.6 * total(default)


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_mode_adds_nothing_by_atomics(deterministic):
    """dq_dk_dv issues them to an empty buffer, which drops them."""
    reports = profile_mha_bwd(case("smoke/d64-causal"), deterministic)
    moved = sum(bound.clocks for r in reports for bound in r.bounds if bound.unit == "atomics")
    assert (moved == 0) == deterministic


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_window_costs_its_band(deterministic):
    # A window of 128 keys in tiles of 256: a band of constant width, so twice the rows cost twice
    # as much, where a square costs four times.
    short, long = (executed(n, 64, (127, 0), deterministic) for n in (2048, 4096))
    square = executed(4096, 64, (-1, 0), deterministic)
    assert total(long, "mfma") <= 2.1 * total(short, "mfma")
    assert total(long, "mfma") <= total(square, "mfma") / 6
