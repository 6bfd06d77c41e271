"""The timing MODEL on runs of 256 instructions whose clocks follow from its constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mha_sink import EmulationError, emulator
from mha_sink.profiling.timing import atomic_bytes

RUN = 256
# Beyond the run: the kernel's start and end.
SLACK = 500


@pytest.fixture
def code(kernel_folder: Path) -> emulator.CodeObject:
    return emulator.load(kernel_folder / "timing.co")


def clocks(code: emulator.CodeObject, name: str, waves: int = 1, **parameters: float) -> int:
    block = np.zeros(16 * 1024, np.uint8)
    x = block[-block.ctypes.data % 128 :]
    # All of LDS: one workgroup on the compute unit.
    modelled = code.model_timing(
        f"run_{name}", 1, 64 * waves, [x], lds=160 * 1024, parameters=parameters
    )
    assert modelled.resident == 1
    return modelled.clocks


@pytest.mark.parametrize(
    ("name", "waves", "each"),
    [
        ("independent_valu", 1, 4), ("dependent_valu", 1, 8), ("transcendental", 1, 16),
        ("independent_mfma", 1, 32), ("dependent_mfma", 1, 18),
        # Two waves share a SIMD: what one leaves free the other takes, and no more.
        ("independent_valu", 8, 8), ("dependent_valu", 8, 8), ("dependent_mfma", 8, 32),
        # Four waves of four SIMDs share the LDS: 4 clocks each, or 64 with every lane in one bank.
        ("lds_read", 4, 16), ("lds_conflict", 1, 64), ("lds_conflict", 4, 256),
        ("load_and_wait", 1, 16 + 350 + 4), ("barrier", 4, 4 + 20),
    ],
)  # fmt: skip
def test_a_run_takes_its_clocks(code, name, waves, each):
    assert RUN * each <= clocks(code, name, waves) + each <= RUN * each + SLACK + each


def test_constants_can_be_changed(code):
    assert clocks(code, "transcendental", trans=8) < 0.6 * clocks(code, "transcendental")
    with pytest.raises(EmulationError, match=r"no_such = 1.0.* there are atomic_bytes.*vmem_line"):
        clocks(code, "barrier", no_such=1)
    with pytest.raises(EmulationError, match=r"atomic_bytes = 0\.0"):
        clocks(code, "barrier", atomic_bytes=0)


def test_workgroups_beyond_the_grid_are_refused(code):
    with pytest.raises(EmulationError, match="sample of workgroup 3 of 3"):
        code.model_timing("run_barrier", 3, 64, [np.zeros(64, np.uint32)], sample=[3])


def test_a_launch_takes_whole_rounds_of_the_device(code):
    modelled = code.model_timing("run_barrier", 3, 64, [np.zeros(64, np.uint32)], lds=160 * 1024)
    one = modelled.clocks / 2.4e9
    assert modelled.seconds() == modelled.seconds(256) == pytest.approx(one)
    assert modelled.seconds(257) == pytest.approx(2 * one)


def test_busy_compute_units_share_the_rate_of_atomics():
    device = 1.32e12 / 2.4e9
    assert atomic_bytes(256, 1) == atomic_bytes(1024, 1) == pytest.approx(device / 256)
    assert atomic_bytes(64, 2) == pytest.approx(device / 32)
    assert atomic_bytes(1, 1) == 64
