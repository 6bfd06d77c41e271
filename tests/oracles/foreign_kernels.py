"""The kernels that nobody here wrote."""

from __future__ import annotations

from oracles.arithmetic_cases import gemm, gluon_gemm, int8_gemm, rms_norm, vector_add
from oracles.attention_cases import (
    aiter_backward,
    aiter_forward,
    triton_backward,
    triton_forward,
)

CASES = [
    vector_add(buffers=False),
    vector_add(buffers=True),
    rms_norm(buffers=False),
    rms_norm(buffers=True),
    gluon_gemm(32, "v"),
    gluon_gemm(16, "a"),
    int8_gemm(16),
    int8_gemm(32),
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
    aiter_backward(512, causal=False, hdim=64),
    aiter_backward(512, causal=True, hdim=64),
]
# Lengths that are no multiple of a tile, more than one batch, and three tiles for two workgroups.
RAGGED = [
    triton_forward(333, causal=True, mfma_size=16, buffers=True),
    aiter_forward(333, causal=False, batch=2, nhead=1),
    aiter_forward(333, causal=True, batch=2, nhead=1),
    aiter_backward(333, causal=False, batch=2, nhead=1),
    aiter_backward(333, causal=True, batch=2, nhead=1),
    aiter_forward(600, causal=True, nhead=1),
    aiter_backward(600, causal=True, nhead=1),
    aiter_backward(333, causal=False, batch=2, nhead=1, hdim=64),
    aiter_backward(600, causal=True, nhead=1, hdim=64),
]
