"""Triton's and Gluon's vector add, RMSNorm and matrix products."""

from __future__ import annotations

import numpy as np
import triton.language as tl

from emulated import Array, bf16_bits, bf16_values, guarded, untouched
from oracles import gluon_kernels, triton_kernels
from oracles.case import Case, Outcome, Schedule, seal, timed, triton_case
from oracles.reference import compare
from oracles.triton_code import Compiled, compile_kernel


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
        constants = {"SUM": tl.float32, "BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64}
        options = {"num_warps": warps, "num_stages": 2, "matrix_instr_nonkdim": mfma_size}
        return compile_kernel(triton_kernels.gemm, signature, constants, True, **options)

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


def int8_gemm(mfma_size: int) -> Case:
    rows, columns, depth = 100, 70, 256

    def kernel() -> Compiled:
        signature = {"a": "*i8", "b": "*i8", "c": "*i32"}
        signature |= dict.fromkeys(["rows", "columns", "depth"], "i32")
        constants = {"SUM": tl.int32, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}
        options = {"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": mfma_size}
        return compile_kernel(triton_kernels.gemm, signature, constants, **options)

    def run(compiled: Compiled, schedule: Schedule) -> Outcome:
        random = np.random.default_rng(7)
        a = random.integers(-128, 128, (rows, depth), np.int8)
        b = random.integers(-128, 128, (depth, columns), np.int8)
        c, whole = guarded((rows, columns), np.int32)
        arguments = seal({"a": a, "b": b}) | {"c": c}
        arguments |= {
            "rows": np.int32(rows), "columns": np.int32(columns), "depth": np.int32(depth)
        }  # fmt: skip
        mix, seconds = timed(lambda: compiled.launch((2, 2), arguments, schedule))
        assert untouched(c, whole)
        output = compare("c", c, a.astype(np.int64) @ b.astype(np.int64), 0.0)
        return Outcome([output], mix, seconds, c.tobytes())

    name = f"Triton int8 GEMM, MFMA {mfma_size}"
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
