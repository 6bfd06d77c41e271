"""The references for packed sequences: the dense ones, sequence by sequence.

Rows that belong to no sequence are not read, and are 0 in every result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor

from mha_sink.reference import dense
from mha_sink.reference.dense import UNBOUNDED, Forward, Gradients, Mask, Window


class Sequence(NamedTuple):
    """Where one sequence lies: `number` among the sequences, its rows of q and of k."""

    number: int
    queries: slice
    keys: slice


class Packing(NamedTuple):
    """Lengths of packed sequences, as `mha_sink.mha_varlen_bwd` takes them.

    Attributes:
        cu_seqlens_q: [batch + 1], int32: cumulative lengths.
        cu_seqlens_k: likewise.
        cu_seqlens_q_padded: [batch + 1], int32: where sequences start, None: at `cu_seqlens_q`.
        cu_seqlens_k_padded: likewise.
    """

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    cu_seqlens_q_padded: Tensor | None = None
    cu_seqlens_k_padded: Tensor | None = None

    def sequences(self) -> Iterator[Sequence]:
        """Every sequence in order."""
        queries = _rows(self.cu_seqlens_q, self.cu_seqlens_q_padded)
        keys = _rows(self.cu_seqlens_k, self.cu_seqlens_k_padded)
        for number, (of_q, of_k) in enumerate(zip(queries, keys, strict=True)):
            yield Sequence(number, of_q, of_k)


def packed_definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
) -> Forward:
    """`definition` of every sequence."""
    return _forward(dense.definition, q, k, v, packing, sink, _mask(scale, causal, window))


def packed_definition_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
    dlse: Tensor | None = None,
) -> Gradients:
    """`definition_bwd` of every sequence; a shared sink gets the sum over them."""
    mask = _mask(scale, causal, window)

    def backward(at: Sequence) -> Gradients:
        return dense.definition_bwd(
            _one(dout, at.queries), _one(q, at.queries), _one(k, at.keys), _one(v, at.keys),
            _sink(sink, at), dlse=_row(dlse, at), **mask,
        )  # fmt: skip

    return _backward(backward, q, k, v, packing, sink)


def packed_mixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
) -> Forward:
    """`mixed` of every sequence."""
    return _forward(dense.mixed, q, k, v, packing, sink, _mask(scale, causal, window))


def packed_mixed_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    packing: Packing,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
    dlse: Tensor | None = None,
) -> Gradients:
    """`mixed_bwd` of every sequence; a shared sink gets the sum over them."""
    mask = _mask(scale, causal, window)
    return _from_lse(dense.mixed_bwd, dout, q, k, v, out, lse, packing, sink, mask, dlse)


def packed_formula_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    packing: Packing,
    sink: Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: Window = UNBOUNDED,
    dlse: Tensor | None = None,
) -> Gradients:
    """`formula_bwd` of every sequence; a shared sink gets the sum over them."""
    mask = _mask(scale, causal, window)
    return _from_lse(dense.formula_bwd, dout, q, k, v, out, lse, packing, sink, mask, dlse)


def _from_lse(
    backward: Callable[..., Gradients],
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    packing: Packing,
    sink: Tensor | None,
    mask: Mask,
    dlse: Tensor | None,
) -> Gradients:
    def one(at: Sequence) -> Gradients:
        return backward(
            _one(dout, at.queries), _one(q, at.queries), _one(k, at.keys), _one(v, at.keys),
            _one(out, at.queries), _row(lse, at), _sink(sink, at), dlse=_row(dlse, at), **mask,
        )  # fmt: skip

    return _backward(one, q, k, v, packing, sink)


def _forward(
    forward: Callable[..., Forward],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing,
    sink: Tensor | None,
    mask: Mask,
) -> Forward:
    result: Forward | None = None
    for at in packing.sequences():
        out, lse = forward(
            _one(q, at.queries), _one(k, at.keys), _one(v, at.keys), _sink(sink, at), **mask
        )
        if result is None:
            result = Forward(
                out.new_zeros(*q.shape[:2], v.shape[2]), lse.new_zeros(q.shape[1], q.shape[0])
            )
        result.out[at.queries] = out[0]
        result.lse[:, at.queries] = lse[0]
    assert result is not None
    return result


def _backward(
    backward: Callable[[Sequence], Gradients],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing,
    sink: Tensor | None,
) -> Gradients:
    result: Gradients | None = None
    for at in packing.sequences():
        one = backward(at)
        if result is None:
            result = Gradients(
                one.dq.new_zeros(q.shape), one.dk.new_zeros(k.shape), one.dv.new_zeros(v.shape),
                one.softmax_d.new_zeros(q.shape[1], q.shape[0]),
                None if sink is None else one.softmax_d.new_zeros(sink.shape),
            )  # fmt: skip
        result.dq[at.queries] = one.dq[0]
        result.dk[at.keys] = one.dk[0]
        result.dv[at.keys] = one.dv[0]
        result.softmax_d[:, at.queries] = one.softmax_d[0]
        if result.d_sink is not None and one.d_sink is not None:
            of_sequence = result.d_sink if result.d_sink.dim() == 1 else result.d_sink[at.number]
            of_sequence += one.d_sink
    assert result is not None
    return result


def _mask(scale: float, causal: bool, window: Window) -> Mask:
    return {"scale": scale, "causal": causal, "window": window}


def _rows(cu_seqlens: Tensor, padded: Tensor | None) -> list[slice]:
    """The rows of each sequence: it starts where the padded array says and has its own length."""
    starts = (cu_seqlens if padded is None else padded).tolist()[:-1]
    lengths = cu_seqlens.diff().tolist()
    return [slice(start, start + n) for start, n in zip(starts, lengths, strict=True)]


def _one(x: Tensor, rows: slice) -> Tensor:
    """A sequence as a batch of one."""
    return x[rows].unsqueeze(0)


def _row(x: Tensor | None, at: Sequence) -> Tensor | None:
    return None if x is None else x[:, at.queries].unsqueeze(0)


def _sink(sink: Tensor | None, at: Sequence) -> Tensor | None:
    """[nhead_q]: the shared sink, or the sequence's."""
    return sink if sink is None or sink.dim() == 1 else sink[at.number]
