"""Attention in float64, and with the roundings of 16-bit kernels, for judging one by the other."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from emulated import Array, bf16_bits, bf16_values


def round_bf16(values: Array) -> Array:
    return bf16_values(bf16_bits(values))


@dataclasses.dataclass
class Problem:
    """bf16-rounded float32 inputs [b, s, h, d]; results exact and with 16-bit rounding.

    lse and delta: [b, h, seqlen_q] in float32, from the exact forward.
    """

    q: Array
    k: Array
    v: Array
    dout: Array
    lse: Array
    delta: Array
    scale: float
    exact: dict[str, Array]  # out, lse, dq, dk, dv
    rounded: dict[str, Array]


def by_head(tensor: Array) -> Array:
    """[b, s, h, d] as [b, h, s, d] and back."""
    return tensor.transpose(0, 2, 1, 3)


def across(left: Array, right: Array) -> Array:
    """[b, s, h, d] times [b, t, h, d], summed over d: [b, h, s, t]."""
    return by_head(left) @ by_head(right).swapaxes(2, 3)


def gradients(
    q: Array, k: Array, v: Array, dout: Array, lse: Array, delta: Array, scale: float, mask: Array,
    round_to_bf16: bool,
) -> dict[str, Array]:  # fmt: skip
    """dq, dk, dv in the arithmetic of the inputs' dtype; optionally P and dS rounded to bf16."""
    rounding = round_bf16 if round_to_bf16 else (lambda values: values)
    score = across(q, k) * q.dtype.type(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.where(mask, np.exp(score - lse[..., None]), 0).astype(q.dtype)
    ds = rounding(p * (across(dout, v) - delta[..., None]))
    return {
        "dq": by_head(ds @ by_head(k)) * q.dtype.type(scale),
        "dk": by_head(ds.swapaxes(2, 3) @ by_head(q)) * q.dtype.type(scale),
        "dv": by_head(rounding(p).swapaxes(2, 3) @ by_head(dout)),
    }


def rounded_forward(q: Array, k: Array, v: Array, scale: float, mask: Array) -> dict[str, Array]:
    """Online softmax's arithmetic: P relative to its row's maximum, bf16 in the product with V."""
    score = np.where(mask, across(q, k) * np.float32(scale), np.float32(-1e30))
    maximum = score.max(axis=-1, keepdims=True)
    p = np.where(mask, np.exp(score - maximum), np.float32(0))
    total = np.maximum(p.sum(axis=-1), np.float32(2.0**-126))  # a row without keys: out 0
    out = round_bf16(p) @ by_head(v) / total[..., None]
    return {"out": by_head(out), "lse": maximum[..., 0] + np.log(total)}


@functools.lru_cache(maxsize=4)  # a case runs under several schedules
def make_problem(
    seqlen_q: int, seqlen_k: int, hdim: int, causal: bool, batch: int = 2, nhead: int = 2
) -> Problem:
    """Normal random inputs; causality is aligned to the bottom right corner."""
    random = np.random.default_rng(seqlen_q * 1000 + seqlen_k)
    q, k, v, dout = (
        round_bf16(random.standard_normal((batch, seqlen, nhead, hdim)))
        for seqlen in (seqlen_q, seqlen_k, seqlen_k, seqlen_q)
    )
    scale = float(np.float32(hdim**-0.5))
    q64, k64, v64, dout64 = (tensor.astype(np.float64) for tensor in (q, k, v, dout))
    score = across(q64, k64) * scale
    mask = np.ones((seqlen_q, seqlen_k), bool)
    if causal:
        query, key = np.ogrid[:seqlen_q, :seqlen_k]
        mask = key <= query + seqlen_k - seqlen_q
    with np.errstate(divide="ignore"):
        lse = np.log(np.where(mask, np.exp(score), 0).sum(axis=-1))  # -inf where no key is seen
    with np.errstate(over="ignore"):
        p = np.where(mask, np.exp(score - lse[..., None]), 0)
    out = by_head(p @ by_head(v64))
    delta = by_head(dout64 * out).sum(axis=-1)

    exact = gradients(q64, k64, v64, dout64, lse, delta, scale, mask, round_to_bf16=False)
    lse32, delta32 = (values.astype(np.float32, order="C") for values in (lse, delta))
    rounded = gradients(q, k, v, dout, lse32, delta32, scale, mask, round_to_bf16=True)
    exact |= {"out": out, "lse": lse}
    rounded |= rounded_forward(q, k, v, scale, mask)
    return Problem(q, k, v, dout, lse32, delta32, scale, exact, rounded)


@dataclasses.dataclass(frozen=True)
class Output:
    """One result of a kernel against float64. Both numbers are relative to the largest value."""

    name: str
    error: float  # infinite when the kernel left a NaN or an infinity
    allowed: float
    where: tuple[int, ...]  # of the largest error

    def check(self) -> None:
        assert self.error <= self.allowed, (
            f"{self.name}{list(self.where)}: relative error {self.error} > {self.allowed}"
        )


def compare(name: str, values: Array, exact: Array, allowed: float) -> Output:
    """`allowed` is an absolute error."""
    size = float(np.abs(exact).max())
    error = np.where(np.isfinite(values), np.abs(values - exact), np.inf)
    where = tuple(map(int, np.unravel_index(error.argmax(), error.shape)))
    return Output(name, float(error.max()) / size, allowed / size, where)


def judge(name: str, values: Array, problem: Problem, is_bf16: bool = True) -> Output:
    """Allowed: twice the error of 16-bit arithmetic, plus 2^-20 of the largest value."""
    exact, rounded = problem.exact[name], problem.rounded[name]
    if is_bf16:
        rounded = round_bf16(rounded)
    allowed = 2 * np.abs(rounded - exact).max() + 2.0**-20 * np.abs(exact).max()
    return compare(name, values, exact, float(allowed))
