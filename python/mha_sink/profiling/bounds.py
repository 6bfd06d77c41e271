"""Clocks that each unit of a compute unit needs at least for what was executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mha_sink.profiling import hardware
from mha_sink.profiling.hardware import VALU_CLOCKS


@dataclass(frozen=True)
class Bound:
    """Clocks that one unit is busy for the mean workgroup, on the compute unit that runs it.

    Attributes:
        unit: "MFMA", "VALU", "transcendental", "LDS", "VMEM", "atomics" or "issue".
        clocks: of the mean workgroup.
        formula: how they follow from the counts, numbers included.
    """

    unit: str
    clocks: float
    formula: str


@dataclass(frozen=True)
class Work:
    """What bounds are made of; sums over all workgroups.

    Attributes:
        executions: of each mnemonic, by instruction class.
        lds_clocks: with bank conflicts.
        vmem_lines: distinct lines of 128 bytes of each load and store, summed.
        atomic_bytes: payload of atomics on global memory.
        workgroups: how many ran.
        waves_per_simd: resident at a time.
    """

    executions: Mapping[str, Mapping[str, int]]
    lds_clocks: int
    vmem_lines: int
    atomic_bytes: int
    workgroups: int
    waves_per_simd: int


def bounds(work: Work) -> list[Bound]:
    """The bound of each unit, as if it were the only one: units overlap, so the largest counts.

    An MFMA whose rate is not known is left out, and the formula says so.
    """
    n, simds = work.workgroups, hardware.SIMDS

    def bound(unit: str, total: float, formula: str) -> Bound:
        return Bound(unit, total / n, f"{formula} / {n:,} workgroups")

    matrix = work.executions.get("mfma", {})
    by_rate: Counter[int] = Counter()
    for name, count in matrix.items():
        by_rate[hardware.mfma_clocks(name) or 0] += count
    mfma = sum(clocks * count for clocks, count in by_rate.items())
    terms = " + ".join(
        f"{by_rate[clocks]:,} x {clocks} clk" for clocks in sorted(by_rate) if clocks
    )
    note = f" without {by_rate[0]:,} of unknown rate" if by_rate[0] else ""

    vector = Counter(work.executions.get("valu", {})) + Counter(work.executions.get("accvgpr", {}))
    double = sum(n for name, n in vector.items() if hardware.valu_clocks(name) != VALU_CLOCKS)
    single = vector.total() - double
    special = sum(work.executions.get("trans", {}).values())
    issued = sum(sum(of_class.values()) for of_class in work.executions.values())
    atomic_rate = hardware.ATOMIC_TB * 1e3 / hardware.CLOCK_GHZ / hardware.COMPUTE_UNITS
    return [
        bound("MFMA", mfma / simds, f"({terms or 0}) / {simds} SIMDs{note}"),
        bound(
            "VALU", (single + 2 * double) * VALU_CLOCKS / simds,
            f"({single:,} x {VALU_CLOCKS} clk + {double:,} swaps x {2 * VALU_CLOCKS} clk) / "
            f"{simds} SIMDs",
        ),
        bound(
            "transcendental", special * hardware.TRANS_CLOCKS / simds,
            f"{special:,} x {hardware.TRANS_CLOCKS} clk / {simds} SIMDs",
        ),
        bound("LDS", work.lds_clocks, f"{work.lds_clocks:,} clk with bank conflicts"),
        bound(
            "VMEM", work.vmem_lines * hardware.LINE / hardware.L1_BYTES,
            f"{work.vmem_lines:,} lines x {hardware.LINE} B / {hardware.L1_BYTES} B/clk",
        ),
        bound(
            "atomics", work.atomic_bytes / atomic_rate,
            f"{work.atomic_bytes:,} B / ({hardware.ATOMIC_TB} TB/s / {hardware.COMPUTE_UNITS} CUs "
            f"/ {hardware.CLOCK_GHZ} GHz = {atomic_rate:.2f} B/clk)",
        ),
        bound(
            "issue", issued * VALU_CLOCKS / (simds * work.waves_per_simd),
            f"{issued:,} instructions x {VALU_CLOCKS} clk / ({simds} SIMDs x "
            f"{work.waves_per_simd} waves)",
        ),
    ]  # fmt: skip
