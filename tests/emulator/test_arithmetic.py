"""Vector arithmetic against numpy: equal where IEEE 754 or integers decide the result."""

from collections.abc import Callable

import numpy as np
import pytest

from emulated import Array, bf16_bits, launch
from mha_sink import _C

Code = Callable[[str], _C.EmulatedObject]

COUNT = 4096

FLOAT_CORNERS = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, 2.0**-126, 2.0**-149, -(2.0**-149), 2.0**-130, 3.4028235e38,
     -3.4028235e38, np.inf, -np.inf, np.nan, 65504.0, 65520.0, 2.0**-24, 0.1, -1e-40, 16777217.0],
    np.float32,
)  # fmt: skip


def float_pairs() -> tuple[Array, Array]:
    """Every pair of corner values, then random bit patterns."""
    random = np.random.default_rng(0)
    x = random.integers(0, 1 << 32, COUNT, np.uint32).view(np.float32)
    y = random.integers(0, 1 << 32, COUNT, np.uint32).view(np.float32)
    corners = FLOAT_CORNERS.size
    x[: corners**2] = np.repeat(FLOAT_CORNERS, corners)
    y[: corners**2] = np.tile(FLOAT_CORNERS, corners)
    # Half of the rest of moderate size: random exponents hardly ever meet.
    middle = (COUNT + corners**2) // 2
    x[middle:] = random.standard_normal(COUNT - middle)
    y[middle:] = random.standard_normal(COUNT - middle)
    return x, y


def integer_pairs(dtype: type) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    bits = np.dtype(dtype).itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    corners = np.array([0, 1, 2, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 2**bits - 1], unsigned)
    x, y = (random.integers(0, 2**bits, COUNT, unsigned) for _ in range(2))
    # Small magnitudes too, so that quotients and products are not all of one size.
    x >>= random.integers(0, bits, COUNT).astype(unsigned)
    y >>= random.integers(0, bits, COUNT).astype(unsigned)
    x[:36], y[:36] = np.repeat(corners, 6), np.tile(corners, 6)
    return x.view(dtype), y.view(dtype)


def evaluate(code: Code, kernel: str, x: Array, y: Array, dtype: type, width: int = 1) -> Array:
    out = np.zeros((x.shape[0], width) if width > 1 else x.shape[0], dtype)
    workgroups = x.shape[0] // 256
    launch(code("arithmetic"), kernel, workgroups, 256, {"x": x, "y": y, "out": out})
    return out


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z rounded once: the float64 sum rounded to odd, then to float32."""
    product, addend = x.astype(np.float64) * y, z.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = total.view(np.uint64) & 1 == 0
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    odd = np.where(np.isfinite(total) & (error != 0) & even, neighbour, total)
    return odd.astype(np.float32)


EXACT_FLOAT: dict[str, Callable[[Array, Array], Array]] = {
    "divide_f32": np.divide,
    "add_f32": np.add,
    "multiply_f32": np.multiply,
    "fma_f32": lambda x, y: fma(x, y, x),
    "minimum_f32": np.fmin,
    "maximum_f32": np.fmax,
    "round_even_f32": lambda x, y: np.rint(x),
    "floor_f32": lambda x, y: np.floor(x),
}


@pytest.mark.parametrize("kernel", EXACT_FLOAT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float_operation_is_exact(code: Code, kernel: str) -> None:
    x, y = float_pairs()
    out = evaluate(code, kernel, x, y, np.float32)
    np.testing.assert_array_equal(out, EXACT_FLOAT[kernel](x, y))


# Relative error allowed: 1 ulp, what AMD states for these instructions.
APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "exp2_f32": np.exp2,
    "reciprocal_f32": lambda x: 1 / x,
    "reciprocal_square_root_f32": lambda x: 1 / np.sqrt(x),
}


@pytest.mark.parametrize("kernel", APPROXIMATE)
def test_transcendental_is_within_an_ulp(code: Code, kernel: str) -> None:
    random = np.random.default_rng(2)
    x = random.uniform(-125, 125, COUNT).astype(np.float32)
    if kernel != "exp2_f32":
        x = np.exp2(x)
    out = evaluate(code, kernel, x, x, np.float32)
    expected = APPROXIMATE[kernel](x.astype(np.float64))
    assert np.abs(out / expected - 1).max() <= 2.0**-23


def test_logarithm(code: Code) -> None:
    x = np.exp2(np.random.default_rng(3).uniform(-125, 127, COUNT)).astype(np.float32)
    out = evaluate(code, "log2_f32", x, x, np.float32)
    expected = np.log2(x.astype(np.float64))
    assert (np.abs(out - expected) <= 2.0**-23 * np.maximum(np.abs(expected), 1)).all()


def test_transcendentals_of_special_values(code: Code) -> None:
    x = np.resize(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 128, -1000], np.float32), 256)
    expected = {
        "exp2_f32": [np.inf, 0, np.nan, 1, 1, np.inf, 0],
        "log2_f32": [np.inf, np.nan, np.nan, -np.inf, -np.inf, 7, np.nan],
        "reciprocal_f32": [0, 0, np.nan, np.inf, -np.inf, 1 / 128, np.float32(-1e-3)],
        "reciprocal_square_root_f32": [0, np.nan, np.nan, np.inf, -np.inf, 128**-0.5, np.nan],
    }
    for kernel, values in expected.items():
        out = evaluate(code, kernel, x, x, np.float32)
        wanted = np.resize(np.array(values, np.float32), 256)
        np.testing.assert_allclose(out, wanted, rtol=2.0**-23, err_msg=kernel)


def test_conversion_to_bf16_rounds_to_even(code: Code) -> None:
    x, y = float_pairs()
    out = evaluate(code, "to_bf16", x, y, np.uint16)
    nan = np.isnan(x)
    np.testing.assert_array_equal(out[~nan], bf16_bits(x)[~nan])
    assert (out[nan] & 0x7FFF > 0x7F80).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_conversion_to_f16_rounds_to_even(code: Code) -> None:
    x, y = float_pairs()
    out = evaluate(code, "to_f16", x, y, np.uint16).view(np.float16)
    np.testing.assert_array_equal(out, x.astype(np.float16))


def test_conversion_to_integer_saturates(code: Code) -> None:
    x, y = float_pairs()
    out = evaluate(code, "to_i32", x, y, np.int32)
    whole = np.trunc(np.where(np.isnan(x), 0, x).astype(np.float64))
    np.testing.assert_array_equal(out, np.clip(whole, -(2**31), 2**31 - 1))


def mask(bits: int) -> np.uint64:
    return np.uint64(2**bits - 1)


INTEGER: dict[str, tuple[type, type, Callable[[Array, Array], Array]]] = {
    "divide_u32": (np.uint32, np.uint32, lambda x, y: x // y),
    "multiply_high_u32": (
        np.uint32,
        np.uint32,
        lambda x, y: (x.astype(np.uint64) * y >> np.uint64(32)).astype(np.uint32),
    ),
    "shift_right_i32": (np.int32, np.int32, lambda x, y: x >> (y & 31)),
    "minimum_i32": (np.int32, np.int32, np.minimum),
    "bit_field_u32": (np.uint32, np.uint32, lambda x, y: x >> (y & 15) & 0x3FF),
    "add_u64": (np.uint64, np.uint64, np.add),
    "subtract_u64": (np.uint64, np.uint64, np.subtract),
    "multiply_u64": (np.uint64, np.uint64, np.multiply),
    "shift_left_u64": (np.uint64, np.uint64, lambda x, y: x << (y & np.uint64(63))),
    "less_i64": (np.int64, np.uint32, np.less),
}


@pytest.mark.parametrize("kernel", INTEGER)
def test_integer_operation(code: Code, kernel: str) -> None:
    dtype, result, reference = INTEGER[kernel]
    x, y = integer_pairs(dtype)
    if kernel == "divide_u32":
        y = np.maximum(y, 1)
    out = evaluate(code, kernel, x, y, result)
    np.testing.assert_array_equal(out, reference(x, y).astype(result))


def test_packed_float_with_swapped_and_negated_halves(code: Code) -> None:
    random = np.random.default_rng(4)
    x, y = (random.standard_normal((512, 2)).astype(np.float32) for _ in range(2))
    out = evaluate(code, "packed_f32", x, y, np.float32, 6).reshape(512, 3, 2)
    # op_sel:[1,0,0] op_sel_hi:[0,1,1]: the halves of x swap as the first operand only.
    np.testing.assert_array_equal(out[:, 0, 0], fma(x[:, 1], -y[:, 0], x[:, 0]))
    np.testing.assert_array_equal(out[:, 0, 1], fma(x[:, 0], y[:, 1], x[:, 1]))
    # op_sel_hi:[1,0]: the low half of y serves both.
    np.testing.assert_array_equal(out[:, 1], x * y[:, :1])
    np.testing.assert_array_equal(out[:, 2], x - y)


def test_bit_operations(code: Code) -> None:
    x, y = integer_pairs(np.uint32)
    z = x * np.uint32(2654435761) + y
    out = evaluate(code, "bit_operations", x, y, np.uint32, 4)

    def table(truth: int) -> Array:
        """Bit 4a + 2b + c of `truth` is the result for bits a, b, c of x, y, z."""
        result = np.zeros_like(x)
        for row in range(8):
            if truth >> row & 1:
                a = x if row & 4 else ~x
                b = y if row & 2 else ~y
                c = z if row & 1 else ~z
                result |= a & b & c
        return result

    np.testing.assert_array_equal(out[:, 0], table(0x36))
    np.testing.assert_array_equal(out[:, 1], table(0xE4))
    # v_perm_b32: bytes 0..3 of y are 0..3, those of x are 4..7, 12 is the constant 0.
    joined = np.stack([y, x], axis=1).view(np.uint8)
    selected = np.stack([joined[:, 5], np.zeros(COUNT, np.uint8), joined[:, 2], joined[:, 7]], 1)
    np.testing.assert_array_equal(out[:, 2], selected.view(np.uint32)[:, 0])
    joined64 = x.astype(np.uint64) << np.uint64(32) | y
    np.testing.assert_array_equal(out[:, 3], joined64 >> np.uint64(11) & mask(32))


def test_absolute_negated_and_clamped(code: Code) -> None:
    x, y = (v[-1024:] for v in float_pairs())
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    out = evaluate(code, "modifiers", x, y, np.float32, 3)
    np.testing.assert_array_equal(out[:, 0], np.abs(x) + y)
    np.testing.assert_array_equal(out[:, 1], fma(x, -y, x))
    np.testing.assert_array_equal(out[:, 2], np.clip(x + y, 0, 1))
