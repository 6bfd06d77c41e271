"""Matrix instructions against float64, in every register file."""

from collections.abc import Callable

import numpy as np
import pytest

from emulated import Array, bf16_bits, bf16_values, launch
from mha_sink import _C

Code = Callable[[str], _C.EmulatedObject]

LANE = np.arange(64)[:, None]


def layout(size: int, depth: int) -> tuple[Array, Array, Array, Array]:
    """Where lane l's elements sit, as [64, n] index arrays: (a_row, a_k, d_row, d_column).

    A lane holds depth * size / 64 consecutive k of one row of A (of one column of B), and
    size * size / 64 accumulators in groups of 4 consecutive rows of one column.
    """
    groups = 64 // size
    per_lane = depth // groups
    slot = np.arange(per_lane)[None, :]
    a_row = np.broadcast_to(LANE % size, (64, per_lane))
    a_k = per_lane * (LANE // size) + slot
    register = np.arange(size * size // 64)[None, :]
    d_row = 4 * groups * (register // 4) + 4 * (LANE // size) + register % 4
    d_column = np.broadcast_to(LANE % size, d_row.shape)
    return a_row, a_k, d_row, d_column


def encode(values: Array, dtype: str) -> tuple[Array, Array]:
    """(bits, float64 values of those bits)."""
    if dtype == "bf16":
        bits = bf16_bits(values)
        return bits, bf16_values(bits).astype(np.float64)
    half = values.astype(np.float16)
    return half.view(np.uint16), half.astype(np.float64)


def check(code: Code, kernel: str, size: int, depth: int, dtype: str) -> None:
    """One product of random matrices against float64."""
    random = np.random.default_rng(size * depth)
    a_bits, a = encode(random.standard_normal((size, depth)).astype(np.float32), dtype)
    b_bits, b = encode(random.standard_normal((depth, size)).astype(np.float32), dtype)
    c = random.standard_normal((size, size)).astype(np.float32)
    a_row, a_k, d_row, d_column = layout(size, depth)

    d_lanes = np.full(d_row.shape, np.nan, np.float32)
    arguments = {
        "a": np.ascontiguousarray(a_bits[a_row, a_k]),
        "b": np.ascontiguousarray(b_bits[a_k, a_row]),
        "c": np.ascontiguousarray(c[d_row, d_column]),
        "d": d_lanes,
    }
    launch(code("mfma"), kernel, 1, 64, arguments)
    d = np.empty((size, size), np.float32)
    d[d_row, d_column] = d_lanes
    # Products of 16-bit floats are exact in fp32; what is left is depth roundings of the sum.
    bound = depth * 2.0**-24 * (np.abs(a) @ np.abs(b) + np.abs(c))
    assert (np.abs(d - (a @ b + c)) <= bound).all()


@pytest.mark.parametrize("files", ["vv", "av", "va", "aa"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(("size", "depth"), [(32, 16), (16, 32), (32, 8), (16, 16)])
def test_mfma(code: Code, size: int, depth: int, dtype: str, files: str) -> None:
    check(code, f"mfma_{size}x{size}x{depth}_{dtype}_{files}", size, depth, dtype)


def test_mfma_whose_result_overlaps_c(code: Code) -> None:
    check(code, "mfma_overlap", 16, 32, "bf16")


def test_mfma_propagates_nan_and_infinity(code: Code) -> None:
    a = np.ones((32, 16), np.float32)
    a[3, 5], a[7, 9] = np.nan, np.inf
    a_row, a_k, d_row, d_column = layout(32, 16)
    d_lanes = np.zeros((64, 16), np.float32)
    arguments = {
        "a": np.ascontiguousarray(bf16_bits(a)[a_row, a_k]),
        "b": bf16_bits(np.ones((64, 8))),
        "c": np.zeros((64, 16), np.float32),
        "d": d_lanes,
    }
    launch(code("mfma"), "mfma_32x32x16_bf16_vv", 1, 64, arguments)
    d = np.empty((32, 32), np.float32)
    d[d_row, d_column] = d_lanes
    expected = np.full((32, 32), 16.0)
    expected[3], expected[7] = np.nan, np.inf
    np.testing.assert_array_equal(d, expected)


def test_chain_of_mfma_accumulates(code: Code) -> None:
    steps = 20
    random = np.random.default_rng(1)
    # Small integers: every sum is exact, so nothing but the right data flow passes.
    a = random.integers(-8, 8, (32, 16 * steps)).astype(np.float32)
    b = random.integers(-8, 8, (16 * steps, 32)).astype(np.float32)
    a_row, a_k, d_row, d_column = layout(32, 16)
    offsets = 16 * np.arange(steps)[:, None, None]
    d_lanes = np.zeros((64, 16), np.float32)
    arguments = {
        "a": bf16_bits(a[a_row, offsets + a_k]),
        "b": bf16_bits(b[offsets + a_k, a_row]),
        "d": d_lanes,
        "steps": np.uint32(steps),
    }
    mix = launch(code("mfma"), "mfma_chain", 1, 64, arguments)
    d = np.empty((32, 32), np.float32)
    d[d_row, d_column] = d_lanes
    np.testing.assert_array_equal(d, a @ b)
    assert mix["classes"]["mfma"] == steps
