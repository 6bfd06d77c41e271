"""Attention backward with a learnable sink for AMD gfx950; without the GPU, emulated on a CPU."""

from mha_sink import _C, reference
from mha_sink._C import EmulationError, Error, InvalidArgument, Unsupported
from mha_sink._devices import warmup
from mha_sink.attention import AttentionGradients, attention_backward
from mha_sink.mha import mha_bwd, mha_varlen_bwd
from mha_sink.reference import lse_with_sink

__all__ = [
    "AttentionGradients",
    "EmulationError",
    "Error",
    "InvalidArgument",
    "Unsupported",
    "attention_backward",
    "lse_with_sink",
    "mha_bwd",
    "mha_varlen_bwd",
    "reference",
    "warmup",
]

__version__ = _C.build_info()["version"]
