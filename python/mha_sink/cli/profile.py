"""What kernels execute, what bounds them and where, counted in the emulator. No time is measured.

A bound is the clocks that one unit of a compute unit is busy for the mean workgroup, were the other
units free; its formula is printed. LDS bank conflicts and cache lines are counted from addresses.
--model shows what the timing MODEL says instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mha_sink import emulator
from mha_sink.cli.errors import UsageError
from mha_sink.cli.model_table import print_model
from mha_sink.cli.table import print_table
from mha_sink.profiling import plot
from mha_sink.profiling.hardware import CLOCK_GHZ, COMPUTE_UNITS
from mha_sink.profiling.launch_spec import read_launch_spec
from mha_sink.profiling.model import LABEL, call_as_json, model_mha_bwd, model_object
from mha_sink.profiling.report import Block, Report, Site, profile_mha_bwd, profile_object
from mha_sink.testing import Case, case
from mha_sink.testing.cases import full_grid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    ours = what.add_parser("mha_bwd", help="the kernels of one attention backward")
    ours.add_argument("--case", required=True, help="a name of mha_sink.testing's cases or grid")
    ours.add_argument("--seqlen", type=int, help="queries and keys instead of the case's")
    ours.add_argument("--batch", type=int, help="instead of the case's")
    ours.add_argument(
        "--heads", metavar="Q[/K]", help="query and KV heads instead of the case's; 64/8"
    )
    ours.add_argument("--deterministic", action="store_true", help="dq without atomics")
    ours.add_argument(
        "--beside", type=Path, metavar="FILE", help="a code object to show too; needs --launch"
    )
    theirs = what.add_parser("object", help="a kernel of any gfx950 code object")
    theirs.add_argument("file", type=Path, metavar="FILE", help="AMDGPU ELF")
    for command in (ours, theirs):
        command.add_argument(
            "--launch", type=Path, metavar="SPEC", required=command is theirs,
            help="JSON: kernel, grid, block, args; docs/emulator.md",
        )  # fmt: skip
        command.add_argument("--json", action="store_true", help="one JSON object instead of text")
        command.add_argument(
            "--model", action="store_true",
            help="instead of counts what the timing MODEL says of whole launches, from a few "
            "workgroups of each, which alone are executed",
        )  # fmt: skip
        command.add_argument(
            "--plot", type=Path, metavar="FILE",
            help="with --model, also a picture: kernels below the device's limits, and the waves "
            "of a workgroup of the longest one; needs matplotlib",
        )  # fmt: skip
        command.add_argument(
            "--blocks", type=int, default=2, help="hottest blocks of each kernel (%(default)s)"
        )
        command.add_argument(
            "--lines", type=int, default=24, help="lines of each block, as text (%(default)s)"
        )


def run(options: argparse.Namespace) -> int:
    ours = options.what == "mha_bwd"
    if ours and (options.beside is None) != (options.launch is None):
        raise UsageError("--beside and --launch go together")
    if options.plot is not None and not options.model:
        raise UsageError(f"--plot is {options.plot}; it needs --model")
    file = options.beside if ours else options.file
    return (_run_model if options.model else _run_profile)(options, ours, file)


def _run_profile(options: argparse.Namespace, ours: bool, file: Path | None) -> int:
    reports = []
    if ours:
        reports += profile_mha_bwd(_case(options), options.deterministic, options.blocks)
    if file is not None:
        with _refused():
            code, spec = emulator.load(file), read_launch_spec(options.launch)
            reports.append(profile_object(code, spec, options.blocks))
    if options.json:
        _print_json({"kernels": [r.as_json() for r in reports]})
    else:
        _print(reports, options.lines)
    return 0


def _run_model(options: argparse.Namespace, ours: bool, file: Path | None) -> int:
    kernels, beside = [], None
    clocks = 0 if options.plot is None else plot.TIMELINE_CLOCKS
    with _refused():
        if options.plot is not None:
            plot.check(options.plot)
        if ours:
            kernels = model_mha_bwd(_case(options), options.deterministic, clocks)
        if file is not None:
            spec = read_launch_spec(options.launch)
            beside = model_object(emulator.load(file), spec, clocks)
        shown = [*kernels, *([] if beside is None else [beside])]
        if options.plot is not None:
            plot.save(options.plot, shown)
    if options.json:
        call = {"call": call_as_json(kernels)} if ours else {}
        model = {"label": LABEL, "kernels": [kernel.as_json() for kernel in shown], **call}
        _print_json({"model": model})
    else:
        print_model(kernels, beside)
    return 0


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def _print_json(content: dict[str, Any]) -> None:
    json.dump(content, sys.stdout, indent=2)
    print()


def _case(options: argparse.Namespace) -> Case:
    found = {c.name: c for c in full_grid()}.get(options.case)
    try:
        chosen = found or case(options.case)
    except ValueError as error:
        raise UsageError(str(error)) from None
    changed: dict[str, Any] = {}
    if options.seqlen is not None:
        changed |= {"seqlen_q": options.seqlen, "seqlen_k": options.seqlen}
    if options.batch is not None:
        changed["batch"] = options.batch
    if options.heads is not None:
        changed |= _heads(options.heads)
    for name, value in changed.items():
        option = "seqlen" if name.startswith("seqlen") else "batch"
        if value < 1 or chosen.packed:
            raise UsageError(f"--{option} is {value}; need at least 1, and a case not packed")
    return dataclasses.replace(chosen, **changed)


def _heads(text: str) -> dict[str, int]:
    heads = re.fullmatch(r"(\d+)(?:/(\d+))?", text)
    q, k = (int(heads[1]), int(heads[2] or heads[1])) if heads else (0, 0)
    if not 0 < k <= q or q % k:
        raise UsageError(f"--heads is {text}; need 64, or 64/8: a multiple of the KV heads")
    return {"nhead_q": q, "nhead_k": k}


def _print(reports: Sequence[Report], lines: int) -> None:
    columns = ["", *(r.kernel for r in reports)]

    def table(title: str, rows: dict[str, list[str]]) -> None:
        print_table(title, columns, [[name, *cells] for name, cells in rows.items()])

    table("Resources", {
        "workgroups x waves": [f"{r.workgroups:,} x {r.waves_per_workgroup}" for r in reports],
        "registers of a lane": [f"{r.registers} ({r.accumulation_registers} acc)" for r in reports],
        "scalar registers": [str(r.sgpr) for r in reports],
        "spilled, scratch bytes": [f"{r.vgpr_spills}, {r.scratch_bytes}" for r in reports],
        "LDS bytes": [f"{r.lds_bytes:,}" for r in reports],
        "waves of a SIMD": [f"{r.waves_per_simd} ({r.occupancy_limit})" for r in reports],
    })  # fmt: skip
    table("Wave instructions executed (for each MFMA)", {
        "all": [f"{r.wave_instructions:,}" for r in reports],
        **{
            kind: [_count(r.classes[kind], r.classes["mfma"]) for r in reports]
            for kind in reports[0].classes
        },
    })  # fmt: skip
    names = sorted({name for r in reports for name in _commonest(r)})
    table(
        "The commonest of each kernel (for each MFMA)",
        {n: [_count(r.mnemonics.get(n, 0), r.classes["mfma"]) for r in reports] for n in names},
    )
    table("Clocks that a workgroup keeps each unit of a compute unit busy (of the busiest)", {
        bound.unit: [_clocks(r, i) for r in reports] for i, bound in enumerate(reports[0].bounds)
    })  # fmt: skip
    for r in reports:
        print(f"\n{r.kernel}")
        for bound in r.bounds:
            print(f"  {bound.unit}: {bound.clocks:,.0f} clk = {bound.formula}")
    table("Memory and products", {
        "compulsory bytes": [f"{r.compulsory_bytes:,}" for r in reports],
        "L2 bytes": [f"{r.l2_bytes:,}" for r in reports],
        "LDS clocks lost to conflicts": [_share(r.lds_clocks - r.lds_least_clocks, r.lds_clocks)
                                         for r in reports],
        "MFMA GFLOP issued": [f"{r.mfma_flops / 1e9:.3f}" for r in reports],
        "useful": [_share(r.useful_flops, r.mfma_flops) for r in reports],
        f"launch at {CLOCK_GHZ} GHz, {COMPUTE_UNITS} CUs": [_microseconds(r) for r in reports],
    })  # fmt: skip
    for r in reports:
        print_table(
            f"Lines of 128 bytes, {r.kernel}",
            ("buffer", "distinct", "read", "written", "by workgroups"),
            [
                (name, *(f"{n:,}" for n in (b["lines"], b["lines_read"], b["lines_written"],
                                            b["workgroup_lines"])))
                for name, b in r.buffers.items()
            ],
        )  # fmt: skip
        for site in r.conflicts:
            print(
                f"bank conflicts: {site.lds_clocks:,} clk for {site.lds_least_clocks:,}, "
                f"{site.address:06x} {site.text}{_place(site)}"
            )
        for block in r.blocks:
            _print_block(r, block, lines)


def _print_block(report: Report, block: Block, lines: int) -> None:
    first, last = block.sites[0].address, block.sites[-1].address
    print(
        f"\n{report.kernel} {first:06x} to {last:06x}: {block.share:.1%} of what it executed, "
        f"{len(block.sites)} instructions"
    )
    for site in block.sites[:lines]:
        lost = site.lds_clocks - site.lds_least_clocks
        note = f"  ; {lost:,} clk lost to bank conflicts" if lost else ""
        print(f"{site.executions:>12,}  {site.address:06x}: {site.text}{_place(site)}{note}")
    if len(block.sites) > lines:
        print(f"{'...':>12}  {len(block.sites) - lines} more (--lines)")


def _place(site: Site) -> str:
    return f" ({site.source})" if site.source else ""


def _commonest(report: Report, count: int = 8) -> list[str]:
    """The mnemonics executed most, and every MFMA."""
    ordered = sorted(report.mnemonics, key=lambda name: -report.mnemonics[name])
    return [*ordered[:count], *(name for name in ordered if name.startswith("v_mfma_"))]


def _count(count: int, mfmas: int) -> str:
    return f"{count:,} ({count / mfmas:.2f})" if mfmas and count else f"{count:,}"


def _clocks(report: Report, index: int) -> str:
    largest = max(bound.clocks for bound in report.bounds)
    clocks = report.bounds[index].clocks
    return f"{clocks:,.0f} ({clocks / largest:.0%})" if largest else "0"


def _share(part: float | None, whole: float) -> str:
    return "-" if part is None or not whole else f"{part / whole:.1%}"


def _microseconds(report: Report) -> str:
    """The largest bound over all compute units, evenly loaded: less than any launch takes."""
    clocks = max(bound.clocks for bound in report.bounds) * report.workgroups
    return f">= {clocks / COMPUTE_UNITS / CLOCK_GHZ / 1e3:.2f} us"
