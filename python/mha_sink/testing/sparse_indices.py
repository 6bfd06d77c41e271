"""Which rows of kv the tokens of sparse MLA see: the two index patterns that benchmarks use."""

from __future__ import annotations

import torch
from torch import Tensor

WINDOW = 128
RATIO = 4
NUM_POOL = 1024


def uniform_indices(
    tokens: int, topk: int, num_kv: int, *, empty: float = 0.1, seed: int = 0
) -> Tensor:
    """Independent draws from all rows of kv, so that a token may see a row twice or a later token.

    Args:
        tokens: T.
        topk: slots a token.
        num_kv: rows of kv, at least 1 unless there is no slot.
        empty: share of slots that are -1.
        seed: of the draw.

    Returns:
        int32 [T, TOPK].
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens, topk)
    if 0 in shape:
        return torch.zeros(shape, dtype=torch.int32)
    indices = torch.randint(num_kv, shape, generator=generator, dtype=torch.int32)
    return indices.masked_fill(torch.rand(shape, generator=generator) < empty, -1)


def window_pool_indices(
    tokens: int,
    topk: int,
    *,
    window: int = WINDOW,
    ratio: int = RATIO,
    num_pool: int = NUM_POOL,
    seed: int = 0,
) -> Tensor:
    """DeepSeek-V4's pattern: a causal window, then rows of a pool of compressed keys.

    Slots 0 to window - 1 of token t hold t - window + 1 to t, -1 where that is negative. The other
    slots hold different blocks of the pool, drawn from those that are visible: block b summarises
    `ratio` tokens and is visible when b < (t + 1) // ratio. It is row T + b of kv. Slots for which
    no block is left are -1.

    Args:
        tokens: T.
        topk: slots a token, from `window` to `window + num_pool`.
        window: tokens that a token sees, itself included.
        ratio: tokens to a block of the pool.
        num_pool: blocks of the pool; kv has T + num_pool rows, or T when topk == window.
        seed: of the draw.

    Returns:
        int32 [T, TOPK].

    Raises:
        ValueError: topk is outside its range; window or ratio is below 1, num_pool below 0.
    """
    for name, value, least in (
        ("window", window, 1),
        ("ratio", ratio, 1),
        ("num_pool", num_pool, 0),
    ):
        if value < least:
            raise ValueError(f"window_pool_indices: {name} is {value}; need at least {least}")
    if not window <= topk <= window + num_pool:
        raise ValueError(
            f"window_pool_indices: topk is {topk}; need at least window = {window} and at most "
            f"window + num_pool = {window + num_pool}"
        )
    token = torch.arange(tokens, dtype=torch.int32)[:, None]
    near = token + torch.arange(1 - window, 1, dtype=torch.int32)
    near = near.masked_fill(near < 0, -1)
    chosen = topk - window
    if not chosen:
        return near
    generator = torch.Generator().manual_seed(seed)
    block = torch.arange(num_pool, dtype=torch.int32)
    order = torch.rand(tokens, num_pool, generator=generator)
    order.masked_fill_(block >= (token + 1) // ratio, torch.inf)
    drawn = order.topk(chosen, largest=False)
    far = (tokens + drawn.indices.int()).masked_fill(drawn.values.isinf(), -1)
    return torch.cat([near, far], dim=1)
