"""Attention with a learnable sink in plain torch: what the kernels are measured against.

`definition` and `definition_bwd` are the mathematics in float64; the backward is torch.autograd's
derivative of the forward, so it shares no formula with any kernel. `formula_bwd` evaluates the
closed-form backward in float64 from the `out` and `lse` that it is given. `mixed` and `mixed_bwd`
round where a 16-bit kernel has to: the error that is due to the number format alone. The functions
whose names start with `packed_` do the same for sequences that lie one after another.

Shapes, everywhere in this package::

                       dense                                packed
    q, out, dout, dq   [batch, seqlen_q, nhead_q, hdim]     [total_q, nhead_q, hdim]
    k, v, dk, dv       [batch, seqlen_k, nhead_k, hdim]     [total_k, nhead_k, hdim]
    lse, dlse          [batch, nhead_q, seqlen_q]           [nhead_q, total_q]
    softmax_d          [batch, nhead_q, seqlen_q]           [nhead_q, total_q]
    sink, d_sink       [nhead_q] or [batch, nhead_q]        likewise; batch counts sequences

nhead_q is a multiple of nhead_k; the head dim of v, out and dout may differ from that of q and k.
`sink` and `lse` are natural logarithms in the units of `scale * q.k`. A window side of -1 is
unbounded; `causal` sets the right side to 0. Masks are aligned at the bottom right: query i sees
key j when `i + seqlen_k - seqlen_q - left <= j <= i + seqlen_k - seqlen_q + right`.
"""

from mha_sink.reference.dense import (
    Forward,
    Gradients,
    Mask,
    definition,
    definition_bwd,
    formula_bwd,
    lse_with_sink,
    mixed,
    mixed_bwd,
    visible_keys,
)
from mha_sink.reference.packed import (
    Packing,
    Sequence,
    packed_definition,
    packed_definition_bwd,
    packed_formula_bwd,
    packed_mixed,
    packed_mixed_bwd,
)

__all__ = [
    "Forward",
    "Gradients",
    "Mask",
    "Packing",
    "Sequence",
    "definition",
    "definition_bwd",
    "formula_bwd",
    "lse_with_sink",
    "mixed",
    "mixed_bwd",
    "packed_definition",
    "packed_definition_bwd",
    "packed_formula_bwd",
    "packed_mixed",
    "packed_mixed_bwd",
    "visible_keys",
]
