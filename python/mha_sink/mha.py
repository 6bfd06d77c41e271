"""Attention backward with a learnable sink, called as aiter's `mha_bwd` and `mha_varlen_bwd`."""

from __future__ import annotations

import torch
from torch import Tensor

from mha_sink import _C, _call


def mha_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dropout_p: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    deterministic: bool,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    dbias: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    rng_state: Tensor | None = None,
    gen: torch.Generator | None = None,
    sink: Tensor | None = None,
    d_sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Gradients of attention whose softmax denominator holds a learnable sink.

    Names, order, defaults and the result are those of `aiter.mha_bwd`. With b the batch, sq and sk
    the query and key lengths, hq and hk the query and KV heads, d the head dim, per (b, hq)::

        S  = softmax_scale * q k^T          (-inf where masked)
        P  = exp(S - softmax_lse)           D = rowsum(dout * out)
        dS = P * (dout v^T - D)
        dq = softmax_scale * dS k           dk = softmax_scale * dS^T q     dv = P^T dout
        d_sink[h] += -sum over b, rows of exp(sink - softmax_lse) * D

    dk and dv of a KV head sum over the query heads that share it, in float32. These are the
    gradients of the sink softmax when `softmax_lse` includes the sink: see
    `mha_sink.lse_with_sink`. From any other lse they are the values of the formulas above.
    `docs/semantics.md` gives the derivation and the edge cases.

    Args:
        dout: gradient of `out`, [b, sq, hq, dv], dtype of q.
        q: [b, sq, hq, d], bfloat16 or float16. Head dims d and dv are at most 256; those that are
            no multiple of 8 cost a copy of each tensor.
        k: [b, sk, hk, d], dtype of q; hq is a multiple of hk.
        v: [b, sk, hk, dv], dtype of q.
        out: the forward's output, [b, sq, hq, dv], dtype of q.
        softmax_lse: natural-log sum of exponentials, sink included, [b, hq, sq], float32.
        dropout_p: 0; dropout is unsupported.
        softmax_scale: factor on q k^T.
        is_causal: query i sees keys up to i + sk - sq (bottom-right aligned); this replaces
            `window_size_right` by 0.
        window_size_left: keys before i + sk - sq that are still seen, -1: all.
        window_size_right: keys after i + sk - sq that are still seen, -1: all.
        deterministic: equal calls give equal bits, d_sink included; else the last bits of dq vary.
        dq: written in place, shape and dtype of q; None: allocated.
        dk: written in place, shape and dtype of k; None: allocated.
        dv: written in place, shape and dtype of v; None: allocated.
        dbias: None; unsupported.
        bias: None; unsupported.
        alibi_slopes: None; unsupported.
        rng_state: ignored, since it only matters with dropout; aiter's autograd always passes it.
        gen: ignored likewise.
        sink: natural-log, already scaled logit, [hq] or [b, hq], float16, bfloat16, float32 or
            float64; +-inf is legal. Only `d_sink` depends on it: dq, dk and dv see the sink
            through `softmax_lse`.
        d_sink: [hq], float32, contiguous, *added to*: zero it to get the gradient alone. Or
            [b, hq], without the sum over b. None: not computed.

    The last stride of every tensor is 1; the other strides are free, and may be 0 for inputs. All
    tensors live on one device. CPU tensors run the gfx950 machine code in the emulator, on
    `torch.get_num_threads()` threads unless MHA_SINK_THREADS says otherwise. GPU tensors, of a
    torch for ROCm, run on the device's current stream; the call does not wait. Inside a graph
    capture the kernels must be loaded already: see `mha_sink.warmup`.

    Returns:
        (dq, dk, dv, softmax_d), softmax_d being D, [b, hq, sq], float32.

    Raises:
        TypeError: an argument is no torch tensor, or no number, where one is needed.
        mha_sink.InvalidArgument: an argument that no version could accept. Says which one, what
            was given and what is needed; a ValueError too.
        mha_sink.Unsupported: a valid request that this version does not serve; a ValueError too.
        mha_sink.Error: a kernel could not be loaded or launched; a RuntimeError too.

        Arguments are checked before anything is launched or written.
    """
    tensors = {
        "dout": dout, "q": q, "k": k, "v": v, "out": out, "softmax_lse": softmax_lse,
        "dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "bias": bias,
        "alibi_slopes": alibi_slopes, "sink": sink, "d_sink": d_sink,
    }  # fmt: skip
    scalars = _call.Scalars(
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        is_causal=is_causal,
        window_size_left=window_size_left,
        window_size_right=window_size_right,
        deterministic=deterministic,
    )
    return _call.backward("mha_bwd", tensors, scalars)


def mha_varlen_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    deterministic: bool,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    rng_state: Tensor | None = None,
    gen: torch.Generator | None = None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
    sink: Tensor | None = None,
    d_sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""`mha_bwd` of b sequences that lie one after another, without padding between them or with.

    Names, order and defaults are those of `aiter.mha_varlen_bwd`. Sequence i has
    `cu_seqlens_q[i + 1] - cu_seqlens_q[i]` queries, and keys likewise; its first row is
    `cu_seqlens_q[i]`, or `cu_seqlens_q_padded[i]` where that is given. Any length may be 0. The
    formulas, the mask included, are those of `mha_bwd` for each sequence by itself.

    Args:
        dout: gradient of `out`, [total_q, hq, dv], dtype of q.
        q: [total_q, hq, d], bfloat16 or float16; total_q may exceed what the sequences take.
        k: [total_k, hk, d], dtype of q; hq is a multiple of hk.
        v: [total_k, hk, dv], dtype of q.
        out: the forward's output, [total_q, hq, dv], dtype of q.
        softmax_lse: natural-log sum of exponentials, sink included, [hq, total_q], float32.
        cu_seqlens_q: cumulative lengths, [b + 1], int32, contiguous, on the device of q; starts at
            0, never falls, ends at total_q or before.
        cu_seqlens_k: likewise, of the keys.
        max_seqlen_q: the longest sequence's queries, or more.
        max_seqlen_k: the longest sequence's keys, or more.
        dropout_p: 0; dropout is unsupported.
        softmax_scale: factor on q k^T.
        zero_tensors: accepted and ignored: every element of the results is written anyway.
        is_causal: as of `mha_bwd`, in each sequence by its own lengths.
        window_size_left: likewise.
        window_size_right: likewise.
        deterministic: as of `mha_bwd`.
        dq: written in place, shape and dtype of q; None: allocated.
        dk: written in place, shape and dtype of k; None: allocated.
        dv: written in place, shape and dtype of v; None: allocated.
        alibi_slopes: None; unsupported.
        rng_state: ignored.
        gen: ignored.
        cu_seqlens_q_padded: where the sequences start, when that is not `cu_seqlens_q`: like it,
            with differences that are at least as large.
        cu_seqlens_k_padded: likewise, of the keys; each may be given without the other.
        sink: [hq] or [b, hq], as of `mha_bwd`; b counts sequences.
        d_sink: [hq] or [b, hq], float32, contiguous, *added to*.

    Rows that belong to no sequence, between padded ones or behind the last, are not read and come
    out as 0 in dq, dk, dv and softmax_d.

    The contents of the lengths are checked when they are CPU tensors. On a GPU that would wait for
    the device, so it is done only with MHA_SINK_CHECK=1 in the environment, and never inside a
    graph capture. Wrong lengths that go unchecked may give wrong numbers, but touch no memory
    outside the tensors.

    Returns:
        (dq, dk, dv, softmax_d), softmax_d being D, [hq, total_q], float32. (aiter allocates
        [b, hq, total_q] and writes the first [hq, total_q].)

    Raises:
        As `mha_bwd`.
    """
    if cu_seqlens_q is None:  # which would make the call a dense one
        raise _C.InvalidArgument("cu_seqlens_q: None given, a tensor needed")
    tensors = {
        "dout": dout, "q": q, "k": k, "v": v, "out": out, "softmax_lse": softmax_lse,
        "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
        "cu_seqlens_q_padded": cu_seqlens_q_padded, "cu_seqlens_k_padded": cu_seqlens_k_padded,
        "dq": dq, "dk": dk, "dv": dv, "alibi_slopes": alibi_slopes,
        "sink": sink, "d_sink": d_sink,
    }  # fmt: skip
    scalars = _call.Scalars(
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        is_causal=is_causal,
        window_size_left=window_size_left,
        window_size_right=window_size_right,
        deterministic=deterministic,
    )
    return _call.backward("mha_varlen_bwd", tensors, scalars)
