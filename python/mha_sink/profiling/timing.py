"""A MODEL of how long launches take on a gfx950. Nothing in it was measured by this project.

`csrc/emulator/timing_model.h` has the table of its constants with their sources; docs/emulator.md
says how it was fixed and how far it is from published times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mha_sink import _C
from mha_sink.profiling import hardware


@dataclass(frozen=True)
class ModelledTiming:
    """What the model says of one launch; no measurement.

    Attributes:
        clocks: that the sampled workgroups hold a compute unit, all that fit it at a time.
        busy: of these, the share that "mfma", "valu", "trans" (of the mean SIMD), "lds" and "vmem"
            work.
        workgroups: of the whole launch.
        resident: of a compute unit at a time.
    """

    clocks: int
    busy: dict[str, float]
    workgroups: int
    resident: int

    def seconds(self, workgroups: int | None = None) -> float:
        """Of a launch of so many workgroups like the sampled ones, at the nominal 2.4 GHz: power,
        HBM bandwidth and the launch itself are not in the model."""
        count = self.workgroups if workgroups is None else workgroups
        rounds = math.ceil(count / (hardware.COMPUTE_UNITS * self.resident))
        return rounds * self.clocks / (hardware.CLOCK_GHZ * 1e9)


def atomic_bytes(workgroups: int, resident: int) -> float:
    """Bytes a clock of atomics for one of the compute units that such a launch keeps busy: they
    share the device's rate, and none gets more than its L1 moves."""
    busy = min(hardware.COMPUTE_UNITS, -(-max(workgroups, 1) // resident))
    return min(hardware.ATOMIC_TB * 1e3 / hardware.CLOCK_GHZ / busy, float(hardware.L1_BYTES))


def from_counts(model: _C.ModelCounts, workgroups: int, resident: int) -> ModelledTiming:
    """From what the compiled part returns."""
    clocks = max(model["clocks"], 1)
    busy = {
        "mfma": model["mfma"] / hardware.SIMDS / clocks,
        "valu": model["valu"] / hardware.SIMDS / clocks,
        "trans": model["trans"] / hardware.SIMDS / clocks,
        "lds": model["lds"] / clocks,
        "vmem": model["vmem"] / clocks,
    }
    return ModelledTiming(model["clocks"], busy, workgroups, resident)
