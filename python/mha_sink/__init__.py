"""Attention backward with a learnable sink for AMD gfx950; without the GPU, emulated on a CPU."""

from mha_sink import _C, emulator, reference, sparse_reference
from mha_sink._C import EmulationError, Error, InvalidArgument, Unsupported
from mha_sink._devices import warmup
from mha_sink.attention import AttentionGradients, attention_backward
from mha_sink.mha import mha_bwd, mha_varlen_bwd
from mha_sink.reference import lse_with_sink
from mha_sink.sparse import (
    SparseMlaPlan,
    sparse_mla,
    sparse_mla_bwd_dsv4,
    sparse_mla_fwd_dsv4,
    sparse_mla_plan,
)

__all__ = [
    "AttentionGradients",
    "EmulationError",
    "Error",
    "InvalidArgument",
    "SparseMlaPlan",
    "Unsupported",
    "attention_backward",
    "emulator",
    "lse_with_sink",
    "mha_bwd",
    "mha_varlen_bwd",
    "reference",
    "sparse_mla",
    "sparse_mla_bwd_dsv4",
    "sparse_mla_fwd_dsv4",
    "sparse_mla_plan",
    "sparse_reference",
    "warmup",
]

__version__ = _C.build_info()["version"]
