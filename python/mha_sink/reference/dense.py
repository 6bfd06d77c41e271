"""The references for dense tensors; shapes and terms are those of `mha_sink.reference`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

Window = tuple[int, int]
UNBOUNDED: Window = (-1, -1)


class Mask(TypedDict):
    """The keyword arguments that the functions of this module share."""

    scale: float
    causal: bool
    window: Window


class Forward(NamedTuple):
    """`out` and the sink-inclusive, natural-log `lse`."""

    out: Tensor
    lse: Tensor


class Gradients(NamedTuple):
    """Gradients of the inputs; `softmax_d` is rowsum(dout * out); `d_sink` is shaped as `sink`."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    softmax_d: Tensor
    d_sink: Tensor | None


def lse_with_sink(lse: Tensor, sink: Tensor) -> Tensor:
    """Adds the sink to a sink-free `lse`: log(exp(lse) + exp(sink)), without overflow.

    Args:
        lse: [batch, nhead_q, seqlen_q] or packed [nhead_q, total_q], any float dtype; -inf where a
            row sees no key.
        sink: [nhead_q], or [batch, nhead_q] when lse is not packed, any float dtype; -inf leaves
            `lse` as it is.

    Returns:
        The sink-inclusive lse that a backward expects, in the shape and dtype of `lse`.
    """
    # [nhead_q] for both, [batch, nhead_q] for the first.
    fitting = [lse.shape[-2:-1], lse.shape[:-1]] if lse.dim() in (2, 3) else []
    if sink.shape not in fitting:
        raise ValueError(
            f"lse_with_sink: lse has shape {list(lse.shape)} and sink {list(sink.shape)}; "
            "need [batch, nhead_q, seqlen_q] and [nhead_q] or [batch, nhead_q], or packed "
            "[nhead_q, total_q] and [nhead_q]"
        )
    return torch.logaddexp(lse, sink.to(lse.dtype).unsqueeze(-1))


def visible_keys(
    seqlen_q: int, seqlen_k: int, causal: bool = False, window: Window = UNBOUNDED
) -> Tensor:
    """The mask as a bool tensor [seqlen_q, seqlen_k]: True where the query sees the key."""
    left, right = window
    if causal:
        right = 0
    diagonal = torch.arange(seqlen_q)[:, None] + (seqlen_k - seqlen_q)
    key = torch.arange(seqlen_k)[None, :]
    visible = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool)
    if left >= 0:
        visible &= key >= diagonal - left
    if right >= 0:
        visible &= key <= diagonal + right
    return visible


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
) -> Forward:
    """Softmax attention whose denominator also holds exp(sink), in float64.

    A row that sees no key has `out` 0 and `lse` equal to the sink, or -inf without one. A sink of
    +inf takes all the probability: `out` 0, `lse` +inf.
    """
    mask = visible_keys(q.shape[1], k.shape[1], causal, window)
    out = q.new_zeros(q.shape[:3] + v.shape[3:], dtype=torch.float64)
    lse = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float64)
    for at in _groups(q, k):
        out_group, lse_group = _define_group(
            at.queries(q).double(), at.keys(k).double(), at.keys(v).double(),
            at.sinks(sink, q, torch.float64), scale, mask,
        )  # fmt: skip
        at.queries(out).copy_(out_group)
        at.rows(lse).copy_(lse_group)
    return Forward(out, lse)


def definition_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
    dlse: Tensor | None = None,
) -> Gradients:
    """Derivative of `definition` by torch.autograd, in float64.

    `dout` is the gradient of `out`; `dlse` [batch, nhead_q, seqlen_q] that of `lse`, None where the
    loss does not use it.
    """
    mask = visible_keys(q.shape[1], k.shape[1], causal, window)
    dq, dk, dv = (torch.zeros_like(x, dtype=torch.float64) for x in (q, k, v))
    softmax_d = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float64)
    d_sink = _zeros_of_sink(sink, q, torch.float64)
    for at in _groups(q, k):
        q_leaf, k_leaf, v_leaf, sink_leaf = (
            x.detach().double().requires_grad_()
            for x in (at.queries(q), at.keys(k), at.keys(v), at.sinks(sink, q, torch.float64))
        )
        dout_group = at.queries(dout).double()
        dlse_group = at.rows(softmax_d if dlse is None else dlse).double()
        with torch.enable_grad():
            out, lse = _define_group(q_leaf, k_leaf, v_leaf, sink_leaf, scale, mask)
        grads = torch.autograd.grad(
            (out, lse), (q_leaf, k_leaf, v_leaf, sink_leaf), (dout_group, dlse_group)
        )
        at.queries(dq).copy_(grads[0])
        at.keys(dk).copy_(grads[1])
        at.keys(dv).copy_(grads[2])
        at.rows(softmax_d).copy_((out.detach() * dout_group).sum(-1))
        if d_sink is not None:
            at.sinks(d_sink).add_(grads[3])
    return Gradients(dq, dk, dv, softmax_d, _sink_shaped(d_sink, sink))


def mixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
) -> Forward:
    """The forward as a kernel of q's dtype rounds it.

    Scores and softmax in float32, P and `out` rounded once to q's dtype, products accumulated in
    float32. `lse` is float32.
    """
    mask = visible_keys(q.shape[1], k.shape[1], causal, window)
    out = q.new_zeros(q.shape[:3] + v.shape[3:])
    lse = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)
    for at in _groups(q, k):
        scores = _scores(at.queries(q).float(), at.keys(k).float(), scale, mask)
        lse_group = torch.logaddexp(
            scores.logsumexp(-1), at.sinks(sink, q, torch.float32).unsqueeze(-1)
        )
        p = _probabilities(scores, lse_group).to(q.dtype)
        at.queries(out).copy_(p.float() @ at.keys(v).float())
        at.rows(lse).copy_(lse_group)
    return Forward(out, lse)


def mixed_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
    dlse: Tensor | None = None,
) -> Gradients:
    """The backward as a kernel of q's dtype rounds it.

    S, dP, P, dS, `softmax_d` and `d_sink` in float32; P and dS rounded once to q's dtype before
    they enter a product; products accumulated in float32, over a GQA group too; dq, dk and dv
    rounded once at the end.
    """
    return _closed_form(
        dout, q, k, v, out, lse, sink, scale, visible_keys(q.shape[1], k.shape[1], causal, window),
        dlse, compute=torch.float32, operand=q.dtype, result=q.dtype,
    )  # fmt: skip


def formula_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
    dlse: Tensor | None = None,
) -> Gradients:
    """The closed-form backward in float64, from the `out` and `lse` given.

    It equals `definition_bwd` when both come from `definition`. From any other `lse`, such as a
    sink-free one, it is the value that `mha_bwd` owes its caller.
    """
    return _closed_form(
        dout, q, k, v, out, lse, sink, scale, visible_keys(q.shape[1], k.shape[1], causal, window),
        dlse, compute=torch.float64, operand=torch.float64, result=torch.float64,
    )  # fmt: skip


class _Group(NamedTuple):
    """One KV head of one batch entry and the query heads that share it."""

    batch: int
    head_k: int
    heads: slice

    def queries(self, x: Tensor) -> Tensor:
        """[group, seqlen_q, hdim] of a query-side tensor."""
        return x[self.batch, :, self.heads].transpose(0, 1)

    def keys(self, x: Tensor) -> Tensor:
        """[seqlen_k, hdim] of a key-side tensor."""
        return x[self.batch, :, self.head_k]

    def rows(self, x: Tensor) -> Tensor:
        """[group, seqlen_q] of a per-row vector."""
        return x[self.batch, self.heads]

    def sinks(
        self, sink: Tensor | None, q: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """[group] of the sink; no sink is a sink of -inf."""
        if sink is None:
            assert q is not None
            return q.new_full((self.heads.stop - self.heads.start,), -torch.inf, dtype=dtype)
        group = sink[self.heads] if sink.dim() == 1 else sink[self.batch, self.heads]
        return group if dtype is None else group.to(dtype)


def _groups(q: Tensor, k: Tensor) -> Iterator[_Group]:
    """One group at a time bounds memory: the scores of all heads at once would not fit."""
    nhead_q, nhead_k = q.shape[2], k.shape[2]
    if nhead_q % nhead_k != 0:
        raise ValueError(
            f"q has {nhead_q} heads and k has {nhead_k}; need a multiple of the KV heads"
        )
    group = nhead_q // nhead_k
    for batch in range(q.shape[0]):
        for head_k in range(nhead_k):
            yield _Group(batch, head_k, slice(head_k * group, (head_k + 1) * group))


def _scores(q: Tensor, k: Tensor, scale: float, mask: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) * scale).masked_fill(~mask.to(q.device), -torch.inf)


def _define_group(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor, scale: float, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """One group's out [group, seqlen_q, hdim] and lse [group, seqlen_q], differentiable."""
    # The limit of an infinite sink: no key keeps any probability. The column is made finite so
    # that autograd meets no inf - inf.
    saturated = (sink == torch.inf)[:, None]
    scores = _scores(q, k, scale, mask).masked_fill(saturated.unsqueeze(-1), -torch.inf)
    column = sink.masked_fill(sink == torch.inf, 0.0)[:, None, None].expand(-1, q.shape[1], 1)
    logits = torch.cat([scores, column], dim=-1)
    shift = logits.detach().amax(-1, keepdim=True)
    shift = torch.where(shift.isfinite(), shift, torch.zeros_like(shift))
    weights = torch.exp(logits - shift)
    total = weights.sum(-1, keepdim=True)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    out = (weights / total)[..., :-1] @ v
    lse = (torch.log(total) + shift).squeeze(-1).masked_fill(empty.squeeze(-1), -torch.inf)
    return out, torch.where(saturated, sink[:, None], lse)


def _probabilities(scores: Tensor, lse: Tensor) -> Tensor:
    """exp(scores - lse), 0 where a row has no key or its sink is +inf."""
    p = torch.exp(scores - lse.unsqueeze(-1))
    return p.masked_fill(lse.isinf().unsqueeze(-1), 0.0)


def _closed_form(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    sink: Tensor | None,
    scale: float,
    mask: Tensor,
    dlse: Tensor | None,
    *,
    compute: torch.dtype,
    operand: torch.dtype,
    result: torch.dtype,
) -> Gradients:
    """`compute` holds S, P, dP, dS and sums; `operand` is the dtype of P and dS as factors."""
    dq, dk, dv = (torch.zeros_like(x, dtype=result) for x in (q, k, v))
    softmax_d = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], dtype=compute)
    d_sink = _zeros_of_sink(sink, q, compute)
    for at in _groups(q, k):
        q_group, dout_group = at.queries(q).to(compute), at.queries(dout).to(compute)
        k_head, v_head = at.keys(k).to(compute), at.keys(v).to(compute)
        lse_group = at.rows(lse).to(compute)
        delta = (dout_group * at.queries(out).to(compute)).sum(-1)
        pull = delta if dlse is None else delta - at.rows(dlse).to(compute)
        p = _probabilities(_scores(q_group, k_head, scale, mask), lse_group)
        ds = p * (dout_group @ v_head.transpose(-1, -2) - pull.unsqueeze(-1))
        # A row that sees no key contributes nothing, whatever its delta holds.
        ds = ds.masked_fill(lse_group.isinf().unsqueeze(-1), 0.0)
        p, ds = p.to(operand).to(compute), ds.to(operand).to(compute)
        at.queries(dq).copy_(scale * (ds @ k_head))
        at.keys(dk).copy_(scale * torch.einsum("gqk,gqd->kd", ds, q_group))
        at.keys(dv).copy_(torch.einsum("gqk,gqd->kd", p, dout_group))
        at.rows(softmax_d).copy_(delta)
        if d_sink is not None:
            sink_group = at.sinks(sink, q, compute).unsqueeze(-1)
            p_sink = torch.exp(sink_group - lse_group)
            p_sink = p_sink.masked_fill((sink_group == torch.inf) & (lse_group == torch.inf), 1.0)
            p_sink = p_sink.masked_fill(lse_group == -torch.inf, 0.0)
            at.sinks(d_sink).sub_((p_sink * pull).sum(-1))
    return Gradients(dq, dk, dv, softmax_d, _sink_shaped(d_sink, sink))


def _zeros_of_sink(sink: Tensor | None, q: Tensor, dtype: torch.dtype) -> Tensor | None:
    """[batch, nhead_q]: the batch is summed at the end, as a gradient of a broadcast sink is."""
    return None if sink is None else q.new_zeros(q.shape[0], q.shape[2], dtype=dtype)


def _sink_shaped(d_sink: Tensor | None, sink: Tensor | None) -> Tensor | None:
    if d_sink is None or sink is None:
        return None
    return d_sink.sum(0) if sink.dim() == 1 else d_sink
