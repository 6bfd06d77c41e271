"""The timing MODEL on runs of 256 instructions whose clocks follow from its constants."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mha_sink import EmulationError, emulator
from mha_sink.profiling import model
from mha_sink.profiling.timing import (
    ModelledTiming,
    Spread,
    atomic_bytes,
    compulsory_bytes,
    cross,
    last_end,
    memset_timing,
    model_launch,
)
from mha_sink.testing import case

# The kernels of timing.hip compute with whatever their registers hold.
pytestmark = pytest.mark.faulty

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
    with pytest.raises(ValueError, match="sample is empty"):
        code.model_timing("run_barrier", 3, 64, [np.zeros(64, np.uint32)], sample=[])


@pytest.mark.parametrize(("grid", "block"), [(0, 64), (1, 0), ((1, 0, 1), 64)])
def test_empty_launches_are_refused(code, grid, block):
    with pytest.raises(EmulationError, match=r"grid of \(|workgroup size \("):
        code.model_timing("run_barrier", grid, block, [np.zeros(64, np.uint32)])


def test_priority_decides_between_ready_waves(code):
    """Two waves share each SIMD; the older one's VALU run comes first, or behind the other's, which
    has loads to wait for."""
    x = np.zeros(64, np.uint32)
    older, late = (
        code.model_timing(name, 1, 64 * 8, [x], lds=160 * 1024).clocks
        for name in ("run_equal_priority", "run_late_loads_first")
    )
    assert older - late == pytest.approx(4 * RUN, abs=50)


def test_a_launch_takes_whole_rounds_of_the_device(code):
    def modelled(copies: int) -> float:
        x = [np.zeros(64, np.uint32)]
        timing = code.model_timing("run_barrier", 1, 64, x, lds=160 * 1024, copies=copies)
        assert timing.workgroups == copies
        return timing.seconds()

    assert modelled(1) == modelled(256)
    assert modelled(257) == pytest.approx(2 * modelled(1))


def test_workgroups_that_share_a_compute_unit_start_when_one_ends(code):
    """Eight one-wave workgroups of a SIMD hide each other's memory latency; a new one starts at
    once."""
    x = [np.zeros(64 * 16, np.uint8)]
    alone = code.model_timing("run_load_and_wait", 1, 64, x)
    many = code.model_timing("run_load_and_wait", 1, 64, x, copies=256 * 32)
    twice = code.model_timing("run_load_and_wait", 1, 64, x, copies=2 * 256 * 32)
    assert (alone.resident, many.resident, twice.resident) == (1, 32, 32)
    assert many.seconds() < 32 * alone.seconds() / 4
    assert twice.seconds() == pytest.approx(2 * many.seconds(), rel=0.2)


def test_a_launch_is_no_shorter_than_its_bytes(code):
    x = [np.zeros(64, np.uint32)]
    modelled = code.model_timing("run_barrier", 1, 64, x, hbm_bytes=8e12)
    assert modelled.seconds() == pytest.approx(1)
    assert memset_timing(8 * 10**9).seconds() == pytest.approx(1e-3)
    few = code.model_timing("run_barrier", 1, 64, x)
    assert few.device_clocks == few.compute_clocks > few.hbm_clocks


def test_compulsory_bytes_are_extrapolated_up_to_the_buffer():
    counts = {"lines_read": 0, "lines_written": 0}
    buffers = {
        "own": {**counts, "lines": 20, "workgroup_lines": 20},
        "shared": {**counts, "lines": 100, "workgroup_lines": 1000},
    }
    memory = [(0, 128 * 1000, True, "own"), (0, 128 * 100, False, "shared")]
    assert compulsory_bytes(buffers, memory, sampled=10, workgroups=200) == 128 * (400 + 100)
    assert compulsory_bytes(buffers, memory, sampled=10, workgroups=10) == 128 * (20 + 100)


def test_the_sample_stands_for_the_grid():
    sizes = (3, 32, 2)
    values = {(x, y, z): 10.0 + 2 * y for x, y, z in cross(sizes)}
    assert len(values) == 2 + 5 + 1
    spread = Spread(sizes, values)
    assert list(spread.in_order()) == pytest.approx(
        [10 + 2 * y for _ in range(2) for y in range(32) for _ in range(3)]
    )
    assert spread.total() == pytest.approx(6 * sum(10 + 2 * y for y in range(32)))
    assert Spread.mean(sizes, {(0, 0, 0): 2.0, (1, 1, 1): 4.0}).total() == 3 * 32 * 2 * 3


def test_a_sample_is_close_to_modelling_every_workgroup(monkeypatch: pytest.MonkeyPatch):
    """Causal: the last keys see a fraction of the queries."""
    causal = dataclasses.replace(case("smoke/d64-causal"), seqlen_q=2048, seqlen_k=2048)

    def main() -> ModelledTiming:
        return next(k.timing for k in model.model_mha_bwd(causal) if k.useful_flops)

    sampled = main()

    def every(code, kernel, grid, *launch, **more):  # type: ignore[no-untyped-def]
        return model_launch(
            code, kernel, grid, *launch, **more, sample=range(grid[0] * grid[1] * grid[2])
        )

    monkeypatch.setattr(model, "model_launch", every)
    exact = main()
    assert sampled.workgroups == exact.workgroups == 2 * 8
    assert sampled.clocks == pytest.approx(exact.clocks, rel=0.02)
    assert sampled.busy["mfma"] == pytest.approx(exact.busy["mfma"], rel=0.02)
    assert sampled.compute_clocks > 1.5 * exact.clocks


def test_more_workgroups_than_can_be_followed_load_the_device_evenly(code):
    x = [np.zeros(64, np.uint32)]
    few = code.model_timing("run_barrier", 1, 64, x, lds=160 * 1024, copies=2**20)
    many = code.model_timing("run_barrier", (2**25, 1, 1), 64, x, lds=160 * 1024, copies=2**7)
    assert many.seconds() == pytest.approx(2**12 * few.seconds(), rel=0.01)


def test_the_longest_workgroups_decide_when_a_launch_ends():
    assert last_end([5.0] * 256, resident=1) == 5
    assert last_end([5.0] * 257, resident=1) == 10
    assert last_end([5.0] * 512, resident=2) == 5
    # Those of one die: every eighth.
    assert last_end([5.0 if i % 8 == 0 else 0.0 for i in range(8 * 33)], resident=1) == 10


def test_busy_compute_units_share_the_rate_of_atomics():
    device = 1.32e12 / 2.4e9
    assert atomic_bytes(256, 1) == atomic_bytes(1024, 1) == pytest.approx(device / 256)
    assert atomic_bytes(64, 2) == pytest.approx(device / 32)
    assert atomic_bytes(1, 1) == 64
    assert atomic_bytes(256, 1, clock_ghz=1.2) == pytest.approx(2 * device / 256)
