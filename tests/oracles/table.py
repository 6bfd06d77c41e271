"""Prints the foreign-kernel table of docs/emulator.md: python tests/oracles/table.py"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles.case import Case, Outcome
from oracles.foreign_kernels import CASES
from wheels import Unavailable

# The fastest of this many runs; the others show what else the machine was doing.
RUNS = 3


def row(case: Case, outcome: Outcome, seconds: float) -> str:
    errors = ", ".join(f"{output.name} {output.error:.1e}" for output in outcome.outputs)
    count = outcome.mix["wave_instructions"]
    return f"| {case.name} | {case.size} | {errors} | {count:,} | {seconds:.4f} |"


def main() -> int:
    """Exit status 1 when a result is further from float64 than allowed."""
    wrong = 0
    print("| kernel | size | largest error / largest value | wave instructions | seconds |")
    print("| --- | --- | --- | ---: | ---: |")
    for case in CASES:
        try:
            outcomes = [case.run(None) for _ in range(RUNS)]
        except Unavailable as reason:
            print(f"| {case.name} | {case.size} | not run: {reason} | | |")
            continue
        print(row(case, outcomes[0], min(outcome.seconds for outcome in outcomes)))
        for output in outcomes[0].outputs:
            if output.error > output.allowed:
                wrong = 1
                print(f"{case.name}: {output}", file=sys.stderr)
    return wrong


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        status = main()
    sys.stdout.flush()
    # Not sys.exit: what Gluon leaks to the interpreter's end, nanobind complains of at length.
    os._exit(status)
