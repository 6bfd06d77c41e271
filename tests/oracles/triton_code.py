"""Compiling Triton and Gluon kernels for gfx950, without a GPU, and launching them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

from emulated import launch
from mha_sink import _C


@dataclasses.dataclass(frozen=True)
class Compiled:
    elf: bytes
    code: _C.EmulatedObject
    name: str
    threads: int
    lds: int

    def launch(
        self,
        grid: tuple[int, ...],
        arguments: dict[str, Any],
        schedule: tuple[int, bool] | None = None,
    ) -> _C.InstructionMix:
        # Triton appends two scratch pointers to every kernel, and takes its LDS dynamically.
        scratch = {"global_scratch": None, "profile_scratch": None}
        return launch(
            self.code, self.name, grid, self.threads, {**arguments, **scratch}, schedule, self.lds
        )


_compiled: dict[Any, Compiled] = {}


def compile_kernel(
    function: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    buffers: bool = False,
    **options: Any,
) -> Compiled:
    """gfx950 code of a Triton or Gluon function, compiled once a process.

    buffers: let Triton address memory through buffer descriptors (every array below 2 GiB).
    TRITON_CACHE_DIR must be set, so that nothing is left in the user's home.
    """
    assert os.environ["TRITON_CACHE_DIR"]
    key = (function.__name__, tuple(constants.items()), buffers, tuple(options.items()))
    if key not in _compiled:
        names = function.arg_names
        attributes = [["tt.divisibility", 16]] + buffers * [["tt.pointer_range", 32]]
        source_type = GluonASTSource if isinstance(function, GluonJITFunction) else ASTSource
        source = source_type(
            function,
            {name: signature.get(name, "constexpr") for name in names},
            {(names.index(name),): value for name, value in constants.items()},
            {(names.index(n),): attributes for n, kind in signature.items() if kind[0] == "*"},
        )
        target = GPUTarget("hip", "gfx950", 64)
        kernel = triton.compile(
            source, target=target, options={"enable_fp_fusion": True, **options}
        )
        metadata = kernel.metadata
        elf = kernel.asm["hsaco"]
        code = _C.EmulatedObject(elf, f"triton {function.__name__}")
        _compiled[key] = Compiled(
            elf, code, metadata.name, 64 * metadata.num_warps, metadata.shared
        )
    return _compiled[key]
