"""Seeded inputs of a case, memory layouts, and buffers that notice stray reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_sink import reference
from mha_sink.reference import Packing
from mha_sink.testing.cases import Case

# All bits set is a NaN in every float dtype: what is read from a guard or a hole, or never written,
# shows in the result.
POISON = 0xFF
GUARD_BYTES = 512
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class GuardedTensor:
    """A strided tensor inside a poisoned block; the bytes that are not its elements are guarded.

    Attributes:
        view: the tensor, poisoned until it is written.
    """

    def __init__(
        self, name: str, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
    ) -> None:
        self.name = name
        guard = GUARD_BYTES // dtype.itemsize
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        extent = 0 if 0 in shape else extent
        size = extent + 2 * guard
        self._block = torch.full((size * dtype.itemsize,), POISON, dtype=torch.uint8)
        self.view = self._block.view(dtype).as_strided(shape, strides, guard)
        self._elements = torch.zeros(size, dtype=torch.bool)
        if extent:
            self._elements.as_strided(shape, strides, guard).fill_(True)

    @classmethod
    def of(cls, name: str, x: Tensor, strides: Sequence[int] | None = None) -> GuardedTensor:
        """A guarded copy of `x`, with its strides unless others are given."""
        guarded = cls(name, x.shape, x.stride() if strides is None else strides, x.dtype)
        guarded.view.copy_(x)
        return guarded

    def check(self) -> None:
        """Raises AssertionError when a byte outside the tensor's elements was written."""
        bits = self._block.view(_BITS[self.view.element_size()])
        changed = (
            (bits != bits.new_tensor(-1 if bits.dtype.is_signed else POISON)) & ~self._elements
        ).nonzero()
        if len(changed):
            first = changed[0].item() - GUARD_BYTES // self.view.element_size()
            raise AssertionError(
                f"{self.name}: {len(changed)} elements outside the tensor were written, the first "
                f"{first} elements from its start (shape {list(self.view.shape)}, strides "
                f"{list(self.view.stride())})"
            )


Strides = Callable[[int, int, int, int], tuple[int, int, int, int]]

# Strides of a [batch, seqlen, nhead, hdim] tensor, by layout; hdim stays contiguous. A packed
# [total, nhead, hdim] tensor has those of its one "batch entry".
LAYOUTS: dict[str, Strides] = {
    "bshd": lambda b, s, h, d: (s * h * d, h * d, d, 1),
    "bhsd": lambda b, s, h, d: (s * h * d, d, s * d, 1),
    "sbhd": lambda b, s, h, d: (h * d, b * h * d, d, 1),
    # A slice of a larger tensor in every dimension: holes between heads, rows and batches.
    "sliced": lambda b, s, h, d: ((s + 3) * (h + 2) * (d + 8), (h + 2) * (d + 8), d + 8, 1),
    # One of q, k and v, or of k and v, in a [batch, seqlen, 3 or 2, nhead, hdim] tensor.
    "qkv": lambda b, s, h, d: (s * 3 * h * d, 3 * h * d, d, 1),
    "kv": lambda b, s, h, d: (s * 2 * h * d, 2 * h * d, d, 1),
    # Rows that start at odd elements: no load wider than an element is aligned.
    "odd": lambda b, s, h, d: (s * (h * (d + 1) + 2) + 5, h * (d + 1) + 2, d + 1, 1),
}


def layout_strides(layout: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense or packed tensor by a name in `LAYOUTS`."""
    dense = tuple(shape) if len(shape) == 4 else (1, *shape)
    return LAYOUTS[layout](*dense)[-len(shape) :]


@dataclass(frozen=True)
class Inputs:
    """What a backward call takes. `out` and `lse` come from `reference.mixed`, sink included.

    Attributes:
        packing: the lengths of a packed case, whose tensors are [total, nhead, hdim] and whose lse
            is [nhead_q, total_q]; None: dense.
    """

    case: Case
    dout: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    sink: Tensor | None
    packing: Packing | None = None


def make_inputs(case: Case, seed: int = 0) -> Inputs:
    """Normally distributed q, k, v, dout of a case; the sink of each head set apart from its lse.

    The sink [batch, nhead_q], float32, is the head's mean float64 sink-free lse plus one of
    `case.sink_offsets`. Rows that belong to no sequence are NaN in every input.
    """
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, case.dtype)
    leading = () if case.packed else (case.batch,)

    def normal(seqlen: int, nhead: int, hdim: int) -> Tensor:
        return torch.randn(*leading, seqlen, nhead, hdim, generator=generator).to(dtype)

    hdim_v = case.hdim if case.hdim_v is None else case.hdim_v
    q = normal(case.seqlen_q, case.nhead_q, case.hdim)
    k = normal(case.seqlen_k, case.nhead_k, case.hdim)
    v = normal(case.seqlen_k, case.nhead_k, hdim_v)
    dout = normal(case.seqlen_q, case.nhead_q, hdim_v)
    if case.packed:
        return _packed_inputs(case, dout, q, k, v)
    sink = None
    if case.sink_offsets:
        sink = spread_sinks(reference.definition(q, k, v, **case.mask).lse, case.sink_offsets)
    out, lse = reference.mixed(q, k, v, sink, **case.mask)
    return Inputs(case, dout, q, k, v, out, lse, sink)


def _packed_inputs(case: Case, dout: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    packing = make_packing(case)
    sink = None
    if case.sink_offsets:
        lse = reference.packed_definition(q, k, v, packing, **case.mask).lse
        by_sequence = lse.new_full((case.batch, case.nhead_q, max(case.seqlens_q)), -torch.inf)
        for at in packing.sequences():
            by_sequence[at.number, :, : case.seqlens_q[at.number]] = lse[:, at.queries]
        sink = spread_sinks(by_sequence, case.sink_offsets)
    out, lse = reference.packed_mixed(q, k, v, packing, sink, **case.mask)
    no_query, no_key = outside_sequences(case, packing)
    for x in (dout, q, out):
        x[no_query] = torch.nan
    for x in (k, v):
        x[no_key] = torch.nan
    lse[:, no_query] = torch.nan
    return Inputs(case, dout, q, k, v, out, lse, sink, packing)


def make_packing(case: Case) -> Packing:
    """The lengths of a packed case."""

    def cumulative(lengths: Sequence[int]) -> Tensor:
        return torch.tensor([0, *lengths]).cumsum(0).int()

    return Packing(
        cumulative(case.seqlens_q),
        cumulative(case.seqlens_k),
        cumulative(case.padded_q) if case.padded_q else None,
        cumulative(case.padded_k) if case.padded_k else None,
    )


def outside_sequences(case: Case, packing: Packing) -> tuple[Tensor, Tensor]:
    """Bool [rows of q] and [rows of k]: True where the row belongs to no sequence."""
    no_query = torch.ones(case.seqlen_q, dtype=torch.bool)
    no_key = torch.ones(case.seqlen_k, dtype=torch.bool)
    for at in packing.sequences():
        no_query[at.queries] = False
        no_key[at.keys] = False
    return no_query, no_key


def spread_sinks(lse: Tensor, offsets: Sequence[float]) -> Tensor:
    """[batch, nhead_q] float32: each head's mean finite sink-free lse, plus the offsets in turn.

    Args:
        lse: [batch, nhead_q, seqlen_q], without the sink.
        offsets: added to the means, head by head in turn over batch and heads.
    """
    finite = lse.isfinite()
    center = lse.masked_fill(~finite, 0.0).sum(-1) / finite.sum(-1).clamp(min=1)
    turn = torch.arange(center.numel()) % len(offsets)
    return (center + torch.tensor(offsets, dtype=center.dtype)[turn].view_as(center)).float()
