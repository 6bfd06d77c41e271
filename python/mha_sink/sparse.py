"""DeepSeek-V4 sparse MLA with a learnable sink: backward, matching forward, autograd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mha_sink import _C, _devices, _tensors

HEAD_DIM = 512
DEFAULT_SCALE = HEAD_DIM**-0.5


@dataclass(frozen=True, eq=False)
class SparseMlaPlan:
    """What forward and backward derive from the indices alone; made by `sparse_mla_plan`.

    Attributes:
        tokens: T of the indices.
        topk: TOPK of the indices.
        num_kv: rows of kv.
        data: uint8, on the device of the indices: the slots of each token without the empty ones,
            and for each row of kv the slots that hold it.
    """

    tokens: int
    topk: int
    num_kv: int
    data: Tensor


def sparse_mla_plan(topk_indices: Tensor, num_kv: int) -> SparseMlaPlan:
    """Inverts the indices once, for all calls that share them.

    A model whose layers attend to the same rows makes one plan and passes it, as `plan=`, to
    `sparse_mla`, `sparse_mla_fwd_dsv4` and `sparse_mla_bwd_dsv4`. The results are the same bit by
    bit; the sort of T * TOPK indices that each call would do is saved. The indices must not change
    between the plan and its use.

    Args:
        topk_indices: [T, TOPK], int32, contiguous; each is a row of kv or -1, an empty slot.
        num_kv: rows of kv.

    Raises:
        TypeError, mha_sink.InvalidArgument, mha_sink.Unsupported: as `sparse_mla_bwd_dsv4`.
    """
    indices = _tensors.describe("sparse_mla_plan", "topk_indices", topk_indices)
    # Sizes of another rank reach the one check of the indices, which names what is wrong.
    tokens, topk = topk_indices.shape if topk_indices.dim() == 2 else (0, 0)
    data = torch.empty(
        _C.sparse_mla_plan_bytes(tokens, topk, num_kv), dtype=torch.uint8,
        device=topk_indices.device,
    )  # fmt: skip
    described = _tensors.describe("sparse_mla_plan", "plan", data)
    with ready(topk_indices.device) as stream:
        _C.sparse_mla_plan(indices, num_kv, described, stream)
    _tensors.mark_written(data)
    return SparseMlaPlan(tokens, topk, num_kv, data)


def sparse_mla_fwd_dsv4(
    q: Tensor,
    kv: Tensor,
    topk_indices: Tensor,
    attn_sink: Tensor | None = None,
    scale: float | None = None,
    *,
    plan: SparseMlaPlan | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Attention of each token over the rows of kv that its indices name, sink included.

    With c = topk_indices[t, r] the row in slot r of token t, per head h::

        S[r]   = scale * q[t, h] . kv[c]              (no term for an empty slot)
        lse    = log(exp(attn_sink[h]) + sum over r of exp(S[r]))
        o[t,h] = sum over r of exp(S[r] - lse) * kv[c]

    A row in several slots counts as often. A token without slots has o = 0 and lse = the sink, or
    -inf without one. `docs/semantics.md` gives the edge cases.

    Args:
        q: [T, H, 512], bfloat16 or float16, H at most 128.
        kv: [num_kv, 512], dtype of q, num_kv at least T; each row is key and value.
        topk_indices: [T, TOPK], int32; rows of kv, -1 for an empty slot.
        attn_sink: natural-log, already scaled logits, [H], float32; +-inf is legal; None: no sink.
        scale: factor on q . kv; None: 512 ** -0.5.
        plan: of equal indices, from `sparse_mla_plan`; None: made and dropped.

    All tensors are contiguous and on one device. Devices, and what is raised, are as in
    `sparse_mla_bwd_dsv4`.

    Returns:
        o, like q, and lse, [T, H], float32, natural log, sink-inclusive: what
        `sparse_mla_bwd_dsv4` takes.
    """
    function = "sparse_mla_fwd_dsv4"
    call = _C.SparseMlaFwdCall()
    tensors = {"q": q, "kv": kv, "topk_indices": topk_indices, "attn_sink": attn_sink}
    describe_into(function, call, tensors)
    call.scale = DEFAULT_SCALE if scale is None else scale
    _C.check_sparse_mla_fwd(call)
    call.plan = _described_plan(function, plan, topk_indices, kv)

    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    describe_into(function, call, {"o": o, "lse": lse})
    with ready(q.device) as stream:
        _C.sparse_mla_fwd(call, _tensors.Workspace(q.device), stream)
    _tensors.mark_written(o, lse)
    return o, lse


def sparse_mla_bwd_dsv4(
    q: Tensor,
    kv: Tensor,
    do: Tensor,
    o: Tensor,
    lse: Tensor,
    topk_indices: Tensor,
    attn_sink: Tensor | None = None,
    scale: float | None = None,
    R_CHUNK: int | None = None,
    *,
    plan: SparseMlaPlan | None = None,
    dlse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Gradients of DeepSeek-V4 sparse MLA with a learnable sink, called as aiter's function.

    With c = topk_indices[t, r] the row in slot r of token t, per head h::

        S  = scale * q[t, h] . kv[c]           P  = exp(S - lse[t, h])
        dP = do[t, h] . kv[c]                  dS = P * (dP - delta + dlse[t, h])
        dq[t, h] = scale * sum over r of dS * kv[c]
        dkv[c]  += sum over t, h of scale * dS * q[t, h] + P * do[t, h]
        d_sink[h] = sum over t of exp(attn_sink[h] - lse[t, h]) * (dlse[t, h] - delta)

    with delta = do[t, h] . o[t, h] and no term for an empty slot. These are the gradients of
    attention with the sink when `o` and `lse` come from `sparse_mla_fwd_dsv4`; from any others they
    are the values of the formulas. Sums are in float32 and in a fixed order: the results repeat bit
    by bit. `docs/semantics.md` gives the derivation and the edge cases.

    Args:
        q: [T, H, 512], bfloat16 or float16, H at most 128.
        kv: [num_kv, 512], dtype of q, num_kv at least T; each row is key and value.
        do: gradient of `o`, shape and dtype of q.
        o: the forward's output, shape and dtype of q.
        lse: natural-log sum of exponentials, sink included, [T, H]; any float dtype, taken as
            float32.
        topk_indices: [T, TOPK], int32; rows of kv, -1 for an empty slot, the same row as often as
            it is to count.
        attn_sink: natural-log, already scaled logits, [H], float32; +-inf is legal; None: no sink.
        scale: factor on q . kv; None: 512 ** -0.5.
        R_CHUNK: slots that go through the temporary buffers at a time, which shrink with it: a
            multiple of 32 that divides TOPK. None: all slots, TOPK may be any number.
        plan: of equal indices, from `sparse_mla_plan`; None: made and dropped.
        dlse: gradient of `lse`, [T, H], float32; None: zero.

    All tensors are contiguous and on one device. CPU tensors run the gfx950 machine code in the
    emulator, on `torch.get_num_threads()` threads unless MHA_SINK_THREADS says otherwise. GPU
    tensors, of a torch for ROCm, run on the device's current stream; the call does not wait. There,
    an index that is no row of kv counts as an empty slot, unless MHA_SINK_CHECK=1 in the
    environment has every call check them.

    Returns:
        (dq, dkv, d_sink): like q, like kv, and [H] in float32, None without a sink.

    Raises:
        TypeError: an argument is no torch tensor, or no number, where one is needed.
        mha_sink.InvalidArgument: an argument that no version could accept. Says which one, what
            was given and what is needed; a ValueError too.
        mha_sink.Unsupported: a valid request that this version does not serve; a ValueError too.
        mha_sink.Error: a kernel could not be loaded or launched; a RuntimeError too.

        Arguments are checked before anything is launched or written.
    """
    if isinstance(lse, Tensor) and lse.is_floating_point():
        lse = lse.detach().float().contiguous()
    call, outputs = prepare_bwd(
        q, kv, do, o, lse, topk_indices, attn_sink, scale, R_CHUNK, plan=plan, dlse=dlse
    )
    with ready(q.device) as stream:
        _C.sparse_mla_bwd(call, _tensors.Workspace(q.device), stream)
    _tensors.mark_written(*outputs)
    return outputs


def prepare_bwd(
    q: Tensor,
    kv: Tensor,
    do: Tensor,
    o: Tensor,
    lse: Tensor,
    topk_indices: Tensor,
    attn_sink: Tensor | None,
    scale: float | None,
    r_chunk: int | None,
    *,
    plan: SparseMlaPlan | None = None,
    dlse: Tensor | None = None,
) -> tuple[_C.SparseMlaBwdCall, tuple[Tensor, Tensor, Tensor | None]]:
    """The checked call of a backward and the outputs allocated for it.

    The tensors must outlive the call. Arguments and errors are those of `sparse_mla_bwd_dsv4`.
    """
    function = "sparse_mla_bwd_dsv4"
    call = _C.SparseMlaBwdCall()
    tensors = {
        "q": q, "kv": kv, "do": do, "o": o, "lse": lse, "topk_indices": topk_indices,
        "attn_sink": attn_sink, "dlse": dlse,
    }  # fmt: skip
    describe_into(function, call, tensors)
    call.scale = DEFAULT_SCALE if scale is None else scale
    call.r_chunk = r_chunk
    _C.check_sparse_mla_bwd(call)
    call.plan = _described_plan(function, plan, topk_indices, kv)

    dq, dkv = torch.empty_like(q), torch.empty_like(kv)
    d_sink = None if attn_sink is None else torch.empty_like(attn_sink)
    describe_into(function, call, {"dq": dq, "dkv": dkv, "d_sink": d_sink})
    return call, (dq, dkv, d_sink)


@overload
def sparse_mla(
    q: Tensor, kv: Tensor, topk_indices: Tensor, attn_sink: Tensor | None = None,
    scale: float | None = None, return_lse: Literal[False] = False, *,
    plan: SparseMlaPlan | None = None,
) -> Tensor: ...  # fmt: skip


@overload
def sparse_mla(
    q: Tensor, kv: Tensor, topk_indices: Tensor, attn_sink: Tensor | None = None,
    scale: float | None = None, *, return_lse: Literal[True], plan: SparseMlaPlan | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def sparse_mla(
    q: Tensor,
    kv: Tensor,
    topk_indices: Tensor,
    attn_sink: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    *,
    plan: SparseMlaPlan | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """`sparse_mla_fwd_dsv4`, differentiable in q, kv and attn_sink, and through lse.

    Args:
        q: as in `sparse_mla_fwd_dsv4`, like kv, topk_indices and scale.
        kv: likewise.
        topk_indices: likewise.
        attn_sink: [H], any float dtype; its gradient has that dtype. None: no sink.
        scale: likewise.
        return_lse: also return lse, [T, H], float32.
        plan: of equal indices, from `sparse_mla_plan`. None: one is made where gradients are
            needed, for forward and backward together.

    Returns:
        o, [T, H, 512], dtype of q; with `return_lse` (o, lse).
    """
    if isinstance(attn_sink, Tensor) and attn_sink.is_floating_point():
        attn_sink = attn_sink.float().contiguous()
    o, lse = _SparseMla.apply(q, kv, topk_indices, attn_sink, scale, plan)  # type: ignore[no-untyped-call]
    return (o, lse) if return_lse else o


class _SparseMla(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        kv: Tensor,
        topk_indices: Tensor,
        attn_sink: Tensor | None,
        scale: float | None,
        plan: SparseMlaPlan | None,
    ) -> tuple[Tensor, Tensor]:
        if plan is None and any(ctx.needs_input_grad):
            plan = sparse_mla_plan(topk_indices, kv.shape[0])
        o, lse = sparse_mla_fwd_dsv4(q, kv, topk_indices, attn_sink, scale, plan=plan)
        ctx.save_for_backward(q, kv, o, lse, topk_indices, attn_sink)
        ctx.scale, ctx.plan = scale, plan
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, kv, o, lse, topk_indices, attn_sink = ctx.saved_tensors
        do = torch.zeros_like(o) if do is None else do.contiguous()
        dlse = None if dlse is None else dlse.contiguous()
        dq, dkv, d_sink = sparse_mla_bwd_dsv4(
            q, kv, do, o, lse, topk_indices, attn_sink, ctx.scale, plan=ctx.plan, dlse=dlse
        )
        return dq, dkv, None, d_sink, None, None


def describe_into(
    function: str,
    call: _C.SparseMlaFwdCall | _C.SparseMlaBwdCall,
    tensors: Mapping[str, Tensor | None],
) -> None:
    """Sets the attributes of a call to descriptions of the tensors that are not None."""
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(call, name, _tensors.describe(function, name, tensor))


def _described_plan(
    function: str, plan: SparseMlaPlan | None, topk_indices: Tensor, kv: Tensor
) -> _C.Tensor | None:
    """Refuses a plan of other sizes; the compiled part sees its bytes alone."""
    if plan is None:
        return None
    if not isinstance(plan, SparseMlaPlan):
        raise TypeError(
            f"{function}: plan is a {type(plan).__name__}; need a SparseMlaPlan or None"
        )
    needed = (*topk_indices.shape, *kv.shape[:1])
    if (plan.tokens, plan.topk, plan.num_kv) != needed:
        raise _C.InvalidArgument(
            f"plan: made for T, TOPK, num_kv = {plan.tokens}, {plan.topk}, {plan.num_kv}; "
            f"topk_indices and kv need one for {', '.join(map(str, needed))}"
        )
    return _tensors.describe(function, "plan", plan.data)


@contextmanager
def ready(device: torch.device) -> Iterator[int]:
    """The raw stream to launch on; within it, an Error says when the GPU is another one."""
    if device.type == "cpu":
        _C.set_thread_count(torch.get_num_threads())
    with _devices.explained(device):
        yield _tensors.current_stream(device)
