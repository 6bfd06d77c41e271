"""Machine code that nobody here wrote runs in the emulator and meets float64.

The emulator and the library's kernels come from the same hands and could share a misunderstanding.
These kernels come from Triton's code generator and from AMD's assembler programmers, and run on
real hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import listing
from emulated import SCHEDULES, source_line
from listing import needs_dwarfdump, needs_objdump
from mha_sink import _C

pytest.importorskip(
    "triton", reason="the oracle kernels need triton (pip install triton==3.9.0); no GPU is needed"
)

from oracles import aiter_kernels, triton_kernels
from oracles.attention_cases import aiter_backward, aiter_forward
from oracles.case import Case, Outcome, Schedule
from oracles.foreign_kernels import CASES, RAGGED
from oracles.triton_code import compile_kernel
from wheels import Unavailable

# What the hardware's timing gives aiter's causal kernels: no wave runs far ahead.
CLOSE = [(1, False), (50, False), (100, False), (100, True)]


def run(case: Case, schedule: Schedule) -> Outcome:
    try:
        return case.run(schedule)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("case", CASES + RAGGED, ids=lambda case: f"{case.name}, {case.size}")
def test_right_under_every_schedule(case: Case) -> None:
    results = set()
    for schedule in CLOSE if case.races else SCHEDULES:
        outcome = run(case, schedule)
        for output in outcome.outputs:
            output.check()
        results.add(outcome.ordered)
    assert len(results) == 1, "the order in which waves run changes the result"


@pytest.mark.faulty
@pytest.mark.parametrize("schedule", [(1000, False), (0, False), (0, True)])
@pytest.mark.parametrize(
    ("case", "output"),
    [(aiter_forward(512, causal=True), "out"), (aiter_backward(512, causal=True), "dk")],
    ids=lambda value: value.name if isinstance(value, Case) else value,
)
def test_known_race_shows(case: Case, output: str, schedule: tuple[int, bool]) -> None:
    """A wave of the causal kernels that runs on until it blocks overwrites, for its second tile,
    what the others still read for their first. On hardware the waves stay close together."""
    errors = {result.name: result.error for result in run(case, schedule).outputs}
    assert errors[output] > 0.05
    if "dv" in errors:  # comes from other buffers
        assert errors["dv"] < 0.01


@pytest.fixture
def sanitize() -> Iterator[Callable[[str], None]]:
    before = _C.sanitizer()
    yield _C.set_sanitizer
    _C.set_sanitizer(before)


@pytest.mark.parametrize(
    ("case", "second_tile", "first_tile"),
    [
        # What the first tile fetched last is never read, and still in flight.
        (
            aiter_forward(512, causal=True),
            r"writes it \(`buffer_load_dwordx4 .* lds`",
            r"(read it \(`ds_read_b64_tr_b16|written it \(`buffer_load_dwordx4 .* lds`)",
        ),
        (
            aiter_backward(512, causal=True),
            r"writes it \(`ds_write_b128",
            r"read it \(`ds_read_b64",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_sanitizer_finds_the_known_race(
    case: Case, second_tile: str, first_tile: str, sanitize: Callable[[str], None]
) -> None:
    sanitize("races")
    found = rf"LDS race on byte \d+: wave \d {second_tile} .*\), wave \d has {first_tile} "
    with pytest.raises(_C.SanitizerError, match=found):
        run(case, (100, False))


# aiter writes M0 right before the LDS-DMA that reads it, a wait state less than LLVM's table asks.
@pytest.mark.parametrize(
    "case",
    [case for case in CASES + RAGGED if not case.races],
    ids=lambda case: f"{case.name}, {case.size}",
)
def test_sanitizer_finds_nothing_else(case: Case, sanitize: Callable[[str], None]) -> None:
    aiter = case.name.startswith("aiter")
    sanitize("races,waits,uninit" if aiter else "races,waits,hazards,uninit")
    run(case, (50, False))


@needs_objdump
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.size}")
def test_decoder_agrees_with_llvm(case: Case, tmp_path: Path) -> None:
    try:
        elf, kernel = case.load()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert listing.compare(elf, kernel, tmp_path) > 50


def test_a_fault_names_the_line_of_the_python_source() -> None:
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "count": "i32"}
    add = compile_kernel(triton_kernels.vector_add, signature, {"BLOCK": 1024})
    x, out = np.zeros(1024, np.float32), np.zeros(1000, np.float32)
    line = source_line(Path(triton_kernels.__file__), "tl.store(out + index, tl.load(x + index")
    with pytest.raises(
        _C.EmulationError, match=rf"store.*\(triton_kernels\.py:{line}\).*past the end of out"
    ):
        add.launch((1,), {"x": x, "y": x, "out": out, "count": np.int32(1024)})


@needs_dwarfdump
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.name.startswith("aiter")],  # no line tables
    ids=lambda case: f"{case.name}, {case.size}",
)
def test_lines_agree_with_llvm(case: Case, tmp_path: Path) -> None:
    elf, kernel = case.load()
    assert listing.compare_lines(elf, kernel, tmp_path) > 50


def test_without_network_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MHA_SINK_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unavailable, match=r"amd-aiter==\S+ \(offline\?\)"):
        aiter_kernels.code_object("fwd_hd128_bf16")
