"""The acceptance matrix on the emulator, in one table: how near the gate each tensor came."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable

from mha_sink.cli.table import print_table
from mha_sink.testing.gate import Status, TensorResult
from mha_sink.testing.grid import GridCase, acceptance_grid, check_grid_case

STRENGTHS = {"sampled": 2, "full": 3}


def run(grid: str) -> int:
    """Exit status: 0, or 1 when a case failed."""
    chosen = acceptance_grid(STRENGTHS[grid])
    print(
        f"{len(chosen)} cases: any {STRENGTHS[grid]} values of different axes meet in one of them"
    )
    started = time.perf_counter()
    results, broken = _results(chosen)
    _print(results)
    for line in broken:
        print(f"FAILED {line}")
    print(f"{len(chosen)} cases, {len(broken)} failed, {time.perf_counter() - started:.0f} s")
    return 1 if broken else 0


def _results(chosen: Iterable[GridCase]) -> tuple[list[tuple[str, TensorResult]], list[str]]:
    """By case and tensor what the gate found, and a line for each case that failed."""
    results: list[tuple[str, TensorResult]] = []
    broken = []
    for number, case in enumerate(chosen, 1):
        if sys.stdout.isatty():
            print(f"\033[K{number} {case}", end="\r", flush=True)
        try:
            gate = check_grid_case(case)
        except AssertionError as stray:
            broken.append(f"{case}: {stray}")
            continue
        results += [(str(case), tensor) for tensor in gate.tensors]
        broken += [f"{case}: {gate[name]}" for name in gate.failures]
    return results, broken


def _print(results: list[tuple[str, TensorResult]]) -> None:
    rows = []
    for name in dict.fromkeys(tensor.name for _, tensor in results):
        of_name = [(case, tensor) for case, tensor in results if tensor.name == name]
        status = Counter(tensor.status for _, tensor in of_name)
        measured = [
            (tensor.error / tensor.allowed, case)
            for case, tensor in of_name
            if tensor.status is not Status.UNRESOLVABLE and tensor.allowed > 0
        ]
        ratio, worst = max(measured, default=(0.0, "-"))
        rows.append((
            name, str(len(of_name)), str(status[Status.PASS]), str(status[Status.FAIL]),
            str(status[Status.UNRESOLVABLE]), f"{ratio:.3f}", worst,
        ))  # fmt: skip
    print_table(
        "Error against float64, as a part of what the gate allows",
        ("tensor", "cases", "pass", "fail", "unresolvable", "worst", "in"),
        rows,
    )
