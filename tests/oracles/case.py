"""What a foreign kernel's case is: how to get its code, run it, and judge it by float64."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mha_sink import _C
from oracles.reference import Output
from oracles.triton_code import Compiled

Schedule = tuple[int, bool] | None


class Outcome(NamedTuple):
    outputs: list[Output]
    mix: _C.InstructionMix
    seconds: float
    ordered: bytes  # the results that no atomic takes part in: equal under every schedule


class Object(NamedTuple):
    """A code object and the kernel in it."""

    elf: bytes
    kernel: str


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    size: str
    load: Callable[[], Object]  # may raise wheels.Unavailable
    run: Callable[[Schedule], Outcome]
    # Wrong when a wave runs far ahead of the others: aiter's causal kernels of head dim 128 do two
    # tiles in one workgroup with no barrier between the last LDS reads of one and the first writes
    # of the next.
    races: bool = False


def seal(arguments: dict[str, Any]) -> dict[str, Any]:
    """Inputs that a kernel may only read."""
    for value in arguments.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return arguments


def timed(launch: Callable[[], _C.InstructionMix]) -> tuple[_C.InstructionMix, float]:
    begin = time.perf_counter()
    mix = launch()
    return mix, time.perf_counter() - begin


def triton_case(
    name: str, size: str, kernel: Callable[[], Compiled],
    run: Callable[[Compiled, Schedule], Outcome],
) -> Case:  # fmt: skip
    def load() -> Object:
        return Object(kernel().elf, kernel().name)

    return Case(name, size, load, lambda schedule: run(kernel(), schedule))
