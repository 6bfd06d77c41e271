"""Instructions on bytes, nibbles and halves of registers against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emulated import Array, launch
from mha_sink import _C

Code = Callable[[str], _C.EmulatedObject]


@pytest.fixture
def words() -> tuple[Array, Array]:
    random = np.random.default_rng(4)
    x, y = random.integers(0, 2**32, (2, 64), dtype=np.uint32)
    y[:4] = [0, 0xFFFFFFFF, 0x80808080, 0x00FF00FF]
    return x, y


def parts(values: Array, bits: int, signed: bool) -> Array:
    """Fields of each word as int64 [fields, words], the lowest first."""
    fields = np.array([values >> shift & (1 << bits) - 1 for shift in range(0, 32, bits)], np.int64)
    return fields - (fields >> (bits - 1) << bits) if signed else fields


def test_compiled_bytes(code: Code, words: tuple[Array, Array]) -> None:
    x, y = words
    out = np.zeros((5, 64), np.uint32)
    launch(code("narrow"), "compiled_bytes", 1, 64, {"x": x, "y": y, "out": out})
    a, b = parts(x, 8, False), parts(y, 8, False)
    signed = parts(x, 8, True)[1] + parts(y, 16, True)[0]
    expected = [
        a[1] + b[2],
        parts(x, 16, False)[0] * parts(y, 16, False)[1],
        signed,
        np.where(a[2] < b[0], x, y),
        (a[3] + b[0] & 0xFF) | (a[0] ^ b[3]) << 8,
    ]
    np.testing.assert_array_equal(out, np.array(expected).astype(np.uint32))
    assert "_sdwa" in code("narrow").disassemble("compiled_bytes")


def test_compiled_halves(code: Code) -> None:
    x, y = np.random.default_rng(5).standard_normal((2, 64, 2)).astype(np.float16)
    out = np.zeros((2, 64), np.float16)
    launch(code("narrow"), "compiled_halves", 1, 64, {"x": x, "y": y, "out": out})
    np.testing.assert_array_equal(out, [x[:, 1] * y[:, 0], y[:, 1] - x[:, 1]])
    assert "sub_f16_sdwa" in code("narrow").disassemble("compiled_halves")


def test_compiled_sums(code: Code, words: tuple[Array, Array]) -> None:
    x, y = words
    z = np.random.default_rng(6).integers(0, 2**16, (64, 2), np.uint16)
    out = np.zeros((3, 64), np.int32)
    launch(code("narrow"), "compiled_sums", 1, 64, {"x": x, "y": y, "out": out, "z": z})
    dot = (parts(x, 8, True) * parts(y, 8, True)).sum(0) + np.arange(64)
    distance = np.abs(parts(x, 8, False) - parts(y, 8, False)).sum(0)
    halves = x.view(np.uint16) * y.view(np.uint16) + z.ravel()
    np.testing.assert_array_equal(out, [dot, distance, halves.view(np.int32)])
    listing = code("narrow").disassemble("compiled_sums")
    assert "v_dot4" in listing
    assert "v_pk_mad_u16" in listing


def test_integer_sums(code: Code, words: tuple[Array, Array]) -> None:
    x, y = words
    out = np.zeros((11, 64), np.uint32)
    launch(code("narrow"), "integer_sums", 1, 64, {"x": x, "y": y, "out": out})
    distances = np.abs(parts(x, 8, False) - parts(y, 8, False))
    sums = [
        distances.sum(0),
        distances.sum(0) << 16,
        np.where(parts(y, 8, False) != 0, distances, 0).sum(0),
        np.abs(parts(x, 16, False) - parts(y, 16, False)).sum(0),
        np.abs(x.astype(np.int64) - y),
        *((parts(x, n, s) * parts(y, n, s)).sum(0) for n in (16, 8, 4) for s in (True, False)),
    ]
    expected = (np.array(sums) + np.arange(64)).astype(np.uint32)
    np.testing.assert_array_equal(out, expected)


# (shift, bits) of the destination and both sources, signed sources, what becomes of the rest, in
# the order of sdwa_selects.
Field = tuple[int, int]
WHOLE: Field = (0, 32)
SELECTS: list[tuple[Field, Field, Field, tuple[bool, bool], str]] = [
    (WHOLE, (0, 8), WHOLE, (False, False), "pad"),
    (WHOLE, (24, 8), (16, 16), (False, False), "pad"),
    (WHOLE, (8, 8), (16, 8), (True, False), "pad"),
    (WHOLE, (0, 16), (16, 16), (False, True), "pad"),
    ((0, 8), WHOLE, WHOLE, (False, False), "pad"),
    ((8, 8), WHOLE, WHOLE, (False, False), "sext"),
    ((16, 8), WHOLE, WHOLE, (False, False), "preserve"),
    ((24, 8), WHOLE, WHOLE, (False, False), "preserve"),
    ((0, 16), WHOLE, WHOLE, (False, False), "sext"),
    ((16, 16), (0, 16), (8, 8), (False, False), "preserve"),
]


def extract(values: Array, field: Field, signed: bool) -> Array:
    shift, bits = field
    value = values.astype(np.int64) >> shift & (1 << bits) - 1
    return value - (value >> (bits - 1) << bits) if signed else value


def test_sdwa_selects(code: Code, words: tuple[Array, Array]) -> None:
    x, y = words
    out = np.zeros((len(SELECTS), 64), np.uint32)
    launch(code("narrow"), "sdwa_selects", 1, 64, {"x": x, "y": y, "out": out})
    active = np.arange(64) % 16 < 8
    for (to, first, second, signed, rest), got in zip(SELECTS, out, strict=True):
        old = ~x
        total = extract(x, first, signed[0]) + extract(y, second, signed[1])
        shift, bits = to
        field = ((1 << bits) - 1) << shift
        value = extract(total, (0, bits), rest == "sext") << shift
        if rest == "preserve":
            value = value | (old & ~np.uint32(field))
        expected = np.where(active, value.astype(np.uint32), old)
        np.testing.assert_array_equal(got, expected, err_msg=f"{to} {first} {second} {rest}")
