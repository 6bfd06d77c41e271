"""Versions, the compiler that built the kernels and why, devices, kernels, a quick self-test."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
from importlib import metadata
from typing import Any

import torch

import mha_sink
from mha_sink import _C, _devices
from mha_sink.cli.report import print_gate
from mha_sink.cli.table import print_table
from mha_sink.testing import GateResult, case, check_mha_bwd, make_inputs

SELF_TEST_CASE = "smoke/d64-causal"
OPTIONAL = ("transformers", "rich")
# Part of the interface: scripts read `info --json`.
KERNEL_FIELDS = (
    "name", "vgpr", "agpr", "sgpr", "lds_bytes", "vgpr_spills", "scratch_bytes", "accvgpr_per_mfma",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(options: argparse.Namespace) -> int:
    started = time.perf_counter()
    result = check_mha_bwd(make_inputs(case(SELF_TEST_CASE)))
    seconds = time.perf_counter() - started
    if options.json:
        json.dump(describe(result, seconds), sys.stdout, indent=2)
        print()
    else:
        _print(describe(result, seconds), result)
    return 0 if result.passed else 1


def describe(self_test: GateResult, seconds: float) -> dict[str, Any]:
    """Everything that `info` reports, as JSON values."""
    return {
        "version": mha_sink.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: _version(name) for name in OPTIONAL},
        "build": dict(_C.build_info()),
        "devices": devices(),
        "rocm": rocm(),
        "self_test": {
            "case": SELF_TEST_CASE,
            "passed": self_test.passed,
            "seconds": seconds,
            "tensors": {
                t.name: {"status": t.status.value, "error": t.error, "allowed": t.allowed}
                for t in self_test.tensors
            },
        },
        "kernels": [{name: kernel[name] for name in KERNEL_FIELDS} for kernel in _kernels()],
    }


def devices() -> list[dict[str, Any]]:
    """Where kernels could run: the emulator, and the GPUs of the HIP runtime."""
    _C.set_thread_count(torch.get_num_threads())
    found: list[dict[str, Any]] = [
        {"device": "cpu", "runs": f"gfx950, emulated on {_C.thread_count()} threads"}
    ]
    for index, name in enumerate(rocm().get("devices", [])):
        architecture = _devices.architecture(index)
        product = name.partition(" ")[2].strip("()")
        if architecture is None:
            runs = f"gfx950 if it is one ({product}; torch does not see it)"
        elif architecture.partition(":")[0] == _devices.ARCHITECTURE:
            runs = f"gfx950 ({product}, {architecture})"
        else:
            runs = f"nothing: the kernels are gfx950 ({product}, {architecture})"
        found.append({"device": f"cuda:{index}", "runs": runs})
    return found


def rocm() -> dict[str, Any]:
    """The HIP runtime and its versions, or {"error": why there is none}."""
    try:
        return dict(_C.rocm().items())
    except mha_sink.Error as error:
        return {"error": str(error)}


def version_text(version: int) -> str:
    """70125424 is 7.1.25424."""
    return f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"


def _kernels() -> list[dict[str, Any]]:
    return [dict(kernel.items()) for kernel in _C.kernels()]


def _rocm_line(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    return (
        f"{found['library']}, runtime {version_text(found['runtime_version'])}, "
        f"driver {version_text(found['driver_version'])}"
    )


def _version(package: str) -> str | None:
    return metadata.version(package) if importlib.util.find_spec(package) else None


def _print(report: dict[str, Any], self_test: GateResult) -> None:
    build = report["build"]
    lines = {
        "mha_sink": report["version"],
        "python": report["python"],
        "torch": report["torch"],
        **{name: report[name] or "not installed (optional)" for name in OPTIONAL},
        "HIP compiler": f"{build['hip_compiler']}: {build['hip_compiler_version']}",
        "chosen because": build["hip_compiler_reason"],
        "HIP flags": build["hip_flags"],
        "host compiler": build["host_compiler"],
        "ROCm": _rocm_line(report["rocm"]),
        **{entry["device"]: entry["runs"] for entry in report["devices"]},
    }
    for name, text in lines.items():
        print(f"{name:<15} {text}")
    print_table(
        "Kernels (gfx950)",
        [name.replace("_", " ") for name in KERNEL_FIELDS],
        [
            [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in kernel.values()]
            for kernel in report["kernels"]
        ],
    )
    test = report["self_test"]
    print_gate(
        f"Self-test {test['case']}: {'pass' if test['passed'] else 'FAIL'}, {test['seconds']:.1f} s"
        " with its float64 reference, emulated on CPU",
        self_test,
    )
