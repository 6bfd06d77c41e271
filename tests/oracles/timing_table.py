"""Prints the timing MODEL beside published times: python tests/oracles/timing_table.py

Kernels that are at hand: aiter's hand-written attention, and Triton's code of our own kernels for
want of that which was measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from emulated import pack_arguments
from mha_sink import emulator
from mha_sink.profiling.hardware import CLOCK_GHZ, CLOCK_GHZ_MI350X
from mha_sink.profiling.timing import ModelledTiming
from oracles import aiter_kernels
from wheels import Unavailable

NOMINAL = {"MI355X": CLOCK_GHZ, "MI350X": CLOCK_GHZ_MI350X}
TRITON = "Triton "  # what such stems begin with


class Published(NamedTuple):
    """TFLOP/s of one kernel and shape, bf16; causal ones count half the pairs. `fitted`: the
    model's constants were chosen on it. `same`: the measured kernel is the modelled one."""

    stem: str
    seqlen: int
    tflops: float
    batch: int = 1
    nhead: int = 32
    gpu: str = "MI355X"
    fitted: bool = False
    same: bool = True

    @property
    def causal(self) -> bool:
        return "causal" in self.stem

    @property
    def hdim(self) -> int:
        return 64 if "hd64" in self.stem else 128

    @property
    def heads(self) -> int:
        return self.batch * self.nhead

    @property
    def flops(self) -> float:
        products = 4 if self.stem.startswith("fwd") else 10
        return products * self.heads * self.seqlen**2 * self.hdim * (0.5 if self.causal else 1.0)


def _mi350x(stem: str, seqlen: int, tflops: float, batch: int, nhead: int) -> Published:
    return Published(stem, seqlen, tflops, batch, nhead, "MI350X")


def _triton(mask: str, seqlen: int, tflops: float, batch: int, nhead: int, gpu: str) -> Published:
    return Published(f"{TRITON}{mask}", seqlen, tflops, batch, nhead, gpu, same=False)


PUBLISHED = [
    # ROCm/aiter, op_tests/cpp/mha/README.md.
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
    # "ASM v3" of facebookexperimental/triton #2709 and #2798 (D 128) and #2843 (D 64). Which
    # atomics they measured is not said: a32 is taken, aiter's default. KV heads are fewer.
    _mi350x("bwd_hd128_bf16_a32_psskddv", 4096, 577, 16, 64),
    _mi350x("bwd_hd128_bf16_a32_psskddv", 16384, 664, 15, 64),
    _mi350x("bwd_hd128_bf16_causal_a32_psskddv", 4096, 510, 16, 64),
    _mi350x("bwd_hd128_bf16_causal_a32_psskddv", 16384, 595, 15, 64),
    _mi350x("bwd_hd64_bf16_a32_rtne_pssk", 16384, 454, 2, 32),
    _mi350x("bwd_hd64_bf16_causal_a32_rtne_pssk", 16384, 442, 2, 32),
    _mi350x("bwd_hd64_bf16_causal_a32_rtne_pssk", 4096, 351, 4, 48),
    # "Triton MHA" of HazyResearch/HipKittens, analysis/attn/bkwd, and TLX of the commits above.
    *(_triton("causal", s, tf, 16, 16, "MI355X")
      for s, tf in ((1024, 147), (2048, 179), (4096, 215), (8192, 237), (16384, 251))),
    _triton("full", 4096, 793, 16, 64, "MI350X"),
    _triton("causal", 4096, 560, 16, 64, "MI350X"),
]  # fmt: skip


def aligned_zeros(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """At a multiple of 256 bytes, as hipMalloc gives: the model counts cache lines."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    block = np.zeros(size + 256, np.uint8)
    start = -block.ctypes.data % 256
    return block[start : start + size].view(dtype).reshape(shape)


def modelled(case: Published) -> ModelledTiming:
    """Models the launch from some workgroups of one head. Raises wheels.Unavailable."""
    if case.stem.startswith(TRITON):
        return triton(case)
    code = emulator.load(aiter_kernels.code_object(case.stem), case.stem)
    found: list[ModelledTiming] = []

    def model(_code, _kernel, grid, size, arguments, _schedule=None):  # type: ignore[no-untyped-def]
        (kernel,) = code.kernels
        packed = b"".join(
            np.uint64(v.ctypes.data).tobytes() if isinstance(v, np.ndarray) else v.tobytes()
            for v in arguments.values()
        )
        found.append(_model(case, code, kernel, grid, size, packed, arguments))

    def bf16() -> np.ndarray:
        return aligned_zeros((1, case.seqlen, 1, case.hdim), np.uint16)

    rows = aligned_zeros((1, 1, case.seqlen), np.float32)
    with mock.patch.object(aiter_kernels, "launch", model):
        if case.stem.startswith("fwd"):
            aiter_kernels.forward(bf16(), bf16(), bf16(), bf16(), rows, 1.0, case.causal)
        else:
            dq = aligned_zeros((1, 1, case.seqlen, case.hdim), np.float32)
            aiter_kernels.backward(
                bf16(), bf16(), bf16(), bf16(), rows, rows, dq, bf16(), bf16(), 1.0,
                case.causal,
            )  # fmt: skip
    return found[0]


def triton(case: Published) -> ModelledTiming:
    """Our attention_dk_dv, dq by atomics, as Triton compiles it with 16 x 16 MFMA (with 32 x 32 it
    spills). Raises Unavailable without Triton."""
    try:
        from oracles.attention_cases import triton_backward_kernel
    except ImportError as reason:
        raise Unavailable(str(reason)) from None
    compiled = triton_backward_kernel(case.causal, mfma_size=16, buffers=True)
    arrays = {
        name: aligned_zeros((1, case.seqlen, 1, case.hdim), np.uint16)
        for name in ("q", "k", "v", "dout")
    }
    arrays |= {name: aligned_zeros((1, 1, case.seqlen), np.float32) for name in ("lse", "delta")}
    arrays["dq"] = aligned_zeros((1, case.seqlen, 1, case.hdim), np.float32)
    arrays |= {name: aligned_zeros(arrays["k"].shape, np.uint16) for name in ("dk", "dv")}
    sizes = {"seqlen_q": case.seqlen, "seqlen_k": case.seqlen, "nhead": 1}
    arguments: dict[str, Any] = {
        **arrays, **{name: np.int32(size) for name, size in sizes.items()},
        "scale": np.float32(1), "global_scratch": None, "profile_scratch": None,
    }  # fmt: skip
    code = emulator.load(compiled.elf, case.stem)
    grid = (-(-case.seqlen // 128), 1, 1)
    packed = pack_arguments(arguments)
    return _model(
        case, code, compiled.name, grid, compiled.threads, packed, arguments, compiled.lds
    )


def _model(
    case: Published, code: emulator.CodeObject, kernel: str, grid: tuple[int, ...], size: int,
    packed: bytes, arguments: dict[str, Any], lds: int = 0,
) -> ModelledTiming:  # fmt: skip
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    return code.model_timing(
        kernel, grid, size, packed, lds, memory=arrays, copies=case.heads,
        clock_ghz=NOMINAL[case.gpu],
    )  # fmt: skip


def tflops(case: Published, timing: ModelledTiming) -> float:
    """Of the whole launch, all heads."""
    return case.flops / timing.seconds() / 1e12


def lines(cases: Iterable[Published]) -> Iterable[str]:
    """The table."""
    yield "| kernel | GPU | B x H | S | published | MODEL | off by | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for case in cases:
        shape = (case.stem, case.gpu, f"{case.batch} x {case.nhead}", case.seqlen)
        try:
            value = tflops(case, modelled(case))
        except Unavailable as reason:
            yield "| " + " | ".join(map(str, (*shape, f"not run: {reason}", "", "", ""))) + " |"
            continue
        off = value / case.tflops - 1
        note = "fitted" if case.fitted else "" if abs(off) <= 0.2 else "**miss**"
        if not case.same:
            note = "another kernel"
        cells = (*shape, f"{case.tflops:.0f}", f"{value:.0f}", f"{off:+.0%}", note)
        yield "| " + " | ".join(map(str, cells)) + " |"


def main() -> int:
    """Exit status 0."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", folder)
        for line in lines(PUBLISHED):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
