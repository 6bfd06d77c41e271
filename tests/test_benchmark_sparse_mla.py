"""benchmark_sparse_mla_bwd: exit codes, the index builders, counts by phase, its JSON."""

import json
import os
import subprocess
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("MHA_SINK_BUILD_DIR", "build"))
PROGRAM = BUILD / "benchmark_sparse_mla_bwd"
FAKE_HIP = BUILD / "tests" / "fake_hip"
SMALL = ["-T=16", "-H=16", "-topk=64", "-window=32", "-num_pool=32", "-device=emulated"]
PHASES = ["plan", "dq", "dkv_slots", "dkv_gather", "d_sink"]

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(),
    reason="needs MHA_SINK_BUILD_DIR, a build tree with benchmark_sparse_mla_bwd",
)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=120)


def report(*options: str) -> dict:
    done = run(*SMALL, "-json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-indices=uniform",),
        ("-prec=fp16", "-r_chunk=32"),
        ("-sink=0",),
        ("-plan",),
        ("-H=65",),
    ],
)
def test_results_validate(options: tuple[str, ...]) -> None:
    found = report(*options)
    tensors = found["validation"]["tensors"]
    assert found["validation"]["passed"]
    assert list(tensors) == ["o", "lse", "dq", "dkv"] + ["d_sink"] * ("-sink=0" not in options)
    assert found["timing"] is None


def test_counts_come_by_phase_and_add_up_to_the_kernels() -> None:
    found = report("-v=0")["emulation"]
    assert list(found["phases"]) == PHASES
    for name in ("wave_instructions", "lds", "memory"):
        assert all(phase[name] > 0 for phase in found["phases"].values()), name
    assert sum(phase["wave_instructions"] for phase in found["phases"].values()) == sum(
        kernel["wave_instructions"] for kernel in found["kernels"].values()
    )


def test_useful_work_is_that_of_valid_slots() -> None:
    found = report("-v=0")
    # Token t sees t + 1 tokens and (t + 1) // 4 rows of the pool.
    valid = sum(t + 1 + (t + 1) // 4 for t in range(16))
    assert found["problem"]["valid_slots"] == valid
    assert found["flops"] == 10 * 512 * 16 * 16 * 64
    assert found["flops_useful"] == 10 * 512 * 16 * valid
    phases = found["emulation"]["phases"]
    assert phases["dq"]["mfma_useful"] == pytest.approx(6 * 512 * 16 * valid / 32768)
    assert 0 < phases["dkv_slots"]["mfma_useful"] <= phases["dkv_slots"]["mfma"]


def test_a_plan_is_not_part_of_the_call() -> None:
    phases = report("-v=0", "-plan")["emulation"]["phases"]
    assert phases["plan"]["wave_instructions"] == 0
    assert phases["dq"]["wave_instructions"] > 0


@pytest.mark.skipif(
    not (FAKE_HIP / "libamdhip64.so.7").exists(),
    reason="needs the fake HIP runtime of tests/fake_hip",
)
def test_a_gpu_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a HIP runtime whose GPUs are emulated: what is shown is the order of calls, not speed."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKE_HIP))
    found = report("-device=rocm", "-warmup=1", "-repeat=2", "-T=4")
    assert "emulated" not in found["device"]
    assert found["emulation"] is None
    assert found["validation"]["passed"]
    timing = found["timing"]
    for whole_call in (timing["warm"], timing["flushed"]):
        seconds = whole_call["ms"] * 1e-3
        assert whole_call["tflops_counted"] == pytest.approx(found["flops"] / seconds * 1e-12)
        assert whole_call["tflops_useful"] == pytest.approx(found["flops_useful"] / seconds * 1e-12)
    assert list(timing["phases"]) == PHASES
    assert all(milliseconds > 0 for milliseconds in timing["phases"].values())


def test_equal_seeds_give_equal_inputs() -> None:
    first, second = report("-seed=5"), report("-seed=5")
    assert first["validation"] == second["validation"]
    assert first["validation"] != report("-seed=6")["validation"]


def test_text_names_the_phases_only_with_breakdown() -> None:
    whole, parts = run(*SMALL, "-v=0"), run(*SMALL, "-v=0", "-breakdown")
    assert whole.returncode == parts.returncode == 0
    assert all(f"  {phase} " in parts.stdout for phase in PHASES)
    assert not any(f"  {phase} " in whole.stdout for phase in PHASES)


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        (("-topk=16",), 2, "topk: 16 given, at least the window, 32, needed"),
        (("-topk=96",), 2, "num_pool: 32 given, at least topk - window, 64, needed"),
        (("-r_chunk=48",), 2, "multiple of 32"),
        (("-topk=64", "-r_chunk=96"), 2, "must divide TOPK"),
        (("-H=0",), 2, "H (heads)"),
        (("-H=129",), 3, "at most 128"),
        (("-prec=fp32",), 2, "prec"),
        (("-top=64",), 2, "-top=64"),
        (("-device=rocm",), 3, "no ROCm device"),
    ],
)
def test_refusals(options: tuple[str, ...], code: int, part: str) -> None:
    done = run(*SMALL, *options)
    if options == ("-device=rocm",) and done.returncode == 0:
        pytest.skip("there is a ROCm device")
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("benchmark_sparse_mla_bwd: ")
    assert part in done.stderr


def test_help_lists_the_options() -> None:
    done = run("-help")
    assert done.returncode == 0
    for option in ("T", "H", "topk", "num_pool", "window", "ratio", "r_chunk", "sink", "breakdown"):
        assert f"  -{option} (" in done.stdout
