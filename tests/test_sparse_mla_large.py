"""Sparse MLA at the published shape whose per-slot gradients take 4 GiB.

Memory is mapped where it is touched: all but a few tokens have no slots, no q and no gradient, and
cost next to nothing. Those few lie on both sides of 2 GiB and at the end.
"""

from __future__ import annotations

import pytest
import torch

import mha_sink
from mha_sink import _C, sparse_reference
from mha_sink.testing import SparseCase, check, make_sparse_inputs, window_pool_indices

TOKENS, HEADS, TOPK, NUM_POOL = 4096, 128, 1024, 1024
SAMPLE = torch.tensor([0, 1, 1000, 2047, 2048, 3333, 4094, 4095])
SCALE = 512**-0.5


def spread(x: torch.Tensor) -> torch.Tensor:
    """Rows of the sampled tokens among zeros that are not in memory before they are read."""
    whole = torch.zeros(TOKENS, *x.shape[1:], dtype=x.dtype)
    whole[SAMPLE] = x
    return whole


@pytest.mark.parametrize("r_chunk", [None, 512])
def test_the_published_shape(r_chunk):
    slot_gradients = TOKENS * (r_chunk or TOPK) * 512 * 2
    assert slot_gradients >= 2**31
    assert _C.sparse_mla_bwd_workspace_bytes(
        TOKENS, HEADS, TOPK, TOKENS + NUM_POOL, r_chunk, False) > slot_gradients  # fmt: skip

    shape = SparseCase("sample", len(SAMPLE), HEADS, TOPK, num_pool=TOKENS + NUM_POOL - len(SAMPLE))
    sampled = window_pool_indices(TOKENS, TOPK)[SAMPLE]
    inputs = make_sparse_inputs(shape, topk_indices=sampled)
    indices = torch.full((TOKENS, TOPK), -1, dtype=torch.int32)
    indices[SAMPLE] = sampled
    # A token without slots has the sink as its lse.
    lse = inputs.sink.repeat(TOKENS, 1)
    lse[SAMPLE] = inputs.lse

    q, do, o = (spread(x) for x in (inputs.q, inputs.do, inputs.o))
    dq, dkv, d_sink = mha_sink.sparse_mla_bwd_dsv4(
        q, inputs.kv, do, o, lse, indices, inputs.sink, SCALE, r_chunk
    )
    x64 = sparse_reference.definition_bwd(
        inputs.do, inputs.q, inputs.kv, sampled, inputs.sink, scale=SCALE
    )
    xr = sparse_reference.mixed_bwd(
        inputs.do, inputs.q, inputs.kv, inputs.o, inputs.lse, sampled, inputs.sink, scale=SCALE
    )
    written = {"dq": dq[SAMPLE], "dkv": dkv, "d_sink": d_sink}
    result = check(written, x64._asdict(), xr._asdict())
    assert result.passed, str(result)
    # Not only the largest rows: the last token's own window alone reaches the last rows of kv.
    for rows in (slice(0, 2), slice(1920, 2048), slice(4000, 4096), slice(4096, None)):
        part = check({"dkv": dkv[rows]}, {"dkv": x64.dkv[rows]}, {"dkv": xr.dkv[rows]})
        assert part.passed, f"{rows}\n{part}"
    others = torch.ones(TOKENS, dtype=torch.bool)
    others[SAMPLE] = False
    assert not dq[others].any()

    out, lse_again = mha_sink.sparse_mla_fwd_dsv4(q, inputs.kv, indices, inputs.sink, SCALE)
    expected = sparse_reference.definition(inputs.q, inputs.kv, sampled, inputs.sink, scale=SCALE)
    result = check(
        {"o": out[SAMPLE], "lse": lse_again[SAMPLE]},
        {"o": expected.out, "lse": expected.lse},
        {"o": inputs.o, "lse": inputs.lse},
    )
    assert result.passed, str(result)
    assert not out[others].any()
    assert torch.equal(lse_again[others], lse[others])
