"""LDS bank conflicts and cache lines, counted from executed addresses with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mha_sink import _C, emulator

LANES = np.arange(64)
ALL = (1 << 64) - 1


@pytest.fixture
def code(kernel_folder: Path) -> emulator.CodeObject:
    return emulator.load(kernel_folder / "access.co")


def sites(code: emulator.CodeObject, kernel: str, mnemonic: str) -> list[tuple[int, ...]]:
    """(bytes, lines, LDS bytes, LDS clocks, least LDS clocks) of each such instruction."""
    counts = code.profile()[kernel]["accesses"]["sites"]
    names = [name for _, name, _, _ in code.instructions(kernel)]
    return [site for name, site in zip(names, counts, strict=True) if name == mnemonic]


def lds_clocks(
    code: emulator.CodeObject, access: str, addresses: np.ndarray, lanes: int = ALL
) -> tuple[int, int]:
    """(clocks, clocks without conflicts) of one access; access: "read_b64"."""
    kernel = f"lds_{access}"
    args = [addresses.astype(np.uint32), np.uint64(lanes)]
    code.launch(kernel, 1, 64, args, lds=65536, accesses=True)
    ((_, _, moved, clocks, least),) = sites(code, kernel, f"ds_{access}")
    size = {"b32": 4, "b64": 8, "b96": 12, "b128": 16}[access.partition("_")[2]]
    assert moved == size * lanes.bit_count()
    return clocks, least


@pytest.mark.parametrize(
    ("access", "least"),
    [
        ("read_b32", 1), ("read_b64", 2), ("read_b96", 8), ("read_b128", 4),
        ("write_b32", 2), ("write_b64", 4), ("write_b96", 8), ("write_b128", 8),
    ],
)  # fmt: skip
def test_consecutive_lanes_do_not_conflict(code, access, least):
    size = {"b32": 4, "b64": 8, "b96": 12, "b128": 16}[access.partition("_")[2]]
    assert lds_clocks(code, access, size * LANES) == (least, least)


@pytest.mark.parametrize("access", ["read_b32", "read_b64", "read_b128", "write_b32", "write_b128"])
def test_lanes_that_share_a_dword_do_not_conflict(code, access):
    clocks, least = lds_clocks(code, access, np.full(64, 256))
    assert clocks == least


@pytest.mark.parametrize(
    ("access", "stride", "clocks"),
    [
        # Every lane in the same bank: as many clocks as lanes.
        ("read_b32", 256, 64), ("read_b64", 256, 64), ("read_b128", 256, 64),
        ("write_b32", 128, 64), ("write_b64", 128, 64), ("write_b128", 128, 64),
        # 64 banks for reads, 32 for writes: half the stride separates two neighbours.
        ("read_b32", 128, 32), ("write_b32", 64, 32),
        ("read_b32", 8, 2), ("write_b32", 8, 4),
        # A row of 64 + 4 bytes is the usual padding for a column of dwords.
        ("read_b32", 260, 1), ("write_b32", 132, 2),
    ],
)  # fmt: skip
def test_strides_conflict(code, access, stride, clocks):
    assert lds_clocks(code, access, stride * LANES)[0] == clocks


def test_a_read_of_16_bytes_is_served_in_the_measured_sets_of_lanes(code):
    # 16 groups of 4 banks. Lanes 0 to 15 and 16 to 31 each cover all groups, so phases of
    # consecutive lanes would not conflict. The first phase, lanes 0-3, 12-15, 20-27, meets groups
    # 0-3 and 12-15 twice, the second 4-7 and 8-11.
    group = np.where((LANES >= 16) & (LANES < 32), LANES + 8, LANES) % 16
    assert lds_clocks(code, "read_b128", 16 * group + 256 * (LANES // 16)) == (2 + 2 + 1 + 1, 4)


def test_lanes_of_different_sets_do_not_conflict(code):
    # Lanes 0-3 and 4-7 in the same banks: consecutive lanes would conflict, these sets do not.
    group = np.array([{0: 0, 1: 0, 2: 2, 3: 1, 4: 1, 5: 2, 6: 3, 7: 3}[q] for q in LANES // 4 % 8])
    address = 16 * (4 * group + LANES % 4) + 1024 * (LANES // 4)
    assert lds_clocks(code, "read_b128", address) == (4, 4)


def test_inactive_lanes_do_not_conflict(code):
    assert lds_clocks(code, "read_b32", 256 * LANES, lanes=0xFF) == (8, 1)


def test_both_halves_of_read2_count(code):
    code.launch("lds_read2_b32", 1, 64, [(8 * LANES).astype(np.uint32)], lds=4096, accesses=True)
    assert sites(code, "lds_read2_b32", "ds_read2_b32") == [(0, 0, 512, 4, 2)]


def at_line(count: int, offset: int = 0) -> np.ndarray:
    """Zeroed bytes that begin `offset` bytes behind a line of 128."""
    block = np.zeros(count + 256, np.uint8)
    start = -block.ctypes.data % 128 + offset
    return block[start : start + count]


@pytest.mark.parametrize(
    ("offsets", "lines"),
    [(4 * LANES, 2), (128 * LANES, 64), (0 * LANES, 1), (128 * LANES + 126, 65), (2 * LANES, 2)],
)
@pytest.mark.parametrize("start", [0, 64])
def test_lines_are_distinct_in_an_instruction_a_workgroup_and_a_launch(code, offsets, lines, start):
    # Where the buffer lies does not matter: lines are counted from its start.
    x = at_line(128 * 64 + 128, start)
    sums, out = at_line(256).view(np.uint32), at_line(3 * 256).view(np.uint32)
    args = {"x": x, "offsets": offsets.astype(np.uint32), "sums": sums, "out": out}
    code.launch("global_accesses", 3, 64, args, accesses=True)
    buffers = code.profile()["global_accesses"]["accesses"]["buffers"]
    assert buffers["x"] == {
        "lines": lines, "lines_read": lines, "lines_written": 0, "workgroup_lines": 3 * lines,
    }  # fmt: skip
    assert buffers["sums"] == {
        "lines": 2, "lines_read": 2, "lines_written": 2, "workgroup_lines": 6,
    }  # fmt: skip
    assert buffers["out"] == {
        "lines": 6, "lines_read": 0, "lines_written": 6, "workgroup_lines": 6,
    }  # fmt: skip
    ((moved, touched, *_), (offset_bytes, *_)) = sorted(
        sites(code, "global_accesses", "global_load_dword"), key=lambda s: -s[1]
    )
    assert (moved, offset_bytes) == (3 * 256, 3 * 256)
    assert touched == 3 * max(lines, 2)
    assert (sums == 3).all()


def test_a_second_launch_adds_its_lines(code):
    args = {
        "x": at_line(512), "offsets": (4 * LANES).astype(np.uint32),
        "sums": at_line(256).view(np.uint32), "out": at_line(256).view(np.uint32),
    }  # fmt: skip
    for _ in range(2):
        code.launch("global_accesses", 1, 64, args, accesses=True)
    assert code.profile()["global_accesses"]["accesses"]["buffers"]["x"]["lines"] == 4


def test_overlapping_buffers_are_one(code):
    x = at_line(1024)
    args = {
        "x": x, "offsets": (4 * LANES).astype(np.uint32),
        "sums": at_line(256).view(np.uint32), "out": x[256:512].view(np.uint32),
    }  # fmt: skip
    code.launch("global_accesses", 1, 64, args, accesses=True)
    buffers = code.profile()["global_accesses"]["accesses"]["buffers"]
    assert buffers["x+out"]["lines"] == 4
    assert buffers["x+out"]["lines_written"] == 2


@pytest.mark.parametrize(("bytes_", "lanes"), [(1024, 64), (512, 32), (0, 0)])
def test_what_a_buffer_descriptor_clips_is_not_moved(code, bytes_, lanes):
    code.launch("buffer_to_lds", 1, 64, [at_line(1024), bytes_], accesses=True)
    (site,) = sites(code, "buffer_to_lds", "buffer_load_dwordx4")
    # LDS-DMA writes zeros for the others: 64 lanes x 16 bytes at 128 a clock.
    assert site == (16 * lanes, 16 * lanes // 128, 1024, 8, 8)


def test_counting_changes_no_result_and_no_execution_count(kernel_folder):
    results = []
    for accesses in (False, True):
        code = emulator.load(kernel_folder / "access.co")
        out = np.zeros(64 * 5, np.uint32)
        args = [at_line(512) + 7, (4 * LANES).astype(np.uint32), np.zeros(64, np.uint32), out]
        code.launch("global_accesses", 5, 64, args, accesses=accesses)
        results.append((out.tolist(), code.profile()["global_accesses"]["executions"]))
    assert results[0] == results[1]


def test_a_session_counts_accesses_only_when_asked():
    from mha_sink.testing import case, make_inputs
    from mha_sink.testing.check import run_guarded

    inputs = make_inputs(case("smoke/d64"))
    found = []
    for accesses in (False, True, False):
        _C.profile_start(accesses=accesses)
        run_guarded(inputs)
        found.append({name: "accesses" in counts for name, counts in _C.profile_stop().items()})
    assert [set(counted.values()) for counted in found] == [{False}, {True}, {False}]
