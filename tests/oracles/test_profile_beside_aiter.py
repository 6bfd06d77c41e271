"""The side-by-side profile of our backward and of aiter's hand-written one."""

from __future__ import annotations

import json

import pytest

from oracles import aiter_kernels, profile_beside_aiter
from wheels import Unavailable

SEQLEN = 256


def test_one_command_profiles_both(capsys):
    try:
        aiter_kernels.load("bwd_hd128_bf16_a32_psskddv")
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert profile_beside_aiter.main(["--seqlen", str(SEQLEN), "--json"]) == 0
    *ours, theirs = json.loads(capsys.readouterr().out)["kernels"]
    main = next(kernel for kernel in ours if kernel["kernel"].startswith("mha_dq_dk_dv_"))
    assert "fmha_bwd_hd128_bf16_a32" in theirs["kernel"]
    # The same five products of the same tensors; whole tiles, so that theirs computes nothing else.
    assert main["useful_flops"] == theirs["useful_flops"] == 10 * SEQLEN**2 * 128 * 2
    assert theirs["mfma_flops"] == theirs["useful_flops"]
    assert theirs["registers"] == 512
    assert theirs["waves_per_simd"] == 1
    tensor = SEQLEN * 2 * 128 * 2 // 128
    for name in ("q", "k", "v", "dout"):
        assert main["buffers"][name]["lines_read"] == tensor
        assert theirs["buffers"][name]["lines_read"] == tensor
