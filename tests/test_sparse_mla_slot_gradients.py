"""A slot's part of dkv passes through integers of 16 bits with a scale of their own."""

from __future__ import annotations

import math

import pytest
import torch

import mha_sink

D = 512


def dkv_of(gradients: torch.Tensor) -> torch.Tensor:
    """dkv where token t has one slot, row t of kv, that adds gradients[t]: q and kv are 0, P is 1,
    dS 0, and dkv the sum of do over three heads, which hold the leading, middle and last bits."""
    parts, rest = [], gradients
    for _ in range(3):
        parts.append(rest.bfloat16())
        rest = rest - parts[-1].float()
    assert not rest.any()
    do = torch.stack(parts, 1)
    zero = torch.zeros_like(do)
    tokens = len(gradients)
    indices = torch.full((tokens, 32), -1, dtype=torch.int32)
    indices[:, 5] = torch.arange(tokens)
    kv = torch.zeros(tokens, D, dtype=torch.bfloat16)
    _, dkv, _ = mha_sink.sparse_mla_bwd_dsv4(zero, kv, do, zero, torch.zeros(tokens, 3), indices)
    return dkv.float()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("exponent", [-100, -20, 0, 1, 100])
def test_the_largest_of_a_row_may_lie_anywhere_between_powers_of_two(exponent, sign):
    """2 - 2^-16 and above would round to 2^15 units, which an int16 does not hold."""
    bits = torch.arange(1, 23)
    largest = torch.cat([2 - 2.0**-bits, 1 + 2.0**-bits, torch.ones(1)]) * sign * 2.0**exponent
    gradients = torch.randn(len(largest), D, generator=torch.Generator().manual_seed(0))
    gradients = (gradients / 8).clamp(-1, 1).bfloat16().float() * 2.0**exponent
    for row in range(len(largest)):
        gradients[row, 37 * row % D] = largest[row]
    dkv = dkv_of(gradients)
    unit = 2.0 ** (exponent - 13)  # the coarsest of these rows
    assert (dkv - gradients).abs().le(unit / 2 + gradients.abs() * 2.0**-8).all()
    assert (dkv - gradients.bfloat16().float()).abs().max() <= 2.0 ** (exponent - 7)


def test_rows_of_zeros_and_of_the_ends_of_the_range():
    gradients = torch.zeros(5, D)
    gradients[1, 7] = 2.0**-126
    gradients[2, ::2] = -(2.0**-120)
    gradients[3, 3], gradients[3, 4] = 2.0**127, -(2.0**114)
    assert torch.equal(dkv_of(gradients), gradients)


def test_what_is_no_number_stays_none():
    gradients = torch.ones(3, D)
    kv = torch.zeros(3, D, dtype=torch.bfloat16)
    do = gradients.bfloat16()[:, None]
    do[1, 0, 9] = math.nan
    do[2, 0, 9] = math.inf
    zero = torch.zeros_like(do)
    indices = torch.arange(3, dtype=torch.int32)[:, None].expand(3, 32).contiguous()
    _, dkv, _ = mha_sink.sparse_mla_bwd_dsv4(zero, kv, do, zero, torch.zeros(3, 1), indices)
    assert (dkv[0] == 32).all()
    assert not dkv[1:, 9].isfinite().any()
