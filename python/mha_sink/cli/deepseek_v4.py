"""A small random language model over bytes whose attention has the shape of DeepSeek-V4's."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import mha_sink
from mha_sink import sparse_reference
from mha_sink.sparse import DEFAULT_SCALE, HEAD_DIM
from mha_sink.testing import GateResult, check, spread_sinks
from mha_sink.testing.cases import SINK_OFFSETS
from mha_sink.testing.sparse_indices import RATIO, window_pool_indices

HIDDEN = 128
Q_RANK = 64
O_RANK = 64
INDEX_DIM = 32
BYTES = 256


@dataclass
class Step:
    """What the attention of one training step was given and gave; gradients after the backward.

    q and o [T, H, 512], kv [num_kv, 512], bfloat16; sink [H], float32.
    """

    q: Tensor
    kv: Tensor
    o: Tensor
    lse: Tensor
    indices: Tensor
    sink: Tensor
    seconds: float

    def check(self) -> GateResult:
        """The gate on the gradients of q, kv and sink, from exactly these inputs."""
        assert self.o.grad is not None
        do, given = self.o.grad, (self.q, self.kv, self.indices, self.sink)
        q, kv, indices, sink = (x.detach() for x in given)
        x64 = sparse_reference.definition_bwd(do, q, kv, indices, sink, scale=DEFAULT_SCALE)
        xr = sparse_reference.mixed_bwd(
            do, q, kv, self.o.detach(), self.lse.detach(), indices, sink, scale=DEFAULT_SCALE
        )
        written = {"dq": self.q.grad, "dkv": self.kv.grad, "d_sink": self.sink.grad}
        x = {name: grad for name, grad in written.items() if grad is not None}
        return check(x, _named(x64), _named(xr))


def _named(gradients: sparse_reference.Gradients) -> dict[str, Tensor]:
    return {name: x for name, x in gradients._asdict().items() if x is not None}


class SparseAttention(nn.Module):
    """Multi-head latent attention over a causal window and selected blocks of compressed keys.

    One latent of 512 a token is key and value of all heads. Every `RATIO` tokens, their latents are
    averaged with learned weights into a block of the pool. A token sees the last `window` tokens
    and the `blocks` finished blocks that an indexer scores highest. Query and output projections
    have low rank; each head has a sink.
    """

    def __init__(self, nhead: int, window: int, blocks: int) -> None:
        super().__init__()
        self.nhead, self.window, self.blocks = nhead, window, blocks
        self.norm = nn.RMSNorm(HIDDEN)
        self.q_down = nn.Linear(HIDDEN, Q_RANK, bias=False)
        self.q_norm = nn.RMSNorm(Q_RANK)
        self.q_up = nn.Linear(Q_RANK, nhead * HEAD_DIM, bias=False)
        self.kv_down = nn.Linear(HIDDEN, HEAD_DIM, bias=False)
        self.kv_norm = nn.RMSNorm(HEAD_DIM)
        self.pool_weight = nn.Linear(HIDDEN, 1, bias=False)
        self.index_q = nn.Linear(Q_RANK, INDEX_DIM, bias=False)
        self.index_k = nn.Linear(HEAD_DIM, INDEX_DIM, bias=False)
        self.o_down = nn.Linear(nhead * HEAD_DIM, O_RANK, bias=False)
        self.o_up = nn.Linear(O_RANK, HIDDEN, bias=False)
        self.sink = nn.Parameter(torch.zeros(nhead))
        # Scores of unit spread: q and kv have entries of unit size.
        nn.init.normal_(self.q_up.weight, std=Q_RANK**-0.5)

    def forward(self, x: Tensor, record: list[Step], spread: bool = False) -> Tensor:
        """[T, HIDDEN] to [T, HIDDEN]; appends to `record`. `spread` first sets the sinks around the
        lse that their heads have."""
        tokens = x.shape[0]
        x = self.norm(x)
        latent = self.q_norm(self.q_down(x))
        q = self.q_up(latent).view(tokens, self.nhead, HEAD_DIM).bfloat16()
        own = self.kv_norm(self.kv_down(x))
        pool = self.compress(x, own)
        kv = torch.cat([own, pool]).bfloat16()
        indices = self.select(latent.detach(), pool.detach())
        if q.requires_grad:
            q.retain_grad()
            kv.retain_grad()
        if spread:
            lse = sparse_reference.mixed(q, kv, indices, scale=DEFAULT_SCALE).lse
            self.sink.data.copy_(spread_sinks(lse.T[None], SINK_OFFSETS)[0])
        started = time.perf_counter()
        o, lse = mha_sink.sparse_mla(q, kv, indices, self.sink, return_lse=True)
        seconds = time.perf_counter() - started
        if o.requires_grad:
            o.retain_grad()
        record.append(Step(q, kv, o, lse, indices, self.sink, seconds))
        return self.o_up(self.o_down(o.flatten(1).float()))  # type: ignore[no-any-return]

    def compress(self, x: Tensor, kv: Tensor) -> Tensor:
        """[T // RATIO, 512]: the finished blocks."""
        whole = len(x) // RATIO * RATIO
        weights: Tensor = self.pool_weight(x[:whole]).view(-1, RATIO, 1).softmax(1)
        return (weights * kv[:whole].view(-1, RATIO, HEAD_DIM)).sum(1)

    def select(self, latent: Tensor, pool: Tensor) -> Tensor:
        """int32 [T, window + blocks]: window, then the visible blocks with the highest scores."""
        tokens = len(latent)
        near = window_pool_indices(tokens, self.window, window=self.window, num_pool=0)
        with torch.no_grad():
            score = self.index_q(latent) @ self.index_k(pool).T
        finished = (torch.arange(tokens)[:, None] + 1) // RATIO
        score = score.masked_fill(torch.arange(len(pool)) >= finished, -torch.inf)
        best = score.topk(min(self.blocks, len(pool)))
        far = (tokens + best.indices).masked_fill(best.values == -torch.inf, -1).int()
        return torch.cat([near, far], 1)


class SmallModel(nn.Module):
    """Bytes in, logits of the next byte out: embedding, one attention, one MLP."""

    def __init__(self, nhead: int, window: int, blocks: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(BYTES, HIDDEN)
        self.attention = SparseAttention(nhead, window, blocks)
        self.mlp = nn.Sequential(
            nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, 4 * HIDDEN), nn.SiLU(),
            nn.Linear(4 * HIDDEN, HIDDEN), nn.RMSNorm(HIDDEN),
        )  # fmt: skip
        self.head = nn.Linear(HIDDEN, BYTES, bias=False)

    def forward(self, tokens: Tensor, record: list[Step], spread: bool = False) -> Tensor:
        """Logits [T, BYTES] of tokens [T]."""
        x = self.embedding(tokens)
        x = x + self.attention(x, record, spread)
        return self.head(x + self.mlp(x))  # type: ignore[no-any-return]

    def loss(self, tokens: Tensor, record: list[Step]) -> Tensor:
        """Mean cross entropy of each byte given those before it."""
        return nn.functional.cross_entropy(self(tokens, record)[:-1], tokens[1:])
