"""Attention backward beyond aiter's interface: any dout, the gradient of lse, d_sink returned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from mha_sink import _C, _call, _tensors

# Arguments that the compiled part calls by aiter's names.
NAMES = {
    "softmax_lse": "lse",
    "softmax_scale": "scale",
    "window_size_left": "window[0]",
    "window_size_right": "window[1]",
}
OPTIONAL = (
    "sink", "dlse", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_q_padded", "cu_seqlens_k_padded",
)  # fmt: skip


class AttentionGradients(NamedTuple):
    """dq, dk and dv like q, k and v; d_sink in the shape and dtype of the sink, None without."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    d_sink: Tensor | None


def attention_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    sink: Tensor | None = None,
    dlse: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    window: Sequence[int] = (-1, -1),
    deterministic: bool = False,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
) -> AttentionGradients:
    """Gradients of attention with a sink for a loss on `out`, and on `lse` where it is used.

    Dense tensors, or packed ones with `cu_seqlens_q` and `cu_seqlens_k`. The formulas are those of
    `mha_sink.mha_bwd` with D replaced by D - dlse (`docs/semantics.md`)::

        dS = P * (dout v^T - (D - dlse))
        d_sink = -sum over rows of exp(sink - lse) * (D - dlse)

    Args:
        dout: gradient of `out`, shape and dtype of out. A last stride other than 1, as of the
            expanded gradient of a sum, costs a copy.
        q: [b, sq, hq, d] or packed [total_q, hq, d], bfloat16 or float16, d at most 256.
        k: [b, sk, hk, d] or [total_k, hk, d], dtype of q; hq is a multiple of hk.
        v: [b, sk, hk, dv] or [total_k, hk, dv], dtype of q.
        out: the forward's output, [b, sq, hq, dv] or [total_q, hq, dv], dtype of q.
        lse: natural-log sum of exponentials, *sink included*, [b, hq, sq] or [hq, total_q],
            float32; see `mha_sink.lse_with_sink`.
        sink: natural-log, already scaled logit, [hq] or [b, hq], float16, bfloat16, float32 or
            float64; b counts sequences in packed tensors.
        dlse: gradient of `lse`, shape of lse, float32, any strides; None: 0.
        scale: factor on q k^T; None: d**-0.5.
        causal: query i sees keys up to i + sk - sq (bottom-right aligned).
        window: (left, right): keys before and after i + sk - sq that are still seen, -1: all.
            A third value, the number of first keys that stay visible to all (StreamingLLM's
            "sink tokens", which are no learnable sink), must be 0.
        deterministic: equal calls give equal bits; else the last bits of dq vary.
        cu_seqlens_q: cumulative lengths, [b + 1], int32, as of `mha_sink.mha_varlen_bwd`.
        cu_seqlens_k: likewise, of the keys.
        max_seqlen_q: the longest sequence's queries, or more; None: total_q, which costs nothing.
        max_seqlen_k: likewise, of the keys.
        cu_seqlens_q_padded: where the sequences start, when that is not `cu_seqlens_q`.
        cu_seqlens_k_padded: likewise, of the keys.

    Raises:
        As `mha_sink.mha_bwd`.
    """
    left, right = _window(window)
    packing = {
        "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
        "cu_seqlens_q_padded": cu_seqlens_q_padded, "cu_seqlens_k_padded": cu_seqlens_k_padded,
    }  # fmt: skip
    tensors = {
        "dout": dout, "q": q, "k": k, "v": v, "out": out, "softmax_lse": lse, "sink": sink,
        "dlse": dlse, **packing,
    }  # fmt: skip
    for name, tensor in tensors.items():
        called = NAMES.get(name, name)
        if tensor is not None:
            _tensors.describe("attention_backward", called, tensor)
        elif name not in OPTIONAL:
            raise _C.InvalidArgument(f"{called}: None given, a tensor needed")
    scalars = _call.Scalars(
        softmax_scale=_default_scale(q) if scale is None else scale,
        is_causal=causal,
        window_size_left=left,
        window_size_right=right,
        deterministic=deterministic,
    )
    if cu_seqlens_q is not None:
        scalars["max_seqlen_q"] = _rows(q) if max_seqlen_q is None else max_seqlen_q
        scalars["max_seqlen_k"] = _rows(k) if max_seqlen_k is None else max_seqlen_k
    else:
        lengths = {**packing, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
        for name, value in lengths.items():
            if value is not None:
                raise _C.InvalidArgument(f"cu_seqlens_q: None given with {name}, a tensor needed")

    tensors["dout"] = _with_unit_stride(dout)
    tensors["dlse"] = None if dlse is None else _with_unit_stride(dlse)
    d_sink = None
    if sink is not None:
        # Zeros in the shape that is wanted: the sum over the batch is made by the kernel.
        d_sink = torch.zeros(sink.shape, dtype=torch.float32, device=sink.device)
    with _renamed():
        written = _call.backward("attention_backward", {**tensors, "d_sink": d_sink}, scalars)
    if d_sink is not None and sink is not None:
        d_sink = d_sink.to(sink.dtype)
    return AttentionGradients(written.dq, written.dk, written.dv, d_sink)


def _default_scale(q: Tensor) -> float:
    return float(q.shape[-1]) ** -0.5 if q.dim() and q.shape[-1] else 1.0


def _window(window: Sequence[int]) -> tuple[int, int]:
    if len(window) not in (2, 3):
        raise _C.InvalidArgument(f"window: {tuple(window)} given, (left, right) needed")
    if len(window) == 3 and window[2] != 0:
        raise _C.Unsupported(
            f"window: sink_size {window[2]} (first keys that stay visible outside the window) is "
            "not supported; supported: 0. A learnable sink is the argument sink"
        )
    return window[0], window[1]


def _rows(packed: Tensor) -> int:
    return packed.shape[0] if packed.dim() else 0


def _with_unit_stride(x: Tensor) -> Tensor:
    return x if x.dim() == 0 or x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()


@contextmanager
def _renamed() -> Iterator[None]:
    try:
        yield
    except (_C.InvalidArgument, _C.Unsupported) as error:
        message = re.sub("|".join(NAMES), lambda found: NAMES[found.group()], str(error))
        raise type(error)(message) from error
