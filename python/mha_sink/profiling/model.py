"""The timing MODEL of whole calls and of launches that a file describes. No time is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mha_sink import _C, _tensors, emulator
from mha_sink.profiling.arrays import Arena, aligned_zeros
from mha_sink.profiling.launch_spec import LaunchSpec
from mha_sink.profiling.report import useful_flops_of
from mha_sink.profiling.timing import Memory, ModelledTiming, Place, memset_timing, model_launch
from mha_sink.testing import Case

LABEL = "MODEL: no clock of it was measured; docs/emulator.md has its constants and its misses"


@dataclass(frozen=True)
class ModelledKernel:
    """One launch.

    Attributes:
        kernel: its name; "memset" for a memset.
        timing: what the model says.
        useful_flops: that the caller asked for; None where that is not known.
    """

    kernel: str
    timing: ModelledTiming
    useful_flops: float | None = None

    @property
    def tflops(self) -> float | None:
        """Useful ones a modelled second, 1e12."""
        return None if self.useful_flops is None else self.useful_flops / self.seconds / 1e12

    @property
    def seconds(self) -> float:
        """Modelled, at the nominal clock."""
        return self.timing.seconds()

    def as_json(self) -> dict[str, Any]:
        """Values that `json` writes; no timeline."""
        return {
            "kernel": self.kernel,
            **{name: value for name, value in asdict(self.timing).items() if name != "timeline"},
            "hbm_clocks": self.timing.hbm_clocks,
            "device_clocks": self.timing.device_clocks,
            "modelled_seconds": self.seconds,
            "useful_flops": self.useful_flops,
            "modelled_tflops": self.tflops,
        }


def call_as_json(kernels: Sequence[ModelledKernel]) -> dict[str, Any]:
    """A whole call: its launches one after another, with nothing between them."""
    seconds = sum(kernel.seconds for kernel in kernels)
    flops = sum(kernel.useful_flops or 0.0 for kernel in kernels)
    return {
        "modelled_seconds": seconds,
        "useful_flops": flops,
        "modelled_tflops": flops / seconds / 1e12 if seconds else None,
    }


def model_mha_bwd(
    case: Case, deterministic: bool = False, timeline_clocks: int = 0
) -> list[ModelledKernel]:
    """Each launch of the case's backward, in order, from a few workgroups of each.

    Tensors hold zeros: only masks and lengths decide what the kernels execute.

    Args:
        case: dense.
        deterministic: dq without atomics.
        timeline_clocks: that the timelines cover.

    Raises:
        ValueError: the case is packed, so that a few workgroups do not stand for the others.
    """
    if case.packed:
        raise ValueError(f"case {case} is packed; the model needs one whose workgroups are alike")
    call = _C.MhaBwdCall()
    dtype, hdim_v = getattr(torch, case.dtype), case.hdim_v or case.hdim
    q = (case.batch, case.seqlen_q, case.nhead_q)
    k = (case.batch, case.seqlen_k, case.nhead_k)
    rows = (case.batch, case.nhead_q, case.seqlen_q)
    shapes = {
        "q": (*q, case.hdim), "k": (*k, case.hdim), "v": (*k, hdim_v), "out": (*q, hdim_v),
        "dout": (*q, hdim_v), "dq": (*q, case.hdim), "dk": (*k, case.hdim), "dv": (*k, hdim_v),
    }  # fmt: skip
    tensors = {name: aligned_zeros(shape, dtype) for name, shape in shapes.items()}
    for name in ("softmax_lse", "softmax_d"):
        tensors[name] = aligned_zeros(rows, torch.float32)
    if case.sink_offsets:
        tensors["sink"] = aligned_zeros((case.batch, case.nhead_q), torch.float32)
        tensors["d_sink"] = aligned_zeros((case.nhead_q,), torch.float32)
    for name, tensor in tensors.items():
        setattr(call, name, _tensors.describe("model_mha_bwd", name, tensor))
    call.softmax_scale, call.is_causal, call.deterministic = case.scale, case.causal, deterministic
    call.window_size_left, call.window_size_right = case.window

    found: list[ModelledKernel] = []

    def launch(kernel: str, grid: Place, block: Place, arguments: bytes, memory: Memory) -> None:
        if kernel == "memset":
            found.append(ModelledKernel(kernel, memset_timing(memory[0][1])))
            return
        code = _C.EmulatedObject(_C.kernel_binary(kernel), kernel)
        flops = useful_flops_of(kernel, case, deterministic)
        timing = model_launch(
            code, kernel, grid, block, arguments, memory, timeline_clocks=timeline_clocks
        )
        found.append(ModelledKernel(kernel, timing, flops))

    _C.set_thread_count(torch.get_num_threads())
    _C.list_mha_bwd_launches(call, Arena(), launch)
    return found


def model_object(
    code: emulator.CodeObject, spec: LaunchSpec, timeline_clocks: int = 0
) -> ModelledKernel:
    """A launch of a kernel of any code object.

    Raises:
        ValueError, TypeError, mha_sink.EmulationError: as `profile_object`.
    """
    kernel = spec.kernel_of(code)
    args, memory = spec.packed()
    timing = code.model_timing(
        kernel, spec.grid, spec.block, args, spec.lds, memory=memory,
        timeline_clocks=timeline_clocks,
    )  # fmt: skip
    return ModelledKernel(kernel, timing, spec.useful_flops)
