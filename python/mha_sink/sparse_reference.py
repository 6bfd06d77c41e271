"""Sparse MLA (DeepSeek-V4) with a learnable sink in plain torch: what the kernels are measured by.

`definition` and `definition_bwd` are the mathematics in float64; the backward is torch.autograd's
derivative of the forward, so it shares no formula with any kernel. `formula_bwd` evaluates the
closed-form backward in float64 from the `o` and `lse` that it is given. `mixed` and `mixed_bwd`
round where a 16-bit kernel has to: the error that is due to the number format alone.

Shapes, everywhere in this module::

    q, o, do, dq    [T, H, D]        T tokens, H query heads
    kv, dkv         [num_kv, D]      one row is both key and value, shared by all heads
    topk_indices    [T, TOPK]        rows of kv that a token sees, integers
    lse, dlse       [T, H]
    sink, d_sink    [H]

A negative index is an empty slot. A row of kv that fills several slots of a token counts as often.
`sink` and `lse` are natural logarithms in the units of `scale * q.kv`; `lse` includes the sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mha_sink.reference import Forward

__all__ = [
    "Forward",
    "Gradients",
    "definition",
    "definition_bwd",
    "formula_bwd",
    "mixed",
    "mixed_bwd",
]

# Gathered rows that are held at a time, in elements: 32 MiB of float64.
BLOCK_ELEMENTS = 2**22


class Gradients(NamedTuple):
    """Gradients of q, kv and sink; `d_sink` is None without a sink."""

    dq: Tensor
    dkv: Tensor
    d_sink: Tensor | None


def definition(
    q: Tensor, kv: Tensor, topk_indices: Tensor, sink: Tensor | None = None, *, scale: float
) -> Forward:
    """Softmax attention over the slots of each token, whose denominator also holds exp(sink).

    In float64. A token without slots has `o` 0 and `lse` equal to the sink, or -inf without one. A
    sink of +inf takes all the probability: `o` 0, `lse` +inf.
    """
    o = torch.zeros_like(q, dtype=torch.float64)
    lse = q.new_zeros(q.shape[:2], dtype=torch.float64)
    column = _sink_column(sink, q, torch.float64)
    for tokens, indices in _blocks(q, topk_indices):
        o[tokens], lse[tokens] = _define(q[tokens].double(), kv.double(), indices, column, scale)
    return Forward(o, lse)


def definition_bwd(
    do: Tensor,
    q: Tensor,
    kv: Tensor,
    topk_indices: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    dlse: Tensor | None = None,
) -> Gradients:
    """Derivative of `definition` by torch.autograd, in float64.

    `do` is the gradient of `o`; `dlse` that of `lse`, None where the loss does not use it.
    """
    dq = torch.zeros_like(q, dtype=torch.float64)
    kv_leaf = kv.detach().double().requires_grad_()
    sink_leaf = _sink_column(sink, q, torch.float64).detach().clone().requires_grad_()
    dkv, d_sink = torch.zeros_like(kv_leaf), torch.zeros_like(sink_leaf)
    for tokens, indices in _blocks(q, topk_indices):
        q_leaf = q[tokens].detach().double().requires_grad_()
        with torch.enable_grad():
            o, lse = _define(q_leaf, kv_leaf, indices, sink_leaf, scale)
        dlse_block = torch.zeros_like(lse) if dlse is None else dlse[tokens].double()
        dq_block, dkv_block, d_sink_block = torch.autograd.grad(
            (o, lse), (q_leaf, kv_leaf, sink_leaf), (do[tokens].double(), dlse_block)
        )
        dq[tokens] = dq_block
        dkv += dkv_block
        d_sink += d_sink_block
    return Gradients(dq, dkv.detach(), None if sink is None else d_sink.detach())


def mixed(
    q: Tensor, kv: Tensor, topk_indices: Tensor, sink: Tensor | None = None, *, scale: float
) -> Forward:
    """The forward as a kernel of q's dtype rounds it.

    Scores and softmax in float32, P and `o` rounded once to q's dtype, products accumulated in
    float32. `lse` is float32.
    """
    o = torch.zeros_like(q)
    lse = q.new_zeros(q.shape[:2], dtype=torch.float32)
    column = _sink_column(sink, q, torch.float32)
    for tokens, indices in _blocks(q, topk_indices):
        rows, empty = _gather(kv.float(), indices)
        scores = _scores(q[tokens].float(), rows, empty, scale)
        lse[tokens] = torch.logaddexp(scores.logsumexp(-1), column)
        p = _probabilities(scores, lse[tokens]).to(q.dtype)
        o[tokens] = (p.float() @ rows).to(q.dtype)
    return Forward(o, lse)


def mixed_bwd(
    do: Tensor,
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    lse: Tensor,
    topk_indices: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    dlse: Tensor | None = None,
) -> Gradients:
    """The backward as a kernel of q's dtype rounds it.

    S, dP, P, dS, rowsum(do * o) and d_sink in float32; P and dS rounded once to q's dtype before
    they enter a product; products accumulated in float32, over heads and tokens too; dq and dkv
    rounded once at the end.
    """
    grads = _closed_form(
        do, q, kv, o, lse, topk_indices, sink, scale, dlse, compute=torch.float32, operand=q.dtype
    )
    return Gradients(grads.dq.to(q.dtype), grads.dkv.to(kv.dtype), grads.d_sink)


def formula_bwd(
    do: Tensor,
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    lse: Tensor,
    topk_indices: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    dlse: Tensor | None = None,
) -> Gradients:
    """The closed-form backward in float64, from the `o` and `lse` given.

    It equals `definition_bwd` when both come from `definition`. From any other `lse`, such as a
    sink-free one, it is the value that `sparse_mla_bwd_dsv4` owes its caller.
    """
    return _closed_form(
        do, q, kv, o, lse, topk_indices, sink, scale, dlse,
        compute=torch.float64, operand=torch.float64,
    )  # fmt: skip


def _blocks(q: Tensor, topk_indices: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some tokens at a time: gathered for all of them, kv would be T * TOPK rows."""
    tokens, topk = topk_indices.shape
    block = max(1, BLOCK_ELEMENTS // max(1, topk * q.shape[2]))
    for start in range(0, tokens, block):
        chosen = slice(start, min(start + block, tokens))
        yield chosen, topk_indices[chosen].long()


def _gather(kv: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of kv [tokens, TOPK, D], 0 in an empty slot, and which slots are empty."""
    empty = indices < 0
    padded = torch.cat([kv, kv.new_zeros(1, kv.shape[1])])
    rows = padded[indices.masked_fill(empty, kv.shape[0])]
    return rows, empty


def _scores(q: Tensor, rows: Tensor, empty: Tensor, scale: float) -> Tensor:
    """[tokens, H, TOPK], -inf in an empty slot."""
    return (q @ rows.mT * scale).masked_fill(empty.unsqueeze(1), -torch.inf)


def _sink_column(sink: Tensor | None, q: Tensor, dtype: torch.dtype) -> Tensor:
    """[H]; no sink is a sink of -inf."""
    if sink is None:
        return q.new_full((q.shape[1],), -torch.inf, dtype=dtype)
    return sink.to(dtype)


def _define(
    q: Tensor, kv: Tensor, indices: Tensor, sink: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """`o` and `lse` of some tokens, differentiable in q, kv and sink."""
    # The limit of an infinite sink: no slot keeps any probability. The column is made finite so
    # that autograd meets no inf - inf.
    saturated = sink == torch.inf
    rows, empty = _gather(kv, indices)
    scores = _scores(q, rows, empty, scale).masked_fill(saturated[:, None], -torch.inf)
    column = sink.masked_fill(saturated, 0.0)[None, :, None].expand(q.shape[0], -1, 1)
    logits = torch.cat([scores, column], dim=-1)
    shift = logits.detach().amax(-1, keepdim=True)
    shift = shift.masked_fill(shift == -torch.inf, 0.0)
    weights = torch.exp(logits - shift)
    total = weights.sum(-1, keepdim=True)
    nothing = total == 0
    total = total.masked_fill(nothing, 1.0)
    o = (weights / total)[..., :-1] @ rows
    lse = (torch.log(total) + shift).squeeze(-1).masked_fill(nothing.squeeze(-1), -torch.inf)
    return o, torch.where(saturated, sink, lse)


def _probabilities(scores: Tensor, lse: Tensor) -> Tensor:
    """exp(scores - lse), 0 in an empty slot and where lse is infinite."""
    p = torch.exp(scores - lse.unsqueeze(-1))
    return p.masked_fill(lse.isinf().unsqueeze(-1) | (scores == -torch.inf), 0.0)


def _closed_form(
    do: Tensor,
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    lse: Tensor,
    topk_indices: Tensor,
    sink: Tensor | None,
    scale: float,
    dlse: Tensor | None,
    *,
    compute: torch.dtype,
    operand: torch.dtype,
) -> Gradients:
    """In `compute`; `operand` is the dtype of P and dS as factors."""
    dq, dkv = (torch.zeros_like(x, dtype=compute) for x in (q, kv))
    delta = (do.to(compute) * o.to(compute)).sum(-1)
    pull = delta if dlse is None else delta - dlse.to(compute)
    lse = lse.to(compute)
    for tokens, indices in _blocks(q, topk_indices):
        rows, empty = _gather(kv.to(compute), indices)
        q_block, do_block = q[tokens].to(compute), do[tokens].to(compute)
        scores = _scores(q_block, rows, empty, scale)
        p = _probabilities(scores, lse[tokens])
        ds = p * (do_block @ rows.mT - pull[tokens].unsqueeze(-1))
        # An empty slot, and a token without any, contribute nothing whatever delta holds.
        ds = ds.masked_fill(empty.unsqueeze(1) | lse[tokens].isinf().unsqueeze(-1), 0.0)
        p, ds = p.to(operand).to(compute), ds.to(operand).to(compute)
        dq[tokens] = scale * (ds @ rows)
        of_slots = scale * (ds.mT @ q_block) + p.mT @ do_block
        dkv.index_add_(0, indices[~empty], of_slots[~empty])
    if sink is None:
        return Gradients(dq, dkv, None)
    column = sink.to(compute)
    p_sink = torch.exp(column - lse)
    p_sink = p_sink.masked_fill((column == torch.inf) & (lse == torch.inf), 1.0)
    return Gradients(dq, dkv, -(p_sink * pull).masked_fill(lse == -torch.inf, 0.0).sum(0))
