"""Kernels that nobody here wrote, each as a case: compile or load, run, compare with float64."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from emulated import Array, bf16_bits, bf16_values, guarded, untouched
from mha_sink import _C
from oracles import aiter_kernels, gluon_kernels, triton_kernels
from oracles.reference import Output, Problem, compare, judge, make_problem
from oracles.triton_code import Compiled, compile_kernel

Schedule = tuple[int, bool] | None


class Outcome(NamedTuple):
    outputs: list[Output]
    mix: _C.InstructionMix
    seconds: float
    ordered: bytes  # the results that no atomic takes part in: equal under every schedule


class Object(NamedTuple):
    """A code object and the kernel in it."""

    elf: bytes
    kernel: str


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    size: str
    load: Callable[[], Object]  # may raise aiter_kernels.Unavailable
    run: Callable[[Schedule], Outcome]
    # Wrong when a wave runs far ahead of the others: aiter's causal kernels do two tiles in one
    # workgroup with no barrier between the last LDS read of one and the first LDS-DMA of the next.
    races: bool = False


def seal(arguments: dict[str, Any]) -> dict[str, Any]:
    """Inputs that a kernel may only read."""
    for value in arguments.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return arguments


def timed(launch: Callable[[], _C.InstructionMix]) -> tuple[_C.InstructionMix, float]:
    begin = time.perf_counter()
    mix = launch()
    return mix, time.perf_counter() - begin


def triton_case(
    name: str, size: str, kernel: Callable[[], Compiled],
    run: Callable[[Compiled, Schedule], Outcome],
) -> Case:  # fmt: skip
    def load() -> Object:
        return Object(kernel().elf, kernel().name)

    return Case(name, size, load, lambda schedule: run(kernel(), schedule))


def vector_add(buffers: bool) -> Case:
    count = 3001

    def kernel() -> Compiled:
        signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "count": "i32"}
        return compile_kernel(triton_kernels.vector_add, signature, {"BLOCK": 1024}, buffers)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        x, y = np.random.default_rng(0).standard_normal((2, count)).astype(np.float32)
        out, whole = guarded((count,), np.float32)
        arguments = seal({"x": x, "y": y}) | {"out": out, "count": np.int32(count)}
        mix, seconds = timed(lambda: compiled.launch((3,), arguments, schedule))
        assert untouched(out, whole)
        return Outcome([compare("out", out, x + y, 0.0)], mix, seconds, out.tobytes())

    return triton_case(f"Triton vector add{' (buffers)' * buffers}", f"{count}", kernel, run)


def rms_norm(buffers: bool) -> Case:
    rows, columns, epsilon = 3, 3000, 1e-5

    def kernel() -> Compiled:
        signature = {"x": "*bf16", "weight": "*bf16", "out": "*bf16"}
        signature |= {"columns": "i32", "epsilon": "fp32"}
        return compile_kernel(triton_kernels.rms_norm, signature, {"BLOCK": 2048}, buffers)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        random = np.random.default_rng(1)
        x = bf16_bits(random.standard_normal((rows, columns)))
        weight = bf16_bits(random.standard_normal(columns))
        out, whole = guarded(x.shape, np.uint16)
        arguments = seal({"x": x, "weight": weight})
        arguments |= {"out": out, "columns": np.int32(columns), "epsilon": np.float32(epsilon)}
        mix, seconds = timed(lambda: compiled.launch((rows,), arguments, schedule))
        assert untouched(out, whole)
        exact = bf16_values(x).astype(np.float64)
        exact /= np.sqrt((exact**2).mean(axis=1, keepdims=True) + epsilon)
        exact *= bf16_values(weight)
        # Half an ulp of bf16 is at most 2^-8 of the value; the rest is the fp32 before it.
        ratio = compare("out", bf16_values(out) / exact, np.ones(exact.shape), 2.0**-8 + 2.0**-18)
        return Outcome([ratio], mix, seconds, out.tobytes())

    size = f"{rows} x {columns}"
    return triton_case(f"Triton RMSNorm{' (buffers)' * buffers}", size, kernel, run)


def product_bound(a: Array, b: Array) -> float:
    """What summing in fp32, in any order, may lose: depth * 2^-24 of the sum of magnitudes."""
    return float(a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b)).max())


def gemm(warps: int, mfma_size: int) -> Case:
    rows = columns = depth = 256

    def kernel() -> Compiled:
        signature = dict.fromkeys(["a", "b", "c"], "*bf16")
        signature |= dict.fromkeys(["rows", "columns", "depth"], "i32")
        blocks = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64}
        options = {"num_warps": warps, "num_stages": 2, "matrix_instr_nonkdim": mfma_size}
        return compile_kernel(triton_kernels.gemm, signature, blocks, True, **options)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        random = np.random.default_rng(2)
        a = bf16_bits(random.standard_normal((rows, depth)))
        b = bf16_bits(random.standard_normal((depth, columns)))
        c, whole = guarded((rows, columns), np.uint16)
        arguments = seal({"a": a, "b": b}) | {"c": c}
        arguments |= {
            "rows": np.int32(rows), "columns": np.int32(columns), "depth": np.int32(depth)
        }  # fmt: skip
        mix, seconds = timed(lambda: compiled.launch((1, 1), arguments, schedule))
        assert untouched(c, whole)
        left, right = bf16_values(a).astype(np.float64), bf16_values(b).astype(np.float64)
        exact = left @ right
        allowed = product_bound(left, right) + 2.0**-8 * float(np.abs(exact).max())
        output = compare("c", bf16_values(c), exact, allowed)
        return Outcome([output], mix, seconds, c.tobytes())

    name = f"Triton GEMM, {warps} warps, MFMA {mfma_size} (spills{', AGPRs' * (warps == 4)})"
    return triton_case(name, f"{rows} x {columns} x {depth}", kernel, run)


def gluon_gemm(mfma_size: int, accumulator: str) -> Case:
    rows, columns, depth = 64, 64, 128

    def kernel() -> Compiled:
        signature = {"a": "*bf16", "b": "*bf16", "c": "*fp32"}
        constants = {"M": rows, "N": columns, "K": depth}
        constants |= {"SIZE": mfma_size, "DEPTH": 512 // mfma_size, "REGISTERS": accumulator}
        return compile_kernel(gluon_kernels.mfma_gemm, signature, constants, num_warps=4)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        random = np.random.default_rng(3)
        a = bf16_bits(random.standard_normal((rows, depth)))
        b = bf16_bits(random.standard_normal((depth, columns)))
        c, whole = guarded((rows, columns), np.float32)
        arguments = seal({"a": a, "b": b}) | {"c": c}
        mix, seconds = timed(lambda: compiled.launch((1,), arguments, schedule))
        assert untouched(c, whole)
        left, right = bf16_values(a).astype(np.float64), bf16_values(b).astype(np.float64)
        output = compare("c", c, left @ right, product_bound(left, right))
        return Outcome([output], mix, seconds, c.tobytes())

    registers = {"v": "VGPRs", "a": "AGPRs"}[accumulator]
    name = f"Gluon mfma {mfma_size}x{mfma_size}x{512 // mfma_size} in {registers}"
    return triton_case(name, f"{rows} x {columns} x {depth}", kernel, run)


INPUTS = dict.fromkeys(["q", "k", "v", "dout"], "*bf16") | dict.fromkeys(["lse", "delta"], "*fp32")
SIZES = dict.fromkeys(["seqlen_q", "seqlen_k", "nhead"], "i32") | {"scale": "fp32"}


def inputs(problem: Problem) -> dict[str, Any]:
    tensors = {name: bf16_bits(getattr(problem, name)) for name in ("q", "k", "v", "dout")}
    return seal(tensors | {"lse": problem.lse, "delta": problem.delta})


def sizes(problem: Problem) -> dict[str, Any]:
    return {
        "seqlen_q": np.int32(problem.q.shape[1]),
        "seqlen_k": np.int32(problem.k.shape[1]),
        "nhead": np.int32(problem.q.shape[2]),
        "scale": np.float32(problem.scale),
    }


class Forward:
    """Guarded out and lse of a problem, and their judgement."""

    def __init__(self, problem: Problem) -> None:
        batch, seqlen_q, nhead, _ = problem.q.shape
        self.problem = problem
        self.out, self._out = guarded(problem.q.shape, np.uint16)
        self.lse, self._lse = guarded((batch, nhead, seqlen_q), np.float32)

    def outcome(self, mix: _C.InstructionMix, seconds: float) -> Outcome:
        assert untouched(self.out, self._out)
        assert untouched(self.lse, self._lse)
        outputs = [
            judge("out", bf16_values(self.out), self.problem),
            judge("lse", self.lse, self.problem, is_bf16=False),
        ]
        return Outcome(outputs, mix, seconds, self.out.tobytes() + self.lse.tobytes())


class Backward:
    """Guarded dk, dv and atomically summed fp32 dq of a problem, and their judgement."""

    def __init__(self, problem: Problem, dq_shape: tuple[int, ...]) -> None:
        self.problem = problem
        self.dq, self._dq = guarded(dq_shape, np.float32)
        self.dq[...] = 0
        self.dk, self._dk = guarded(problem.k.shape, np.uint16)
        self.dv, self._dv = guarded(problem.k.shape, np.uint16)

    def outcome(self, dq: Array, mix: _C.InstructionMix, seconds: float) -> Outcome:
        """dq: as [b, s, h, d]."""
        assert untouched(self.dq, self._dq)
        assert untouched(self.dk, self._dk)
        assert untouched(self.dv, self._dv)
        outputs = [
            judge("dq", dq, self.problem, is_bf16=False),
            judge("dk", bf16_values(self.dk), self.problem),
            judge("dv", bf16_values(self.dv), self.problem),
        ]
        return Outcome(outputs, mix, seconds, self.dk.tobytes() + self.dv.tobytes())


def attention_size(seqlen: int, batch: int, nhead: int, causal: bool) -> str:
    shape = f"S {seqlen}, H {nhead}, D 128" + f", B {batch}" * (batch > 1)
    return f"{shape}, {'causal' if causal else 'full'}"


def triton_forward(seqlen: int, causal: bool, mfma_size: int, buffers: bool) -> Case:
    def kernel() -> Compiled:
        names = {"q": "*bf16", "k": "*bf16", "v": "*bf16", "out": "*bf16", "lse": "*fp32"}
        constants = {"HDIM": 128, "BLOCK_Q": 128, "BLOCK_K": 64, "CAUSAL": causal}
        options = {"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": mfma_size}
        function = triton_kernels.attention_forward
        return compile_kernel(function, names | SIZES, constants, buffers, **options)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        problem = make_problem(seqlen, seqlen, 128, causal, batch=1)
        result = Forward(problem)
        given = inputs(problem)
        arguments = {name: given[name] for name in ("q", "k", "v")}
        arguments |= {"out": result.out, "lse": result.lse} | sizes(problem)
        grid = (-(-seqlen // 128), 2, 1)
        return result.outcome(*timed(lambda: compiled.launch(grid, arguments, schedule)))

    name = f"Triton attention forward, MFMA {mfma_size}{' (buffers)' * buffers}"
    return triton_case(name, attention_size(seqlen, 1, 2, causal), kernel, run)


def triton_backward(seqlen: int, causal: bool, mfma_size: int, buffers: bool) -> Case:
    def kernel() -> Compiled:
        outputs = {"dq": "*fp32", "dk": "*bf16", "dv": "*bf16"}
        constants = {"HDIM": 128, "BLOCK_Q": 32, "BLOCK_K": 128, "CAUSAL": causal}
        options = {"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": mfma_size}
        function = triton_kernels.attention_dk_dv
        return compile_kernel(function, INPUTS | outputs | SIZES, constants, buffers, **options)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        problem = make_problem(seqlen, seqlen, 128, causal, batch=1)
        result = Backward(problem, problem.q.shape)
        arguments = inputs(problem) | {"dq": result.dq, "dk": result.dk, "dv": result.dv}
        arguments |= sizes(problem)
        grid = (-(-seqlen // 128), 2, 1)
        mix, seconds = timed(lambda: compiled.launch(grid, arguments, schedule))
        return result.outcome(result.dq, mix, seconds)

    name = f"Triton attention backward, MFMA {mfma_size}{' (buffers)' * buffers}"
    return triton_case(name, attention_size(seqlen, 1, 2, causal), kernel, run)


def aiter_forward(seqlen: int, causal: bool, batch: int = 1, nhead: int = 2) -> Case:
    stem = f"fwd_hd128_bf16{'_causal' * causal}"

    def run(schedule: Schedule) -> Outcome:
        problem = make_problem(seqlen, seqlen, 128, causal, batch, nhead)
        result = Forward(problem)
        given = inputs(problem)
        q, k, v = given["q"], given["k"], given["v"]
        aiter_kernels.load(stem)
        return result.outcome(
            *timed(
                lambda: aiter_kernels.forward(
                    q, k, v, result.out, result.lse, problem.scale, causal, schedule
                )
            )
        )

    size = attention_size(seqlen, batch, nhead, causal)
    return Case(f"aiter {stem}", size, lambda: aiter_object(stem), run, races=causal)


def aiter_backward(seqlen: int, causal: bool, batch: int = 1, nhead: int = 2) -> Case:
    stem = f"bwd_hd128_bf16{'_causal' * causal}_a32_psskddv"

    def run(schedule: Schedule) -> Outcome:
        problem = make_problem(seqlen, seqlen, 128, causal, batch, nhead)
        result = Backward(problem, (batch, nhead, seqlen, 128))
        tensors = {**inputs(problem), "dq": result.dq, "dk": result.dk, "dv": result.dv}
        aiter_kernels.load(stem)
        mix, seconds = timed(
            lambda: aiter_kernels.backward(
                **tensors, scale=problem.scale, causal=causal, schedule=schedule
            )
        )
        return result.outcome(result.dq.transpose(0, 2, 1, 3), mix, seconds)

    size = attention_size(seqlen, batch, nhead, causal)
    return Case(f"aiter {stem}", size, lambda: aiter_object(stem), run, races=causal)


def aiter_object(stem: str) -> Object:
    loaded = aiter_kernels.load(stem)
    return Object(loaded.elf, loaded.kernel)


CASES = [
    vector_add(buffers=False),
    vector_add(buffers=True),
    rms_norm(buffers=False),
    rms_norm(buffers=True),
    gluon_gemm(32, "v"),
    gluon_gemm(16, "a"),
    gemm(warps=8, mfma_size=32),
    gemm(warps=4, mfma_size=16),
    triton_forward(512, causal=False, mfma_size=16, buffers=False),
    triton_forward(512, causal=True, mfma_size=32, buffers=True),
    triton_backward(512, causal=False, mfma_size=16, buffers=True),
    triton_backward(512, causal=True, mfma_size=32, buffers=False),
    aiter_forward(512, causal=False),
    aiter_forward(512, causal=True),
    aiter_backward(512, causal=False),
    aiter_backward(512, causal=True),
]
# Lengths that are no multiple of a tile, and more than one batch.
RAGGED = [
    triton_forward(333, causal=True, mfma_size=16, buffers=True),
    aiter_forward(333, causal=False, batch=2, nhead=1),
    aiter_forward(333, causal=True, batch=2, nhead=1),
    aiter_backward(333, causal=False, batch=2, nhead=1),
    aiter_backward(333, causal=True, batch=2, nhead=1),
]
