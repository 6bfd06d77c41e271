"""Dense attention backward with a learnable sink, called as aiter's `mha_bwd`."""

from __future__ import annotations

import torch
from torch import Tensor

from mha_sink import _C, _devices, _tensors


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
        q: [b, sq, hq, d], bfloat16 or float16.
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
        deterministic: True is unsupported.
        dq: written in place, shape and dtype of q; None: allocated.
        dk: written in place, shape and dtype of k; None: allocated.
        dv: written in place, shape and dtype of v; None: allocated.
        dbias: None; unsupported.
        bias: None; unsupported.
        alibi_slopes: None; unsupported.
        rng_state: ignored, since it only matters with dropout; aiter's autograd always passes it.
        gen: ignored likewise.
        sink: natural-log, already scaled logit, [b, hq], float32, contiguous; +-inf is legal. Only
            `d_sink` depends on it: dq, dk and dv see the sink through `softmax_lse`.
        d_sink: [hq], float32, contiguous, *added to*: zero it to get the gradient alone. None: not
            computed.

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
    call = _C.MhaBwdCall()
    tensors = {
        "dout": dout, "q": q, "k": k, "v": v, "out": out, "softmax_lse": softmax_lse,
        "dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "bias": bias,
        "alibi_slopes": alibi_slopes, "sink": sink, "d_sink": d_sink,
    }  # fmt: skip
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(call, name, _tensors.describe("mha_bwd", name, tensor))
    call.dropout_p = dropout_p
    call.softmax_scale = softmax_scale
    call.is_causal = is_causal
    call.window_size_left = window_size_left
    call.window_size_right = window_size_right
    call.deterministic = deterministic
    _C.check_mha_bwd(call)

    dq = _tensors.empty_like(q) if dq is None else dq
    dk = _tensors.empty_like(k) if dk is None else dk
    dv = _tensors.empty_like(v) if dv is None else dv
    softmax_d = torch.empty(softmax_lse.shape, dtype=torch.float32, device=q.device)
    for name, tensor in {"dq": dq, "dk": dk, "dv": dv, "softmax_d": softmax_d}.items():
        setattr(call, name, _tensors.describe("mha_bwd", name, tensor))

    if q.device.type == "cpu":
        _C.set_thread_count(torch.get_num_threads())
    with _devices.explained(q.device):
        _C.mha_bwd(call, _tensors.Workspace(q.device), _tensors.current_stream(q.device))
    _tensors.mark_written(dq, dk, dv, d_sink)
    return dq, dk, dv, softmax_d
