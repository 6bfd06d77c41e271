"""A Gluon kernel: Triton's low-level language, where the kernel names the MFMA and its layouts."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def mfma_gemm(
    a, b, c,
    M: gl.constexpr, N: gl.constexpr, K: gl.constexpr,
    SIZE: gl.constexpr, DEPTH: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """c[M, N] = a[M, K] @ b[K, N], bf16 with fp32 result, in one workgroup of four waves.

    SIZE x SIZE x DEPTH is the MFMA instruction: 32 and 16, or 16 and 32. The accumulators are VGPRs
    where REGISTERS is "v", AGPRs where it is "a".
    """
    loads: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    mfma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[SIZE, SIZE, DEPTH], transposed=False, warps_per_cta=[2, 2]
    )
    a_row = gl.arange(0, M, gl.SliceLayout(1, loads))[:, None]
    a_inner = gl.arange(0, K, gl.SliceLayout(0, loads))[None, :]
    a_tile = gl.amd.cdna4.buffer_load(a, a_row * K + a_inner)
    b_inner = gl.arange(0, K, gl.SliceLayout(1, loads))[:, None]
    b_column = gl.arange(0, N, gl.SliceLayout(0, loads))[None, :]
    b_tile = gl.amd.cdna4.buffer_load(b, b_inner * N + b_column)

    left = gl.convert_layout(a_tile, gl.DotOperandLayout(0, mfma, 8))
    right = gl.convert_layout(b_tile, gl.DotOperandLayout(1, mfma, 8))
    total = gl.amd.cdna4.mfma(left, right, gl.zeros([M, N], gl.float32, mfma), REGISTERS)

    row = gl.arange(0, M, gl.SliceLayout(1, mfma))[:, None]
    column = gl.arange(0, N, gl.SliceLayout(0, mfma))[None, :]
    gl.amd.cdna4.buffer_store(total, c, row * N + column)
