"""Every kernel on a device and in the emulator, from the same inputs; names what differs first."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import mha_sink
from mha_sink import _C, _devices
from mha_sink.cli import acceptance
from mha_sink.cli.errors import UsageError
from mha_sink.cli.table import print_table
from mha_sink.testing import (
    Case,
    GateResult,
    SparseCase,
    make_inputs,
    make_sparse_inputs,
    packed_case,
)
from mha_sink.testing.launches import LaunchResult, as_json, compare_launches
from mha_sink.testing.sparse_launches import compare_sparse_launches

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
INSTANCE = re.compile(r"mha_dq_dk_dv_(bf16|fp16)_hd(\d+)(?:x(\d+))?")
SPARSE_INSTANCE = re.compile(r"sparse_mla_dkv_slots_(bf16|fp16)_h(\d+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        type=parse_device,
        metavar="{emulated,rocm,rocm:N}",
        help="what is tested; default: rocm where there is one, else emulated",
    )
    parser.add_argument(
        "--grid",
        choices=sorted(acceptance.STRENGTHS),
        help="instead: the acceptance matrix against float64, on the emulator; any two values of "
        "different axes meet in a sampled case, any three in a full one",
    )
    parser.add_argument(
        "--kernel",
        default="",
        help="only instances whose dq_dk_dv or dkv_slots kernel has this in its name",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="the whole report, to attach to a bug"
    )


def run(options: argparse.Namespace) -> int:
    """Exit status: 0, 1 when something differs or fails, 2 when there is no such device."""
    if options.grid is not None:
        if options.device not in (None, "cpu") or options.kernel or options.json is not None:
            raise UsageError(
                "--grid runs on the emulator; it takes no --device, --kernel or --json"
            )
        _C.set_thread_count(torch.get_num_threads())
        return acceptance.run(options.grid)
    device = options.device or default_device()
    described = describe_device(device)
    _C.set_thread_count(torch.get_num_threads())
    every = (*instance_cases(), *sparse_cases())
    cases = [chosen for chosen in every if options.kernel in chosen.kernel]
    if not cases:
        raise UsageError(f"--kernel {options.kernel}: no such dq_dk_dv or dkv_slots kernel")
    print(f"mha_sink {mha_sink.__version__} selftest on {described['name']}")
    tests = [run_case(chosen, device) for chosen in cases]
    report = make_report(described, tests, complete=not options.kernel)
    _print(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
        print(f"Report: {options.json}")
    return 0 if report["passed"] else 1


class InstanceCase(NamedTuple):
    """A case, and the dq_dk_dv or dkv_slots kernel that it is for."""

    kernel: str
    case: Case | SparseCase
    deterministic: bool = False


def instance_cases() -> Iterator[InstanceCase]:
    """For each instance of dq_dk_dv, what reaches its masked and its unmasked code: whole tiles
    that see all keys, and ragged ones under a causal mask with grouped heads and two batches. And
    packed sequences with gaps, deterministic, for the kernels that only those need."""
    for kernel in _C.kernels():
        match = INSTANCE.fullmatch(kernel["name"])
        if match is None:
            continue
        dtype, hdim, hdim_v = match.groups()
        _, keys = _C.tile_sizes(max(int(hdim), int(hdim_v or 0)))
        name = match.group().removeprefix("mha_dq_dk_dv_")
        full = Case(
            f"{name}-full", 1, 128, 2 * keys, 2, 2, int(hdim), dtype=DTYPES[dtype],
            hdim_v=int(hdim_v) if hdim_v else None,
        )  # fmt: skip
        packed = packed_case(
            f"{name}-packed", (70, 0, 33), (33, 5, keys + 9), (4, 2), full.hdim, causal=True,
            padded_q=(72, 0, 40), tail=(0, 3), dtype=full.dtype, hdim_v=full.hdim_v,
        )  # fmt: skip
        yield InstanceCase(match.group(), full)
        yield InstanceCase(match.group(), dataclasses.replace(
            full, name=f"{name}-causal", batch=2, seqlen_q=113, seqlen_k=keys + 45, nhead_q=4,
            causal=True,
        ))  # fmt: skip
        yield InstanceCase(
            match.group(), dataclasses.replace(packed, name=f"{name}-packed"), deterministic=True
        )


def sparse_cases() -> Iterator[InstanceCase]:
    """For each instance of sparse MLA, tokens with and without slots, heads and slots that fill no
    block, and chunks."""
    for kernel in _C.kernels():
        match = SPARSE_INSTANCE.fullmatch(kernel["name"])
        if match is not None:
            dtype, heads = match.groups()
            yield InstanceCase(match.group(), SparseCase(
                f"sparse_mla_{dtype}_h{heads}", 21, int(heads) - 3, 96, num_pool=90, window=12,
                r_chunk=32, dtype=DTYPES[dtype],
            ))  # fmt: skip
            yield InstanceCase(
                match.group(),
                SparseCase(
                    f"sparse_mla_{dtype}_h{heads}-uniform", 13, int(heads), 160, dtype=DTYPES[dtype]
                ),
            )


def run_case(chosen: InstanceCase, device: str) -> dict[str, Any]:
    """One case as JSON values, an error of the device included."""
    case = chosen.case
    started = time.perf_counter()
    launches: list[LaunchResult] = []
    gate: GateResult | None = None
    error = ""
    at = ""

    def starting(name: str) -> None:
        # Printed first: a GPU that faults ends the process.
        nonlocal at
        at = name
        clear, end = ("\033[K", "\r") if sys.stdout.isatty() else ("", "\n")
        print(f"{case}: {name}{clear}", end=end, flush=True)

    try:
        if isinstance(case, SparseCase):
            gate = compare_sparse_launches(
                make_sparse_inputs(case), device, starting, launches.append
            )
        else:
            gate = compare_launches(
                make_inputs(case), device, starting, launches.append, chosen.deterministic
            )
    except mha_sink.Error as failure:
        error = f"{at}: {failure}" if at else str(failure)
    passed = not error and gate is not None and gate.passed and all(x.passed for x in launches)
    return {
        "case": str(case),
        "kernel": chosen.kernel,
        "passed": passed,
        "error": error,
        "seconds": time.perf_counter() - started,
        "first_difference": next((str(x) for x in launches if not x.passed), ""),
        "launches": list(as_json(launches)),
        "gate": {} if gate is None else {t.name: str(t) for t in gate.tensors},
        "gate_failures": [] if gate is None else [t.name for t in gate.tensors if t.reason],
    }


def make_report(
    device: dict[str, Any], tests: list[dict[str, Any]], complete: bool
) -> dict[str, Any]:
    """Everything about the run. When complete, no kernel may have been left out."""
    launched = {launch["kernel"] for test in tests for launch in test["launches"]}
    missed = [kernel["name"] for kernel in _C.kernels() if kernel["name"] not in launched]
    first = next((test for test in tests if not test["passed"]), None)
    failure = ""
    if first is not None:
        reason = first["first_difference"] or first["error"]
        failure = f"{first['case']}: {reason or 'gate: ' + ', '.join(first['gate_failures'])}"
    elif complete and missed:
        failure = f"no case launched {', '.join(missed)}"
    return {
        "passed": not failure,
        "first_failure": failure,
        "device": device,
        "versions": {
            "mha_sink": mha_sink.__version__,
            "torch": torch.__version__,
            "torch.version.hip": torch.version.hip,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "build": dict(_C.build_info()),
        "emulator": {"threads": _C.thread_count(), "schedule": list(_C.schedule())},
        "kernels": [dict(kernel.items()) for kernel in _C.kernels()],
        "tests": tests,
    }


def describe_device(device: str) -> dict[str, Any]:
    """Its name, architecture, driver.

    Raises:
        mha_sink.Error: there is no such device.
    """
    if device == "cpu":
        return {"device": device, "name": "the emulator itself"}
    rocm = _C.rocm()
    index = int(device.removeprefix("cuda:"))
    if index >= len(rocm["devices"]):
        raise mha_sink.Error(
            f"no ROCm device: index {index} given, the HIP runtime has {len(rocm['devices'])}"
        )
    return {
        "device": device,
        "name": rocm["devices"][index],
        "architecture": _devices.architecture(index),
        "library": rocm["library"],
        "driver_version": rocm["driver_version"],
        "runtime_version": rocm["runtime_version"],
    }


def parse_device(text: str) -> str:
    """The torch name of a device that the command line names."""
    match = re.fullmatch(r"emulated|rocm(?::(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}; need emulated, rocm or rocm:N")
    return "cpu" if text == "emulated" else f"cuda:{match.group(1) or 0}"


def default_device() -> str:
    """The torch name of the first GPU of the HIP runtime; cpu without one."""
    try:
        _C.rocm()
    except mha_sink.Error:
        return "cpu"
    return "cuda:0"


def _print(report: dict[str, Any]) -> None:
    rows = []
    for test in report["tests"]:
        buffers = [buffer for launch in test["launches"] for buffer in launch["buffers"]]
        share = max((float(buffer["share"]) for buffer in buffers), default=0.0)
        rows.append((
            test["case"],
            "pass" if test["passed"] else "FAIL",
            str(len(test["launches"])),
            str(sum(buffer["over"] for buffer in buffers)),
            f"{share:.3f}",
            "-" if not test["gate"] else "FAIL" if test["gate_failures"] else "pass",
            f"{test['seconds']:.1f}",
        ))  # fmt: skip
    print_table(
        "The device beside the emulator, launch by launch",
        ("case", "result", "launches", "elements off", "of allowed", "gate", "s"),
        rows,
    )
    if report["passed"]:
        print("No difference beyond the rounding that the launches allow.")
    else:
        print(f"FAILED, first in {report['first_failure']}")
