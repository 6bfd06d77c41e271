"""Triton's attention backward in the emulator: every head dim, mask, MFMA shape and addressing, on
ragged shapes, against float64.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import listing
from emulated import bf16_values, guarded, untouched
from listing import needs_objdump

pytest.importorskip(
    "triton", reason="the oracle kernels need triton (pip install triton==3.9.0); no GPU is needed"
)

from oracles import triton_kernels
from oracles.attention_cases import INPUTS, SIZES, inputs, sizes
from oracles.reference import judge, make_problem
from oracles.triton_code import Compiled, compile_kernel

BLOCK_Q, BLOCK_K = 32, 64


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


def schedules(shape: tuple[int, int]) -> list[tuple[int, bool]]:
    return INTERLEAVINGS if shape == RAGGED else [(64, False)]


def compile_dk_dv(variant: Variant) -> Compiled:
    outputs = {"dq": "*fp32", "dk": "*bf16", "dv": "*bf16"}
    return compile_kernel(
        triton_kernels.attention_dk_dv,
        INPUTS | outputs | SIZES,
        variant.constants(),
        variant.buffers,
        **variant.options(),
    )


def compile_dq(variant: Variant) -> Compiled:
    return compile_kernel(
        triton_kernels.attention_dq,
        INPUTS | {"dq": "*bf16"} | SIZES,
        variant.constants(),
        variant.buffers,
        **variant.options(),
    )


@pytest.mark.parametrize(("variant", "shape"), CASES, ids=CASE_NAMES)
def test_dk_dv_and_atomic_dq(variant: Variant, shape: tuple[int, int]) -> None:
    kernel = compile_dk_dv(variant)
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
        judge("dq", dq, problem, is_bf16=False).check()
        judge("dk", bf16_values(dk), problem).check()
        judge("dv", bf16_values(dv), problem).check()
        results.append(dk.tobytes() + dv.tobytes())
    assert len(set(results)) == 1, "the order in which waves run changes dk or dv"


@pytest.mark.parametrize(("variant", "shape"), CASES, ids=CASE_NAMES)
def test_dq(variant: Variant, shape: tuple[int, int]) -> None:
    kernel = compile_dq(variant)
    problem = make_problem(*shape, variant.hdim, variant.causal)
    batch, seqlen_q, nhead, _ = problem.q.shape
    grid = (-(-seqlen_q // BLOCK_Q), nhead, batch)
    results = []
    for schedule in schedules(shape):
        dq, whole = guarded(problem.q.shape, np.uint16)
        kernel.launch(grid, inputs(problem) | {"dq": dq} | sizes(problem), schedule)
        assert untouched(dq, whole)
        judge("dq", bf16_values(dq), problem).check()
        results.append(dq.tobytes())
    assert len(set(results)) == 1, "the order in which waves run changes dq"


@needs_objdump
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"hd{v.hdim}-mfma{v.mfma_size}")
def test_decoder_agrees_with_llvm(variant: Variant, tmp_path: Path) -> None:
    for compiled in (compile_dk_dv(variant), compile_dq(variant)):
        assert listing.compare(compiled.elf, compiled.name, tmp_path) > 500
