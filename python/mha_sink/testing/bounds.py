"""How far apart two correct executions of a launch of the backward may be, element by element.

Both sides of a launch start from the same bytes, so a difference belongs to its kernel. Most of it
must agree to the bit: fp32 additions, multiplications and fused multiply-adds in a fixed order are
IEEE 754 on both sides, as are conversions. What may differ:

* `v_exp_f32` is within an ulp of the true value, here and there: `EXP`.
* How an MFMA sums its products is not public for gfx950. Its adder may truncate: `SUM` a term, four
  times fp32's unit roundoff.
* P and dS are rounded to 16 bits, so the above may turn one into its neighbour: `Rounding.ulp`.
* dq is summed by atomics, in any order, unless the call is deterministic: `SUM` a term.

`bounds` carries these through the formulas in float64, element by element and term by term, so that
no honest difference exceeds them. They are worst cases: a real device stays far below.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from mha_sink import _C
from mha_sink.reference import Packing, visible_keys
from mha_sink.testing.inputs import Inputs

EXP = 2.0**-22
SUM = 2.0**-22
FP32 = 2.0**-23


class Rounding(NamedTuple):
    """A 16-bit dtype: the largest distance to a neighbour, relative and near zero."""

    ulp: float
    least: float


ROUNDING = {"bfloat16": Rounding(2.0**-7, 2.0**-126), "float16": Rounding(2.0**-10, 2.0**-24)}


def bounds(kernel: str, inputs: Inputs, sink: Tensor) -> dict[str, Tensor]:
    """By buffer: how far apart each element may be, float64, in the buffer's shape."""
    if inputs.packing is not None:
        return _packed_bounds(kernel, inputs, inputs.packing, sink)
    if kernel.startswith("mha_dot_do_o"):
        return {"workspace d_sink_partial": _partial_bound(inputs, sink)}
    if kernel.startswith(("mha_dq_dk_dv", "mha_dq_bf16", "mha_dq_fp16")):
        return _gradient_bounds(inputs)
    return {}


def _packed_bounds(
    kernel: str, inputs: Inputs, packing: Packing, sink: Tensor
) -> dict[str, Tensor]:
    """Those of each sequence by itself, where it lies; 0 elsewhere."""
    case = inputs.case
    result: dict[str, Tensor] = {}
    tile_rows, _ = _C.tile_sizes(case.hdim)
    shapes = {
        "workspace d_sink_partial": (case.nhead_q, packed_tiles(case.seqlen_q, case.batch)),
        "workspace dq_acc": (case.nhead_q, case.seqlen_q, case.hdim),
        "dq": inputs.q.shape,
        "dk": inputs.k.shape,
        "dv": inputs.v.shape,
    }
    for at in packing.sequences():
        q, k = at.queries, at.keys
        first_tile = q.start // tile_rows + at.number
        one = dataclasses.replace(
            inputs,
            case=dataclasses.replace(
                case, batch=1, seqlen_q=q.stop - q.start, seqlen_k=k.stop - k.start, seqlens_q=(),
                seqlens_k=(), padded_q=(), padded_k=(),
            ),
            dout=inputs.dout[None, q], q=inputs.q[None, q], k=inputs.k[None, k],
            v=inputs.v[None, k], out=inputs.out[None, q], lse=inputs.lse[None, :, q], packing=None,
        )  # fmt: skip
        if one.case.seqlen_q == 0 or (one.case.seqlen_k == 0 and "dot_do_o" not in kernel):
            continue  # zeros
        for name, bound in bounds(kernel, one, sink[at.number, None]).items():
            whole = result.setdefault(name, torch.zeros(shapes[name], dtype=torch.float64))
            if name == "workspace d_sink_partial":
                whole[:, first_tile : first_tile + bound.shape[-1]] = bound[0]
            elif name == "workspace dq_acc":
                whole[:, q] = bound[0]
            else:
                whole[q if name == "dq" else k] = bound[0]
    return result


def packed_tiles(total_q: int, sequences: int) -> int:
    """Tile numbers of the row kernels on a packed batch; one more a sequence for a partial tile."""
    tile_rows, _ = _C.tile_sizes(8)
    return total_q // tile_rows + sequences


def _partial_bound(inputs: Inputs, sink: Tensor) -> Tensor:
    """[batch, nhead_q, tiles]: exp of equal arguments, then a sum of a tile's rows."""
    rows, _ = _C.tile_sizes(inputs.case.hdim)
    delta = (inputs.dout.double() * inputs.out.double()).sum(-1).transpose(1, 2)
    probability = torch.exp(sink.double()[..., None] - inputs.lse.double())
    terms = (probability.masked_fill(inputs.lse.isinf(), 0.0) * delta).abs()
    tiles = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % rows))
    sums = tiles.reshape(*terms.shape[:2], -1, rows).sum(-1)
    # delta here is float64; the kernels' is off by a few roundings of its terms.
    return sums * (1.01 * (EXP + 2 * rows * FP32))


def _gradient_bounds(inputs: Inputs) -> dict[str, Tensor]:
    case, half = inputs.case, ROUNDING[inputs.case.dtype]
    group = case.nhead_q // case.nhead_k

    def heads_first(x: Tensor, repeat: int = 1) -> Tensor:
        return x.double().transpose(1, 2).repeat_interleave(repeat, 1)

    q, dout = heads_first(inputs.q), heads_first(inputs.dout)
    k, v = heads_first(inputs.k, group), heads_first(inputs.v, group)
    seen = visible_keys(case.seqlen_q, case.seqlen_k, case.causal, case.window)
    lse = inputs.lse.double().unsqueeze(-1)
    delta = (dout * heads_first(inputs.out)).sum(-1, keepdim=True)

    def product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of a times rows of b, and how far apart two sums of its terms may be."""
        return a @ b.mT, 2 * (a.shape[-1] + 4) * SUM * (a.abs() @ b.abs().mT)

    s, s_error = product(q, k)
    s, s_error = s * case.scale, s_error * case.scale
    p = torch.exp(s - lse).masked_fill(~seen | lse.isinf(), 0.0)
    p_relative = s_error + FP32 * (s.abs() + lse.masked_fill(lse.isinf(), 0.0).abs()) * 2 + EXP
    p_error = p * (p_relative + half.ulp) + half.least * seen
    dp, dp_error = product(dout, v)
    ds = p * (dp - delta)
    ds_error = p * dp_error + (p_relative + 2 * FP32) * ds.abs()
    ds_error += p * FP32 * (dp.abs() + delta.abs()) + half.ulp * ds.abs() + half.least * seen

    def summed(error: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Of sum x y over queries or keys, x being off by `error`."""
        return error @ y.abs() + 2 * (x.shape[-1] + 4) * SUM * ((x.abs() + error) @ y.abs())

    def of_keys(error: Tensor, x: Tensor, y: Tensor, scale: float) -> Tensor:
        heads = (case.batch, case.nhead_k, group, case.seqlen_k, -1)
        total = scale * summed(error.mT, x.mT, y).reshape(heads).sum(2)
        value = scale * (x.mT @ y).reshape(heads).sum(2)
        bound = total * (1 + half.ulp) + half.ulp * value.abs() + half.least
        return bound.transpose(1, 2)

    dq_acc = summed(ds_error, ds, k)
    dq = case.scale * (dq_acc * (1 + half.ulp) + half.ulp * (ds @ k).abs()) + half.least
    return {
        "workspace dq_acc": dq_acc,
        "dq": dq.transpose(1, 2),
        "dk": of_keys(ds_error, ds, q, case.scale),
        "dv": of_keys(p_error, p, dout, 1.0),
    }
