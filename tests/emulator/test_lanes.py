"""Data movement between lanes against its definition."""

from collections.abc import Callable

import numpy as np

from emulated import Array, launch
from mha_sink import _C

Code = Callable[[str], _C.EmulatedObject]

LANE = np.arange(64)
IN_ROW = LANE % 16
ROW = LANE - IN_ROW
NONE = -1


def quad(*pattern: int) -> Array:
    return LANE // 4 * 4 + np.array(pattern)[LANE % 4]


def within_row(source: Array) -> Array:
    return np.where((source >= 0) & (source < 16), ROW + source, NONE)


def within_wave(source: Array) -> Array:
    return np.where((source >= 0) & (source < 64), source, NONE)


# Source lane of each lane, rows and banks enabled, what a lane without a source gets (None: `old`),
# in the order of dpp_moves.
DPP_MOVES: list[tuple[str, Array, int, int, int | None]] = [
    ("quad_perm [3,2,1,0]", quad(3, 2, 1, 0), 0xF, 0xF, None),
    ("quad_perm [2,3,0,1]", quad(2, 3, 0, 1), 0xF, 0xF, None),
    ("quad_perm [0,0,2,2]", quad(0, 0, 2, 2), 0xF, 0xF, None),
    ("row_shl 1", within_row(IN_ROW + 1), 0xF, 0xF, None),
    ("row_shl 15", within_row(IN_ROW + 15), 0xF, 0xF, None),
    ("row_shr 1", within_row(IN_ROW - 1), 0xF, 0xF, None),
    ("row_shr 8", within_row(IN_ROW - 8), 0xF, 0xF, None),
    ("row_shr 8, zero", within_row(IN_ROW - 8), 0xF, 0xF, 0),
    ("row_ror 3", ROW + (IN_ROW - 3) % 16, 0xF, 0xF, None),
    ("wave_shl 1", within_wave(LANE + 1), 0xF, 0xF, None),
    ("wave_rol 1", (LANE + 1) % 64, 0xF, 0xF, None),
    ("wave_shr 1", within_wave(LANE - 1), 0xF, 0xF, None),
    ("wave_ror 1", (LANE - 1) % 64, 0xF, 0xF, None),
    ("row_mirror", ROW + 15 - IN_ROW, 0xF, 0xF, None),
    ("row_half_mirror", LANE // 8 * 8 + 7 - LANE % 8, 0xF, 0xF, None),
    ("row_bcast 15", within_wave(ROW - 1), 0xF, 0xF, None),
    ("row_bcast 15, rows 1 and 3", within_wave(ROW - 1), 0xA, 0xF, None),
    ("row_bcast 31, rows 2 and 3", np.where(LANE >= 32, 31, NONE), 0xC, 0xF, None),
    ("row_newbcast 5", ROW + 5, 0xF, 0xF, None),
    ("quad_perm, rows 0 and 2, banks 0 and 1", quad(3, 2, 1, 0), 0x5, 0x3, None),
]


def test_dpp(code: Code) -> None:
    x = (LANE * 3 + 5).astype(np.uint32)
    out = np.zeros((len(DPP_MOVES), 64), np.uint32)
    launch(code("lanes"), "dpp_moves", 1, 64, {"x": x, "out": out})
    for (name, source, rows, banks, missing), got in zip(DPP_MOVES, out, strict=True):
        old = 1000 + LANE
        enabled = (rows >> LANE // 16 & 1 == 1) & (banks >> IN_ROW // 4 & 1 == 1)
        value = np.where(source == NONE, old if missing is None else missing, x[source])
        np.testing.assert_array_equal(got, np.where(enabled, value, old), err_msg=name)


def test_dpp_from_a_lane_that_is_switched_off(code: Code) -> None:
    x, out = LANE.astype(np.uint32), np.zeros(64, np.uint32)
    launch(code("lanes"), "dpp_half_exec", 1, 64, {"x": x, "out": out})
    np.testing.assert_array_equal(out, np.where(IN_ROW < 8, 1000 + LANE, 7))


def test_permlane_swaps(code: Code) -> None:
    x, y = LANE.astype(np.uint32), (LANE + 100).astype(np.uint32)
    out = np.zeros((4, 64), np.uint32)
    launch(code("lanes"), "permlane_swaps", 1, 64, {"x": x, "y": y, "out": out})
    # Blocks of n lanes: the odd ones of x change places with the even ones of y before them.
    for width, (first, second) in ((16, out[:2]), (32, out[2:])):
        odd = LANE // width % 2 == 1
        np.testing.assert_array_equal(first, np.where(odd, y[LANE - width], x))
        np.testing.assert_array_equal(second, np.where(odd, y, x[(LANE + width) % 64]))


def test_transposed_lds_read(code: Code) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 16, 1024, np.uint16)
    # Any address aligned to 8 bytes, each lane its own.
    addresses = np.random.default_rng(1).permutation(255)[:64].astype(np.uint32) * 4
    out = np.zeros((64, 4), np.uint16)
    launch(code("lanes"), "read_transposed", 1, 64, {"x": x, "addresses": addresses, "out": out})
    for lane in range(64):
        group, q = lane // 16 * 16, lane % 16
        expected = [x[addresses[group + 4 * j + q // 4] + q % 4] for j in range(4)]
        np.testing.assert_array_equal(out[lane], expected, err_msg=f"lane {lane}")


def test_transposed_lds_read_transposes_a_tile(code: Code) -> None:
    """Four 16-lane groups, each a 4 x 16 tile read in rows and received in columns."""
    tile = np.arange(1024, dtype=np.uint16).reshape(16, 64)
    q = LANE % 16
    addresses = ((4 * (LANE // 16) + q // 4) * 64 + q % 4 * 4).astype(np.uint32)
    out = np.zeros((64, 4), np.uint16)
    arguments = {"x": tile.reshape(-1), "addresses": addresses, "out": out}
    launch(code("lanes"), "read_transposed", 1, 64, arguments)
    for lane in range(64):
        rows = 4 * (lane // 16) + np.arange(4)
        np.testing.assert_array_equal(out[lane], tile[rows, lane % 16])


def test_lds_permutes(code: Code) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 32, 64, np.uint32)
    lanes = np.random.default_rng(1).permutation(64).astype(np.uint32)
    out = np.zeros((2, 64), np.uint32)
    launch(code("lanes"), "lds_permutes", 1, 64, {"x": x, "lanes": lanes, "out": out})
    np.testing.assert_array_equal(out[0], x[lanes])
    np.testing.assert_array_equal(out[1][lanes], x)


def test_lane_reads(code: Code) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 32, 64, np.uint32)
    out = np.zeros((3, 64), np.uint32)
    launch(code("lanes"), "lane_reads", 1, 64, {"x": x, "out": out, "lane": np.uint32(37)})
    np.testing.assert_array_equal(out[0], x[37])
    np.testing.assert_array_equal(out[1], x[0])
    odd = x & 1
    np.testing.assert_array_equal(out[2], np.cumsum(odd) - odd)
