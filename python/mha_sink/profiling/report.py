"""Profiles of kernels: what they executed, what bounds them, where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mha_sink import _C, emulator
from mha_sink.profiling import hardware
from mha_sink.profiling.bounds import Bound, Work, bounds
from mha_sink.profiling.launch_spec import LaunchSpec
from mha_sink.testing import Case, make_inputs
from mha_sink.testing.check import run_guarded

# Entries of AccessCounts["sites"].
BYTES, LINES, LDS_BYTES, LDS_CLOCKS, LDS_LEAST_CLOCKS = range(5)
# The one with the five matrix products, or all but dq's; and the one for dq, without atomics.
MAIN_KERNEL, DQ_KERNEL = "mha_dq_dk_dv_", "mha_dq_"


@dataclass(frozen=True)
class Site:
    """One static instruction and its executions; LDS clocks with bank conflicts and without.

    `source` is None where the object has no line for it; the JSON then lacks it.
    """

    address: int
    text: str
    executions: int
    lds_clocks: int
    lds_least_clocks: int
    source: emulator.SourceLine | None = None


@dataclass(frozen=True)
class Block:
    """Neighbouring instructions that were executed equally often, branches at most the last.

    Attributes:
        share: of the kernel's executed instructions.
        sites: the instructions.
    """

    share: float
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class Report:
    """All that is known of one kernel's launches; bytes, and clocks of one compute unit.

    Attributes:
        kernel: its name.
        launches: how many.
        workgroups: of all launches.
        waves_per_workgroup: of each.
        wave_instructions: executed.
        classes: these by class.
        mnemonics: these by mnemonic.
        per_mfma: each class by the MFMAs executed; None without MFMAs.
        registers: allocated to a lane, of 512.
        accumulation_registers: of these.
        sgpr: of a wave.
        vgpr_spills: as the compiler reports.
        lds_bytes: of a workgroup, static and dynamic.
        scratch_bytes: of a lane.
        waves_per_simd: resident at a time.
        workgroups_per_cu: likewise.
        occupancy_limit: what limits them.
        bounds: of each unit, for the mean workgroup.
        lds_clocks: of all LDS instructions, with bank conflicts.
        lds_least_clocks: the same without.
        conflicts: the instructions that lose most clocks to conflicts.
        buffers: lines of 128 bytes of each buffer.
        compulsory_bytes: distinct lines of all buffers, each once a launch.
        l2_bytes: distinct lines of each workgroup, summed.
        mfma_flops: that MFMAs executed.
        useful_flops: that the caller asked for; None where that is not known.
        blocks: the hottest, ordered by executed instructions.
    """

    kernel: str
    launches: int
    workgroups: int
    waves_per_workgroup: int
    wave_instructions: int
    classes: dict[str, int]
    mnemonics: dict[str, int]
    per_mfma: dict[str, float] | None
    registers: int
    accumulation_registers: int
    sgpr: int
    vgpr_spills: int
    lds_bytes: int
    scratch_bytes: int
    waves_per_simd: int
    workgroups_per_cu: int
    occupancy_limit: str
    bounds: list[Bound]
    lds_clocks: int
    lds_least_clocks: int
    conflicts: list[Site]
    buffers: dict[str, _C.BufferCounts]
    compulsory_bytes: int
    l2_bytes: int
    mfma_flops: int
    useful_flops: float | None
    blocks: list[Block]

    def as_json(self) -> dict[str, Any]:
        """Values that `json` writes, under the names of the attributes."""
        return asdict(
            self,
            dict_factory=lambda items: {k: v for k, v in items if (k, v) != ("source", None)},
        )


def profile_mha_bwd(case: Case, deterministic: bool = False, block_count: int = 3) -> list[Report]:
    """Runs the case's backward in the emulator; a report on each of its kernels, longest first."""
    inputs = make_inputs(case)
    _C.profile_start(accesses=True)
    try:
        run_guarded(inputs, deterministic=deterministic)
    finally:
        counted = _C.profile_stop()
    reports = []
    for name, counts in counted.items():
        code = emulator.load(_C.kernel_binary(name), name)
        useful = useful_flops_of(name, case, deterministic)
        reports.append(report(code, name, counts, useful_flops=useful, block_count=block_count))
    return sorted(reports, key=lambda r: -r.wave_instructions)


def profile_object(code: emulator.CodeObject, spec: LaunchSpec, block_count: int = 3) -> Report:
    """Launches a kernel of any code object.

    Raises:
        ValueError: the spec names no kernel and the object has several.
        TypeError, ValueError, mha_sink.EmulationError: as `CodeObject.launch`.
    """
    kernel = spec.kernel_of(code)
    args, memory = spec.packed()
    code.launch(kernel, spec.grid, spec.block, args, spec.lds, memory=memory, accesses=True)
    return report(
        code, kernel, code.profile()[kernel], spec.lds, spec.useful_flops, block_count=block_count
    )


def useful_flops(case: Case) -> float:
    """Of the five products of attention's backward, pairs of query and key that see each other."""
    # S, dq and dk have products of hdim; dP and dv of hdim_v.
    return _product_flops(case, 3 * case.hdim + 2 * (case.hdim_v or case.hdim))


def useful_flops_of(kernel: str, case: Case, deterministic: bool) -> float | None:
    """The part of one of the call's kernels; None of those without products.

    A deterministic call's kernel for dq computes S and dP anew: only dq counts there.
    """
    of_dq = _product_flops(case, case.hdim)
    if kernel.startswith(MAIN_KERNEL):
        return useful_flops(case) - (of_dq if deterministic else 0.0)
    return of_dq if kernel.startswith(DQ_KERNEL) else None


def _product_flops(case: Case, depth: int) -> float:
    """2 for each multiply-add of every visible pair and head."""
    lengths = zip(
        case.seqlens_q or (case.seqlen_q,), case.seqlens_k or (case.seqlen_k,), strict=True
    )
    pairs = sum(visible_pairs(q, k, case.causal, case.window) for q, k in lengths) * (
        1 if case.packed else case.batch
    )
    return 2.0 * pairs * case.nhead_q * depth


def visible_pairs(seqlen_q: int, seqlen_k: int, causal: bool, window: tuple[int, int]) -> int:
    """How many `reference.dense.visible_keys` has, without its seqlen_q * seqlen_k bytes."""
    left, right = window[0], 0 if causal else window[1]
    diagonal = torch.arange(seqlen_q) + (seqlen_k - seqlen_q)
    first = diagonal - left if left >= 0 else torch.zeros_like(diagonal)
    end = diagonal + right + 1 if right >= 0 else torch.full_like(diagonal, seqlen_k)
    return int((end.clamp(max=seqlen_k) - first.clamp(min=0)).clamp(min=0).sum())


def report(
    code: emulator.CodeObject,
    kernel: str,
    counts: _C.KernelCounts,
    dynamic_lds: int = 0,
    useful_flops: float | None = None,
    block_count: int = 3,
) -> Report:
    """Makes a report of what was counted, accesses included."""
    info = code.kernels[kernel]
    accesses = counts["accesses"]
    program = code.instructions(kernel)
    sites = [
        Site(address, text, n, of_site[LDS_CLOCKS], of_site[LDS_LEAST_CLOCKS], source)
        for (address, _, _, text), n, of_site, source in zip(
            program, counts["executions"], accesses["sites"], code.source_lines(kernel), strict=True
        )
    ]
    executions: dict[str, Counter[str]] = {}
    lines: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for (_, mnemonic, kind, _), n, of_site in zip(
        program, counts["executions"], accesses["sites"], strict=True
    ):
        if n:
            executions.setdefault(kind, Counter())[mnemonic] += n
            lines[kind] += of_site[LINES]
            moved[kind] += of_site[BYTES]
    lds_bytes = info["lds_bytes"] + dynamic_lds
    waves = -(-counts["work_items"] // counts["workgroups"] // hardware.WAVE)
    on_simd, on_cu, limit = hardware.waves_per_simd(info["registers"], lds_bytes, waves)
    lds_clocks = sum(site.lds_clocks for site in sites)
    work = Work(
        executions, lds_clocks, lines["vmem"], moved["atomic"], counts["workgroups"],
        max(on_simd, 1),
    )  # fmt: skip
    mfmas = counts["classes"]["mfma"]
    return Report(
        kernel=kernel,
        launches=counts["launches"],
        workgroups=counts["workgroups"],
        waves_per_workgroup=waves,
        wave_instructions=counts["wave_instructions"],
        classes=counts["classes"],
        mnemonics=counts["mnemonics"],
        per_mfma={k: n / mfmas for k, n in counts["classes"].items()} if mfmas else None,
        registers=info["registers"],
        accumulation_registers=info["accumulation_registers"],
        sgpr=info["sgpr"],
        vgpr_spills=info["vgpr_spills"],
        lds_bytes=lds_bytes,
        scratch_bytes=info["scratch_bytes"],
        waves_per_simd=on_simd,
        workgroups_per_cu=on_cu,
        occupancy_limit=limit,
        bounds=bounds(work),
        lds_clocks=lds_clocks,
        lds_least_clocks=sum(site.lds_least_clocks for site in sites),
        conflicts=_worst(sites),
        buffers=accesses["buffers"],
        compulsory_bytes=hardware.LINE * sum(b["lines"] for b in accesses["buffers"].values()),
        l2_bytes=hardware.LINE * sum(b["workgroup_lines"] for b in accesses["buffers"].values()),
        mfma_flops=sum(hardware.mfma_flops(m) * n for m, n in counts["mnemonics"].items()),
        useful_flops=useful_flops,
        blocks=_blocks(sites, [kind for _, _, kind, _ in program], block_count),
    )


def _worst(sites: Sequence[Site], count: int = 5) -> list[Site]:
    lost = [site for site in sites if site.lds_clocks > site.lds_least_clocks]
    return sorted(lost, key=lambda s: s.lds_least_clocks - s.lds_clocks)[:count]


def _blocks(sites: Sequence[Site], kinds: Sequence[str], count: int) -> list[Block]:
    runs: list[list[Site]] = []
    open_run = False
    for site, kind in zip(sites, kinds, strict=True):
        if open_run and runs[-1][-1].executions == site.executions:
            runs[-1].append(site)
        else:
            runs.append([site])
        open_run = kind != "branch"
    total = max(sum(site.executions for site in sites), 1)
    runs.sort(key=lambda run: -run[0].executions * len(run))
    return [Block(run[0].executions * len(run) / total, tuple(run)) for run in runs[:count]]
