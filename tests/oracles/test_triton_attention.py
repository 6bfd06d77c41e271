"""Triton-compiled gfx950 kernels run in the emulator and meet float64.

The emulator and the library's kernels come from the same hands and could share a misunderstanding;
these binaries come from Triton's code generator, whose output runs on real hardware.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import listing
from emulated import SCHEDULES, Array, bf16_bits, bf16_values, guarded, launch, untouched
from listing import needs_objdump
from mha_sink import _C

triton = pytest.importorskip(
    "triton", reason="the oracle kernels need triton (pip install triton==3.9.0); no GPU is needed"
)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from oracles import triton_kernels  # noqa: E402

BLOCK_Q, BLOCK_K = 32, 64


@dataclasses.dataclass(frozen=True)
class Compiled:
    elf: bytes
    code: _C.EmulatedObject
    name: str
    threads: int
    lds: int

    def launch(
        self, grid: tuple[int, ...], arguments: dict[str, Any], schedule: tuple[int, bool]
    ) -> _C.InstructionMix:
        # Triton appends two scratch pointers to every kernel, and takes its LDS dynamically.
        scratch = {"global_scratch": None, "profile_scratch": None}
        return launch(
            self.code, self.name, grid, self.threads, {**arguments, **scratch}, schedule, self.lds
        )


Compile = Callable[..., Compiled]


@pytest.fixture(scope="session")
def compile_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compile]:
    """compile_kernel(function, signature, constants, buffers, **options): gfx950 code, no GPU.

    buffers: let Triton address memory through buffer descriptors (every array below 2 GiB).
    """
    cache: dict[Any, Compiled] = {}
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))

    def build(
        function: Any,
        signature: dict[str, str],
        constants: dict[str, Any],
        buffers: bool = False,
        **options: Any,
    ) -> Compiled:
        key = (function.__name__, tuple(constants.items()), buffers, tuple(options.items()))
        if key not in cache:
            names = function.arg_names
            attributes = [["tt.divisibility", 16]] + buffers * [["tt.pointer_range", 32]]
            source = ASTSource(
                function,
                {name: signature.get(name, "constexpr") for name in names},
                {(names.index(name),): value for name, value in constants.items()},
                {(names.index(n),): attributes for n, kind in signature.items() if kind[0] == "*"},
            )
            target = GPUTarget("hip", "gfx950", 64)
            kernel = triton.compile(
                source, target=target, options={"enable_fp_fusion": True, **options}
            )
            metadata = kernel.metadata
            elf = kernel.asm["hsaco"]
            code = _C.EmulatedObject(elf, f"triton {function.__name__}")
            threads = 64 * metadata.num_warps
            cache[key] = Compiled(elf, code, metadata.name, threads, metadata.shared)
        return cache[key]

    yield build
    if before is None:
        del os.environ["TRITON_CACHE_DIR"]
    else:
        os.environ["TRITON_CACHE_DIR"] = before


def round_bf16(values: Array) -> Array:
    return bf16_values(bf16_bits(values))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("buffers", [False, True])
def test_vector_add(compile_kernel: Compile, buffers: bool, schedule: tuple[int, bool]) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "count": "i32"}
    kernel = compile_kernel(triton_kernels.vector_add, signature, {"BLOCK": 1024}, buffers)
    x, y = np.random.default_rng(0).standard_normal((2, 3001)).astype(np.float32)
    out, whole = guarded(x.shape, np.float32)
    kernel.launch((3,), {"x": x, "y": y, "out": out, "count": np.int32(x.size)}, schedule)
    np.testing.assert_array_equal(out, x + y)
    assert untouched(out, whole)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("buffers", [False, True])
def test_rms_norm(compile_kernel: Compile, buffers: bool, schedule: tuple[int, bool]) -> None:
    signature = {"x": "*bf16", "weight": "*bf16", "out": "*bf16", "columns": "i32"}
    signature["epsilon"] = "fp32"
    kernel = compile_kernel(triton_kernels.rms_norm, signature, {"BLOCK": 1024}, buffers)
    random = np.random.default_rng(0)
    x, weight = (
        bf16_bits(random.standard_normal((3, 3000))),
        bf16_bits(random.uniform(0.5, 2, 3000)),
    )
    out, whole = guarded(x.shape, np.uint16)
    arguments = {"x": x, "weight": weight, "out": out, "columns": np.int32(3000)}
    kernel.launch((3,), {**arguments, "epsilon": np.float32(1e-5)}, schedule)
    assert untouched(out, whole)
    exact = bf16_values(x).astype(np.float64)
    exact /= np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5)
    exact *= bf16_values(weight)
    # Half an ulp of bf16 is at most 2^-8 of the value; the rest is the fp32 arithmetic before it.
    assert (np.abs(bf16_values(out) - exact) <= np.abs(exact) * (2.0**-8 + 2.0**-18)).all()


@dataclasses.dataclass
class Problem:
    """bf16-rounded float32 inputs [b, s, h, d]; gradients exact and with 16-bit rounding."""

    q: Array
    k: Array
    v: Array
    dout: Array
    lse: Array
    delta: Array
    scale: float
    exact: dict[str, Array]
    rounded: dict[str, Array]


def gradients(
    q: Array, k: Array, v: Array, dout: Array, lse: Array, delta: Array, scale: float, mask: Array,
    round_to_bf16: bool,
) -> dict[str, Array]:  # fmt: skip
    """dq, dk, dv in the arithmetic of the inputs' dtype; optionally P and dS rounded to bf16."""
    rounding = round_bf16 if round_to_bf16 else (lambda values: values)
    score = np.einsum("bqhd,bkhd->bhqk", q, k) * q.dtype.type(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.where(mask, np.exp(score - lse[..., None]), 0).astype(q.dtype)
    dp = np.einsum("bqhd,bkhd->bhqk", dout, v)
    ds = rounding(p * (dp - delta[..., None]))
    return {
        "dq": np.einsum("bhqk,bkhd->bqhd", ds, k) * q.dtype.type(scale),
        "dk": np.einsum("bhqk,bqhd->bkhd", ds, q) * q.dtype.type(scale),
        "dv": np.einsum("bhqk,bqhd->bkhd", rounding(p), dout),
    }


def make_problem(seqlen_q: int, seqlen_k: int, hdim: int, causal: bool) -> Problem:
    batch, nhead = 2, 2
    random = np.random.default_rng(seqlen_q * 1000 + seqlen_k)
    q, k, v, dout = (
        round_bf16(random.standard_normal((batch, seqlen, nhead, hdim)))
        for seqlen in (seqlen_q, seqlen_k, seqlen_k, seqlen_q)
    )
    scale = float(np.float32(hdim**-0.5))
    q64, k64, v64, dout64 = (tensor.astype(np.float64) for tensor in (q, k, v, dout))
    score = np.einsum("bqhd,bkhd->bhqk", q64, k64) * scale
    mask = np.ones((seqlen_q, seqlen_k), bool)
    if causal:
        query, key = np.ogrid[:seqlen_q, :seqlen_k]
        mask = key <= query + seqlen_k - seqlen_q
    with np.errstate(divide="ignore"):
        lse = np.log(np.where(mask, np.exp(score), 0).sum(axis=-1))  # -inf where no key is seen
    with np.errstate(over="ignore"):
        p = np.where(mask, np.exp(score - lse[..., None]), 0)
    out = np.einsum("bhqk,bkhd->bqhd", p, v64)
    delta = np.einsum("bqhd,bqhd->bhq", dout64, out)

    exact = gradients(q64, k64, v64, dout64, lse, delta, scale, mask, round_to_bf16=False)
    lse32, delta32 = (values.astype(np.float32, order="C") for values in (lse, delta))
    rounded = gradients(q, k, v, dout, lse32, delta32, scale, mask, round_to_bf16=True)
    return Problem(q, k, v, dout, lse32, delta32, scale, exact, rounded)


def check(name: str, values: Array, problem: Problem, is_bf16: bool = True) -> None:
    """At most twice the error of 16-bit arithmetic, plus 2^-20 of the largest value."""
    exact, reference = problem.exact[name], problem.rounded[name]
    if is_bf16:
        reference = round_bf16(reference)
    assert np.isfinite(values).all(), f"{name}: NaN or inf"
    allowed = 2 * np.abs(reference - exact).max() + 2.0**-20 * np.abs(exact).max()
    error = np.abs(values - exact)
    worst = np.unravel_index(error.argmax(), error.shape)
    assert error.max() <= allowed, f"{name}{list(map(int, worst))}: {error.max()} > {allowed}"


# Each head dim, mask, MFMA shape and addressing with each value of the others, not all products.
@dataclasses.dataclass(frozen=True)
class Variant:
    hdim: int
    causal: bool
    mfma_size: int
    buffers: bool

    def options(self) -> dict[str, Any]:
        return {"matrix_instr_nonkdim": self.mfma_size, "num_warps": 4, "num_stages": 2}

    def constants(self) -> dict[str, Any]:
        return {
            "HDIM": self.hdim,
            "BLOCK_Q": BLOCK_Q,
            "BLOCK_K": BLOCK_K,
            "CAUSAL": self.causal,
        }


VARIANTS = [
    Variant(64, causal=False, mfma_size=16, buffers=True),
    Variant(64, causal=True, mfma_size=32, buffers=False),
    Variant(128, causal=False, mfma_size=32, buffers=True),
    Variant(128, causal=True, mfma_size=16, buffers=False),
]
SHAPES = [(113, 203), (203, 113), (1, 17), (64, 128)]
CASES = list(itertools.product(VARIANTS, SHAPES))
CASE_NAMES = [
    f"hd{v.hdim}-{'causal' if v.causal else 'full'}-mfma{v.mfma_size}-{sq}x{sk}"
    for v, (sq, sk) in CASES
]
# The interleavings that design and hardware differ in most, on one ragged shape; else the default.
RAGGED = (113, 203)
INTERLEAVINGS = [(1, False), (64, False), (0, False), (0, True)]

INPUTS = dict.fromkeys(["q", "k", "v", "dout"], "*bf16") | dict.fromkeys(["lse", "delta"], "*fp32")
SIZES = dict.fromkeys(["seqlen_q", "seqlen_k", "nhead"], "i32") | {"scale": "fp32"}


def inputs(problem: Problem) -> dict[str, Any]:
    tensors = {name: bf16_bits(getattr(problem, name)) for name in ("q", "k", "v", "dout")}
    tensors |= {"lse": problem.lse, "delta": problem.delta}
    for tensor in tensors.values():
        tensor.flags.writeable = False
    return tensors


def sizes(problem: Problem) -> dict[str, Any]:
    return {
        "seqlen_q": np.int32(problem.q.shape[1]),
        "seqlen_k": np.int32(problem.k.shape[1]),
        "nhead": np.int32(problem.q.shape[2]),
        "scale": np.float32(problem.scale),
    }


def schedules(shape: tuple[int, int]) -> list[tuple[int, bool]]:
    return INTERLEAVINGS if shape == RAGGED else [(64, False)]


def compile_dk_dv(compile_kernel: Compile, variant: Variant) -> Compiled:
    outputs = {"dq": "*fp32", "dk": "*bf16", "dv": "*bf16"}
    return compile_kernel(
        triton_kernels.attention_dk_dv,
        INPUTS | outputs | SIZES,
        variant.constants(),
        variant.buffers,
        **variant.options(),
    )


def compile_dq(compile_kernel: Compile, variant: Variant) -> Compiled:
    return compile_kernel(
        triton_kernels.attention_dq,
        INPUTS | {"dq": "*bf16"} | SIZES,
        variant.constants(),
        variant.buffers,
        **variant.options(),
    )


@pytest.mark.parametrize(("variant", "shape"), CASES, ids=CASE_NAMES)
def test_dk_dv_and_atomic_dq(
    compile_kernel: Compile, variant: Variant, shape: tuple[int, int]
) -> None:
    kernel = compile_dk_dv(compile_kernel, variant)
    problem = make_problem(*shape, variant.hdim, variant.causal)
    batch, seqlen_k, nhead, _ = problem.k.shape
    grid = (-(-seqlen_k // BLOCK_K), nhead, batch)
    results = []
    for schedule in schedules(shape):
        dq, dq_whole = guarded(problem.q.shape, np.float32)
        dq[...] = 0
        dk, dk_whole = guarded(problem.k.shape, np.uint16)
        dv, dv_whole = guarded(problem.k.shape, np.uint16)
        gradients_out = {"dq": dq, "dk": dk, "dv": dv}
        kernel.launch(grid, inputs(problem) | gradients_out | sizes(problem), schedule)
        assert untouched(dq, dq_whole)
        assert untouched(dk, dk_whole)
        assert untouched(dv, dv_whole)
        check("dq", dq, problem, is_bf16=False)
        check("dk", bf16_values(dk), problem)
        check("dv", bf16_values(dv), problem)
        results.append(dk.tobytes() + dv.tobytes())
    assert len(set(results)) == 1, "the order in which waves run changes dk or dv"


@pytest.mark.parametrize(("variant", "shape"), CASES, ids=CASE_NAMES)
def test_dq(compile_kernel: Compile, variant: Variant, shape: tuple[int, int]) -> None:
    kernel = compile_dq(compile_kernel, variant)
    problem = make_problem(*shape, variant.hdim, variant.causal)
    batch, seqlen_q, nhead, _ = problem.q.shape
    grid = (-(-seqlen_q // BLOCK_Q), nhead, batch)
    results = []
    for schedule in schedules(shape):
        dq, whole = guarded(problem.q.shape, np.uint16)
        kernel.launch(grid, inputs(problem) | {"dq": dq} | sizes(problem), schedule)
        assert untouched(dq, whole)
        check("dq", bf16_values(dq), problem)
        results.append(dq.tobytes())
    assert len(set(results)) == 1, "the order in which waves run changes dq"


@needs_objdump
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"hd{v.hdim}-mfma{v.mfma_size}")
def test_decoder_agrees_with_llvm(
    compile_kernel: Compile, variant: Variant, tmp_path: Path
) -> None:
    for compiled in (compile_dk_dv(compile_kernel, variant), compile_dq(compile_kernel, variant)):
        assert listing.compare(compiled.elf, compiled.name, tmp_path) > 500
