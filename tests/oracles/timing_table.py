"""Prints the timing MODEL beside published times: python tests/oracles/timing_table.py

The kernels are aiter's hand-written attention on MI355X; the published numbers are those of
ROCm/aiter, op_tests/cpp/mha/README.md (bf16, batch 1, 32 query heads, head dim 128).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from mha_sink import emulator
from mha_sink.profiling.timing import ModelledTiming
from oracles import aiter_kernels
from wheels import Unavailable

NHEAD, HDIM = 32, aiter_kernels.HDIM


class Published(NamedTuple):
    """TFLOP/s of one kernel and length; causal ones count half the pairs. `fitted`: the model's
    constants were chosen on it."""

    stem: str
    seqlen: int
    tflops: float
    fitted: bool = False

    @property
    def causal(self) -> bool:
        return "causal" in self.stem

    @property
    def flops(self) -> float:
        products = 4 if self.stem.startswith("fwd") else 10
        return products * NHEAD * self.seqlen**2 * HDIM * (0.5 if self.causal else 1.0)


PUBLISHED = [
    Published("fwd_hd128_bf16", 8192, 1396, fitted=True),
    Published("bwd_hd128_bf16_a16_psskddv", 8192, 1183, fitted=True),
    Published("bwd_hd128_bf16_a32_psskddv", 8192, 818, fitted=True),
    Published("fwd_hd128_bf16_causal", 8192, 1248),
    Published("bwd_hd128_bf16_causal_a16_psskddv", 8192, 1063),
    Published("bwd_hd128_bf16_causal_a32_psskddv", 8192, 766),
    Published("fwd_hd128_bf16", 4096, 1177),
    Published("bwd_hd128_bf16_a16_psskddv", 4096, 1108),
    Published("bwd_hd128_bf16_a32_psskddv", 4096, 782),
    Published("fwd_hd128_bf16_causal", 4096, 949),
    Published("bwd_hd128_bf16_causal_a16_psskddv", 4096, 922),
    Published("bwd_hd128_bf16_causal_a32_psskddv", 4096, 713),
    Published("fwd_hd128_bf16", 1024, 613),
    Published("bwd_hd128_bf16_a16_psskddv", 1024, 536),
    Published("bwd_hd128_bf16_a32_psskddv", 1024, 519),
    Published("fwd_hd128_bf16_causal", 1024, 233),
    Published("bwd_hd128_bf16_causal_a16_psskddv", 1024, 212),
    Published("bwd_hd128_bf16_causal_a32_psskddv", 1024, 210),
]


def aligned_zeros(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """At a multiple of 256 bytes, as hipMalloc gives: the model counts cache lines."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    block = np.zeros(size + 256, np.uint8)
    start = -block.ctypes.data % 256
    return block[start : start + size].view(dtype).reshape(shape)


def modelled(case: Published) -> ModelledTiming:
    """Models the middle workgroup of one head. Raises wheels.Unavailable."""
    code = emulator.load(aiter_kernels.code_object(case.stem), case.stem)
    found: list[ModelledTiming] = []

    def model(_code, _kernel, grid, size, arguments, _schedule=None):  # type: ignore[no-untyped-def]
        (kernel,) = code.kernels
        arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
        packed = b"".join(
            np.uint64(v.ctypes.data).tobytes() if k in arrays else v.tobytes()
            for k, v in arguments.items()
        )
        found.append(
            code.model_timing(
                kernel, grid, size, packed, memory=arrays, sample=[grid[0] // 2],
                whole=grid[0] * NHEAD,
            )
        )  # fmt: skip

    def bf16() -> np.ndarray:
        return aligned_zeros((1, case.seqlen, 1, HDIM), np.uint16)

    rows = aligned_zeros((1, 1, case.seqlen), np.float32)
    with mock.patch.object(aiter_kernels, "launch", model):
        if case.stem.startswith("fwd"):
            aiter_kernels.forward(bf16(), bf16(), bf16(), bf16(), rows, 1.0, case.causal)
        else:
            dq = aligned_zeros((1, 1, case.seqlen, HDIM), np.float32)
            aiter_kernels.backward(
                bf16(), bf16(), bf16(), bf16(), rows, rows, dq, bf16(), bf16(), 1.0,
                case.causal,
            )  # fmt: skip
    return found[0]


def tflops(case: Published, timing: ModelledTiming) -> float:
    """Of the whole launch, NHEAD heads."""
    return case.flops / timing.seconds() / 1e12


def main() -> int:
    """Exit status 0."""
    print("| kernel | S | published | MODEL | off by | |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for case in PUBLISHED:
        try:
            value = tflops(case, modelled(case))
        except Unavailable as reason:
            print(f"| {case.stem} | not run: {reason} | | | | |")
            continue
        off = value / case.tflops - 1
        note = "fitted" if case.fitted else "" if abs(off) <= 0.2 else "**miss**"
        cells = (case.stem, case.seqlen, f"{case.tflops:.0f}", f"{value:.0f}", f"{off:+.0%}", note)
        print("| " + " | ".join(map(str, cells)) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
