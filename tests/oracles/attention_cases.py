"""Attention forward and backward of Triton and of aiter."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulated import Array, bf16_bits, bf16_values, guarded, untouched
from mha_sink import _C
from oracles import aiter_kernels, triton_kernels
from oracles.case import Case, Object, Outcome, Schedule, seal, timed, triton_case
from oracles.reference import Problem, judge, make_problem
from oracles.triton_code import Compiled, compile_kernel

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


def attention_size(seqlen: int, batch: int, nhead: int, causal: bool, hdim: int = 128) -> str:
    shape = f"S {seqlen}, H {nhead}, D {hdim}" + f", B {batch}" * (batch > 1)
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


def triton_backward_kernel(causal: bool, mfma_size: int, buffers: bool) -> Compiled:
    """attention_dk_dv for head dim 128, 128 keys a workgroup."""
    outputs = {"dq": "*fp32", "dk": "*bf16", "dv": "*bf16"}
    constants = {"HDIM": 128, "BLOCK_Q": 32, "BLOCK_K": 128, "CAUSAL": causal}
    options = {"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": mfma_size}
    function = triton_kernels.attention_dk_dv
    return compile_kernel(function, INPUTS | outputs | SIZES, constants, buffers, **options)


def triton_backward(seqlen: int, causal: bool, mfma_size: int, buffers: bool) -> Case:
    def kernel() -> Compiled:
        return triton_backward_kernel(causal, mfma_size, buffers)

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


def aiter_backward(
    seqlen: int, causal: bool, batch: int = 1, nhead: int = 2, hdim: int = 128
) -> Case:
    rounding = "rtne_pssk" if hdim == 64 else "psskddv"
    stem = f"bwd_hd{hdim}_bf16{'_causal' * causal}_a32_{rounding}"

    def run(schedule: Schedule) -> Outcome:
        problem = make_problem(seqlen, seqlen, hdim, causal, batch, nhead)
        result = Backward(problem, (batch, nhead, seqlen, hdim))
        tensors = {**inputs(problem), "dq": result.dq, "dk": result.dk, "dv": result.dv}
        aiter_kernels.load(stem)
        mix, seconds = timed(
            lambda: aiter_kernels.backward(
                **tensors, scale=problem.scale, causal=causal, schedule=schedule
            )
        )
        return result.outcome(result.dq.transpose(0, 2, 1, 3), mix, seconds)

    size = attention_size(seqlen, batch, nhead, causal, hdim)
    return Case(f"aiter {stem}", size, lambda: aiter_object(stem), run, races=causal and hdim != 64)


def aiter_object(stem: str) -> Object:
    loaded = aiter_kernels.load(stem)
    return Object(loaded.elf, loaded.kernel)
