"""A MODEL of how long launches take on a gfx950. Nothing in it was measured by this project.

`csrc/emulator/timing_model.h` models one compute unit and has the table of its constants with their
sources; this file makes a launch of it. docs/emulator.md says how the constants were fixed and how
far the model is from published times.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mha_sink import _C
from mha_sink.profiling import hardware

Place = tuple[int, int, int]  # a workgroup's numbers along x, y and z
Memory = Sequence[tuple[int, int, bool, str]]  # address, bytes, writable, name

UNITS = ("mfma", "valu", "trans", "lds", "vmem")
PER_SIMD = ("mfma", "valu", "trans")
# A place's later workgroups overlap with its neighbours' earlier ones, so several are modelled in
# turn; more would not change their mean.
ROUNDS = 4
# Workgroups whose dispatch is followed one by one; more are taken to load the device evenly.
DISPATCHED = 1 << 20


@dataclass(frozen=True)
class ModelledTiming:
    """What the model says of one launch; no measurement.

    Attributes:
        workgroups: of the launch.
        resident: of a compute unit at a time.
        clocks: modelled, that the mean workgroup holds its place of a compute unit.
        busy: of these, the share that "mfma", "valu", "trans" (of the mean SIMD), "lds" and "vmem"
            work, for all resident workgroups together.
        balance: the share of the places' clocks, until the last workgroup ends, that workgroups
            use; 1 where all end together.
        compute_clocks: modelled, until the last workgroup ends.
        hbm_bytes: compulsory: distinct lines of 128 bytes that the launch touches.
        clock_ghz: nominal clock of the device.
        mfma_flops: issued.
        timeline: (wave, class, first clock, last clock) of the middle workgroup's instructions,
            where one was asked for.
    """

    workgroups: int
    resident: int
    clocks: float
    busy: dict[str, float]
    balance: float
    compute_clocks: float
    hbm_bytes: float
    clock_ghz: float
    mfma_flops: float = 0.0
    timeline: list[tuple[int, str, int, int]] = field(default_factory=list, repr=False)

    @property
    def hbm_clocks(self) -> float:
        """That HBM needs for the compulsory bytes at its data sheet's rate."""
        return self.hbm_bytes * self.clock_ghz / (hardware.HBM_TB * 1e3)

    @property
    def device_clocks(self) -> float:
        """Modelled, of the launch: no shorter than its compulsory bytes take."""
        return max(self.compute_clocks, self.hbm_clocks)

    def seconds(self) -> float:
        """Modelled, at the nominal clock: power and the launch itself are not in the model."""
        return self.device_clocks / (self.clock_ghz * 1e9)


def memset_timing(size: int, clock_ghz: float = hardware.CLOCK_GHZ) -> ModelledTiming:
    """Of so many bytes written once."""
    return ModelledTiming(0, 0, 0.0, dict.fromkeys(UNITS, 0.0), 1.0, 0.0, size, clock_ghz)


def model_launch(
    code: _C.EmulatedObject,
    kernel: str,
    grid: Place,
    block: Place,
    arguments: bytes,
    memory: Memory,
    lds: int = 0,
    *,
    sample: Sequence[int] | None = None,
    copies: int = 1,
    hbm_bytes: float | None = None,
    clock_ghz: float = hardware.CLOCK_GHZ,
    parameters: Mapping[str, float] | None = None,
    timeline_clocks: int = 0,
) -> ModelledTiming:
    """Executes some workgroups of a launch and models all.

    The others' clocks are the middle workgroup's times what each axis of the grid makes of it,
    between sampled positions in a straight line; or, of a `sample`, its mean.

    Args:
        code: holds the kernel.
        kernel: its name.
        grid: workgroups.
        block: work-items of a workgroup.
        arguments: the kernarg segment.
        memory: all that the kernel may touch.
        lds: bytes of dynamic LDS.
        sample: workgroups to execute, numbered with x fastest. None: positions along each axis
            through the middle of the grid.
        copies: such grids that the launch has, one after another; the grid is one head, say.
        hbm_bytes: that the launch must move. None: from the sample, see `compulsory_bytes`.
        clock_ghz: nominal clock of the device.
        parameters: constants of the model to change, by their names in
            csrc/emulator/timing_model.h.
        timeline_clocks: that the timeline covers.

    Raises:
        mha_sink.EmulationError: no such workgroup or constant, or a fault.
        ValueError: an empty sample.
    """
    (info,) = (k for k in code.kernels if k["name"] == kernel)
    if sample is not None and not sample:
        raise ValueError("sample is empty; need workgroups that stand for the others, or None")
    waves = max(-(-math.prod(block) // hardware.WAVE), 1)
    _, resident, _ = hardware.waves_per_simd(info["registers"], info["lds_bytes"] + lds, waves)
    count = math.prod(grid) * copies
    of_unit = max(-(-count // hardware.COMPUTE_UNITS), 1)
    resident = min(max(resident, 1), of_unit)
    rounds = min(ROUNDS, -(-of_unit // resident)) if resident > 1 else 1
    modelled = resident * rounds
    chosen = cross(grid) if sample is None else [_place(index, grid) for index in sample]
    counts = code.launch(
        kernel, grid, block, arguments, memory, lds, accesses=hbm_bytes is None,
        sample=[_index(place, grid) for place in chosen],
        modelled=(resident, modelled),
        model_parameters={
            "atomic_bytes": atomic_bytes(count, resident, clock_ghz), **(parameters or {})
        },
        timeline_clocks=timeline_clocks,
    )  # fmt: skip
    if hbm_bytes is None:
        buffers = counts["accesses"]["buffers"]
        hbm_bytes = copies * compulsory_bytes(buffers, memory, len(chosen), math.prod(grid))

    def spread(values: Mapping[Place, float]) -> Spread:
        return Spread(grid, values) if sample is None else Spread.mean(grid, values)

    model = counts["model"]
    clocks = spread({place: of["clocks"] / rounds for place, of in model.items()})
    units = {
        "mfma": spread({place: of["mfma"] / rounds for place, of in model.items()}),
        "valu": spread({place: of["valu"] / rounds for place, of in model.items()}),
        "trans": spread({place: of["trans"] / rounds for place, of in model.items()}),
        "lds": spread({place: of["lds"] / rounds for place, of in model.items()}),
        "vmem": spread({place: of["vmem"] / rounds for place, of in model.items()}),
    }
    # All workgroups have the sampled ones' mix of MFMAs.
    flops = sum(hardware.mfma_flops(name) * n for name, n in counts["mnemonics"].items())
    sampled = sum(of["mfma"] for of in model.values()) / modelled
    rate = flops / sampled if sampled else 0.0
    middle = model.get(_middle(grid))
    places = min(count, hardware.COMPUTE_UNITS * resident)
    total = max(clocks.total(), 1e-9)
    if count <= DISPATCHED:
        one = list(clocks.in_order())
        end = last_end(itertools.chain.from_iterable(itertools.repeat(one, copies)), resident)
    else:
        end = total * copies / places
    return ModelledTiming(
        workgroups=count,
        resident=resident,
        clocks=total / math.prod(grid),
        busy={
            unit: of.total() / total / (hardware.SIMDS if unit in PER_SIMD else 1)
            for unit, of in units.items()
        },
        balance=total * copies / (places * max(end, 1e-9)),
        compute_clocks=end,
        hbm_bytes=hbm_bytes,
        clock_ghz=clock_ghz,
        mfma_flops=rate * units["mfma"].total() / resident * copies,
        timeline=middle["timeline"] if middle else [],
    )


def atomic_bytes(workgroups: int, resident: int, clock_ghz: float = hardware.CLOCK_GHZ) -> float:
    """Bytes a clock of atomics for one of the compute units that such a launch keeps busy: they
    share the device's rate, and none gets more than its L1 moves."""
    busy = min(hardware.COMPUTE_UNITS, -(-max(workgroups, 1) // resident))
    return min(hardware.ATOMIC_TB * 1e3 / clock_ghz / busy, float(hardware.L1_BYTES))


def compulsory_bytes(
    buffers: Mapping[str, _C.BufferCounts], memory: Memory, sampled: int, workgroups: int
) -> float:
    """Distinct lines of each buffer over a launch, in bytes, from some of its workgroups.

    Exact where all ran. Otherwise the sampled workgroups' lines as many times as there are
    workgroups, as if none touched another's, and no more than the buffer has: exact for what is
    touched whole, or by one workgroup each, and too much where many share a part.
    """
    sizes = {name: -(-size // hardware.LINE) for _, size, _, name in memory}
    lines = 0.0
    for name, counts in buffers.items():
        if sampled == workgroups:
            lines += counts["lines"]
            continue
        # Overlapping ones are one, named after all.
        whole = sizes[name] if name in sizes else sum(sizes[part] for part in name.split("+"))
        lines += min(whole, counts["workgroup_lines"] / sampled * workgroups)
    return lines * hardware.LINE


def last_end(clocks: Iterable[float], resident: int) -> float:
    """When the last workgroup ends: in order they go to the dies in turn, and there to the first
    place that is free."""
    on_die = hardware.COMPUTE_UNITS // hardware.DIES * resident
    dies = [[0.0] * on_die for _ in range(hardware.DIES)]
    for die, of_workgroup in zip(itertools.cycle(dies), clocks, strict=False):
        heapq.heapreplace(die, die[0] + of_workgroup)
    return max(map(max, dies))


def positions(size: int) -> list[int]:
    """Where an axis is sampled: its ends and their neighbours, where masks change the work, and
    its middle."""
    last = max(size - 1, 0)  # a launch without workgroups is refused where it is made
    return sorted({0, min(1, last), size // 2, max(last - 1, 0), last})


def cross(sizes: Place) -> list[Place]:
    """The positions along each axis through the middle of the grid."""
    x, y, z = _middle(sizes)
    along = [*map(positions, sizes)]
    return sorted({
        *((at, y, z) for at in along[0]),
        *((x, at, z) for at in along[1]),
        *((x, y, at) for at in along[2]),
    })  # fmt: skip


class Spread:
    """A quantity of every workgroup of a grid: the middle one's times a factor of each axis."""

    def __init__(self, sizes: Place, values: Mapping[Place, float]) -> None:
        """values: on the grid's `cross`."""
        x, y, z = _middle(sizes)
        self._middle = values[x, y, z]
        self._sizes = sizes
        self._lines = (
            {at: values[at, y, z] for at in positions(sizes[0])},
            {at: values[x, at, z] for at in positions(sizes[1])},
            {at: values[x, y, at] for at in positions(sizes[2])},
        )

    @classmethod
    def mean(cls, sizes: Place, values: Mapping[Place, float]) -> Spread:
        """The same for every workgroup."""
        equal = sum(values.values()) / len(values)
        return cls(sizes, dict.fromkeys(cross(sizes), equal))

    def in_order(self) -> Iterator[float]:
        """Of each workgroup, x fastest."""
        along_x, along_y, along_z = (
            [_between(line, at) / (self._middle or 1.0) for at in range(size)]
            for line, size in zip(self._lines, self._sizes, strict=True)
        )
        for of_z in along_z:
            for of_y in along_y:
                of_row = self._middle * of_z * of_y
                yield from (of_row * of_x for of_x in along_x)

    def total(self) -> float:
        """Of all workgroups."""
        return self._middle * math.prod(_sum(line) / (self._middle or 1.0) for line in self._lines)


def _between(line: Mapping[int, float], at: int) -> float:
    """A straight line between the two known positions around `at`."""
    low = max(known for known in line if known <= at)
    high = min(known for known in line if known >= at)
    if low == high:
        return line[low]
    return line[low] + (line[high] - line[low]) * (at - low) / (high - low)


def _sum(line: Mapping[int, float]) -> float:
    """Of all positions, with straight lines between the known ones."""
    known = sorted(line.items())
    between = (
        (b - a) * value + (other - value) * (b - a - 1) / 2
        for (a, value), (b, other) in itertools.pairwise(known)
    )
    return sum(between) + known[-1][1]


def _middle(sizes: Place) -> Place:
    return sizes[0] // 2, sizes[1] // 2, sizes[2] // 2


def _index(place: Place, grid: Place) -> int:
    return place[0] + grid[0] * (place[1] + grid[1] * place[2])


def _place(index: int, grid: Place) -> Place:
    return index % grid[0], index // grid[0] % grid[1], index // grid[0] // grid[1]
