"""The ROCm device from Python, on the fake HIP runtime of tests/fake_hip; and without any."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fake_rocm
import mha_sink
from mha_sink import _tensors, reference
from mha_sink.testing import Case, case, make_inputs
from mha_sink.testing.bounds import bounds
from mha_sink.testing.inputs import outside_sequences
from mha_sink.testing.launches import LaunchResult, compare_launches

SCENARIOS = Path(__file__).parent / "rocm_scenarios.py"

needs_fake = pytest.mark.skipif(
    fake_rocm.library() is None,
    reason="needs MHA_SINK_BUILD_DIR, a build tree with tests/fake_hip (which needs triton)",
)


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With one emulating thread, so that atomics have one order."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "MHA_SINK_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_fake
@pytest.mark.parametrize(
    "scenario",
    [
        "through_the_gate",
        "graph_capture",
        "packed_sequences",
        "wrong_lengths",
        "failures",
        "which_devices",
        "selftest_of_a_corrupted_kernel",
        "selftest_of_a_corrupted_bit",
        "selftest_of_a_failing_launch",
    ],
)
def test_scenario(scenario: str, tmp_path: Path) -> None:
    done = run_python(str(SCENARIOS), scenario, str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_fake
def test_selftest_finds_the_runtime_by_name(tmp_path: Path) -> None:
    library = fake_rocm.library()
    assert library is not None
    done = run_python(
        str(SCENARIOS), "selftest", str(tmp_path), LD_LIBRARY_PATH=str(library.parent)
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_fake
def test_info_lists_gpus(tmp_path: Path) -> None:
    done = run_python(str(SCENARIOS), "info", str(tmp_path))
    report = json.loads(done.stdout)
    assert [entry["device"] for entry in report["devices"]] == ["cpu", "cuda:0", "cuda:1"]
    assert "Fake MI350X" in report["devices"][1]["runs"]
    assert report["rocm"]["runtime_version"] // 10_000_000 == 7


@pytest.fixture
def without_rocm() -> None:
    for name in ("libamdhip64.so.7", "libamdhip64.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        pytest.skip(f"{name} is installed here")


def test_no_runtime(without_rocm: None) -> None:
    done = run_python("-m", "mha_sink", "selftest", "--device", "rocm")
    assert done.returncode == 2
    assert "no ROCm device: no HIP runtime is loaded or installed" in done.stderr
    with pytest.raises(mha_sink.Error, match="no ROCm device: no HIP runtime"):
        mha_sink.warmup("cuda:0")


@pytest.mark.parametrize("device", ["gpu", "rocm:", "rocm:-1", "cuda:0"])
def test_selftest_refuses(device: str) -> None:
    done = run_python("-m", "mha_sink", "selftest", "--device", device)
    assert done.returncode == 2
    assert "need emulated, rocm or rocm:N" in done.stderr


def test_gpus_of_a_torch_for_cuda_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(mha_sink.Unsupported, match=r"q: cuda:0 of a torch for CUDA 12.8 .* ROCm"):
        _tensors.check_torch("q", torch.device("cuda:0"))
    with pytest.raises(mha_sink.Unsupported, match="device: cuda:0 of a torch for CUDA"):
        mha_sink.warmup("cuda:0")
    _tensors.check_torch("q", torch.device("cpu"))


def test_warmup_of_the_emulator() -> None:
    mha_sink.warmup("cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_bounds_hold_for_another_implementation_and_not_for_a_wrong_one(dtype: str) -> None:
    """torch's own sums and exp stand in for the other implementation."""
    shape = Case("bounds", 2, 113, 300, 4, 2, 64, causal=True, dtype=dtype)
    inputs = make_inputs(shape)
    launches: list[object] = []
    gate = compare_launches(inputs, "cpu", lambda kernel: None, launches.append)
    assert gate.passed, str(gate)
    assert len(launches) == 5

    assert inputs.sink is not None
    limits = bounds("mha_dq_dk_dv", inputs, inputs.sink)
    arguments = (inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, inputs.sink)
    x = reference.mixed_bwd(*arguments, **shape.mask)
    x64 = reference.formula_bwd(*arguments, **shape.mask)
    moved = inputs.k.roll(1, dims=1)
    wrong = reference.formula_bwd(
        inputs.dout, inputs.q, moved, inputs.v, inputs.out, inputs.lse, inputs.sink, **shape.mask
    )
    for name in ("dk", "dv"):
        share = ((getattr(x, name).double() - getattr(x64, name)).abs() / limits[name]).max()
        assert 1e-3 < share < 1, f"{name}: {share}"
        over = (getattr(wrong, name) - getattr(x64, name)).abs() > limits[name]
        assert over.float().mean() > 0.2, name


@pytest.mark.parametrize("deterministic", [False, True])
def test_bounds_of_a_packed_batch_are_those_of_its_sequences(deterministic: bool) -> None:
    inputs = make_inputs(case("packed/padded"))
    launches: list[LaunchResult] = []
    gate = compare_launches(inputs, "cpu", lambda kernel: None, launches.append, deterministic)
    assert gate.passed, str(gate)
    kernels = [launch.kernel for launch in launches]
    assert ("mha_dq_bf16_hd64" in kernels) == deterministic
    assert all(launch.passed for launch in launches)

    assert inputs.packing is not None
    assert inputs.sink is not None
    limits = bounds("mha_dq_dk_dv", inputs, inputs.sink)
    arguments = (inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse)
    x, x64 = (
        backward(*arguments, inputs.packing, inputs.sink, **inputs.case.mask)
        for backward in (reference.packed_mixed_bwd, reference.packed_formula_bwd)
    )
    no_query, no_key = outside_sequences(inputs.case, inputs.packing)
    for name, outside in (("dq", no_query), ("dk", no_key), ("dv", no_key)):
        limit = limits[name]
        assert (limit[outside] == 0).all()
        error = (getattr(x, name).double() - getattr(x64, name)).abs()
        share = (error / limit)[~outside].nan_to_num().max()
        assert 1e-3 < share < 1, f"{name}: {share}"
