"""Any gfx950 kernel on this machine's processors: load a code object, launch, read the counts.

`load("kernels.co").launch("scale", grid=8, block=256, args=[x, y, n, 0.5])`; docs/emulator.md has
whole examples.
"""

from __future__ import annotations

import copy
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, SupportsIndex

import torch

from mha_sink import _C
from mha_sink.profiling.hardware import CLOCK_GHZ
from mha_sink.profiling.timing import ModelledTiming, model_launch

try:
    import numpy
except ImportError:
    ARRAYS: tuple[type, ...] = ()
    SCALARS: tuple[type, ...] = ()
else:
    ARRAYS, SCALARS = (numpy.ndarray,), (numpy.generic,)

__all__ = ["CodeObject", "Dimensions", "SourceLine", "load"]

Dimensions = int | Sequence[int]
Sizes = tuple[int, int, int]
Memory = list[tuple[int, int, bool, str]]  # address, bytes, writable, name

# Kinds of the metadata's .args that hold the address of global memory.
POINTERS = ("global_buffer", "dynamic_shared_pointer")
# What hand-written code objects call the padding between their arguments.
PADDING = "pad"
WORDS = {4: "f", 8: "d"}  # struct's letters for floats of that many bytes


@dataclass(frozen=True)
class SourceLine:
    """Where an instruction comes from; as text "kernels.hip:41", as in messages.

    Attributes:
        file: as the compiler recorded it: absolute, or relative to where it ran.
        line: from 1 on.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


def load(source: str | PathLike[str] | bytes, name: str | None = None) -> CodeObject:
    """Decodes a gfx950 code object.

    Args:
        source: file, or the bytes, of an AMDGPU ELF: what `clang++ --offload-device-only
            --no-gpu-bundle-output` writes. No bundle, no archive.
        name: for messages; the file's name by default.

    Raises:
        mha_sink.EmulationError: malformed, of another architecture, or with an instruction that
            cannot be decoded; says which.
        OSError: the file cannot be read.
    """
    if isinstance(source, bytes):
        return CodeObject(source, name or "code object")
    return CodeObject(Path(source).read_bytes(), name or Path(source).name)


class CodeObject:
    """The kernels of one code object, and what their launches executed.

    Attributes:
        name: for messages.
        kernels: registers, LDS and arguments of each kernel, by its name.
    """

    def __init__(self, elf: bytes, name: str) -> None:
        self.name = name
        self._code = _C.EmulatedObject(elf, name)
        self.kernels: dict[str, _C.KernelInfo] = {info["name"]: info for info in self._code.kernels}
        self._profile: dict[str, _C.KernelCounts] = {}

    def disassemble(self, kernel: str) -> list[str]:
        """The kernel's instructions, "address: mnemonic operands"."""
        return self._code.disassemble(kernel).splitlines()

    def instructions(self, kernel: str) -> list[tuple[int, str, str, str]]:
        """Address, mnemonic, class and the assembler's spelling of each instruction."""
        return self._code.instructions(kernel)

    def source_lines(self, kernel: str) -> list[SourceLine | None]:
        """Of each instruction; None where the object says none, as without line tables (-g)."""
        return [place and SourceLine(*place) for place in self._code.source_lines(kernel)]

    def launch(
        self,
        name: str,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[object] | Mapping[str, object] | bytes,
        lds: int = 0,
        *,
        memory: Mapping[str, object] | None = None,
        accesses: bool = False,
    ) -> None:
        """Runs a kernel and waits for it.

        The kernel may touch the arrays that it is given and nothing else.

        Args:
            name: the kernel's.
            grid: workgroups, one number or up to three, x first.
            block: work-items of a workgroup, likewise.
            args: one value for each argument of the metadata that is not hidden or called "pad".
                A pointer takes a torch tensor on the CPU, a numpy array (read-only ones must not
                be written) or None; a value an int, a float (of 4 or 8 bytes), a bool, a numpy
                scalar of its size, or bytes of its size, as of a struct. The keys of a mapping
                name arguments in messages; order is what counts. Bytes are the whole segment,
                the only form for a kernel without metadata for its arguments.
            lds: bytes of dynamic LDS.
            memory: further arrays that the kernel may touch, such as those that structs point to.
            accesses: also count cache lines and LDS bank conflicts, several times slower.

        Raises:
            TypeError: an argument is not what the metadata asks for; names it.
            ValueError: likewise, of its value; or the grid or block has no such form.
            mha_sink.EmulationError: no such kernel, more than a compute unit has, or a fault.
        """
        prepared = self._prepare(name, grid, block, args, lds, memory)
        _, workgroups, items, *_ = prepared
        counts = self._code.launch(*prepared, accesses=accesses)
        launched: _C.KernelCounts = {
            **counts,
            "launches": 1,
            "workgroups": math.prod(workgroups),
            "work_items": math.prod([*workgroups, *items]),
        }
        total = self._profile.get(name)
        self._profile[name] = launched if total is None else _sum(total, launched)

    def model_timing(
        self,
        name: str,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[object] | Mapping[str, object] | bytes,
        lds: int = 0,
        *,
        memory: Mapping[str, object] | None = None,
        sample: Sequence[int] | None = None,
        copies: int = 1,
        hbm_bytes: float | None = None,
        clock_ghz: float = CLOCK_GHZ,
        parameters: Mapping[str, float] | None = None,
        timeline_clocks: int = 0,
    ) -> ModelledTiming:
        """A MODEL of the launch's time from a few of its workgroups, which alone are executed.

        What the others would have written stays unwritten, and nothing goes into `profile`.

        Args:
            name: as of `launch`.
            grid: as of `launch`.
            block: as of `launch`.
            args: as of `launch`.
            lds: as of `launch`.
            memory: as of `launch`.
            sample: workgroups that stand for all in equal parts, numbered with x fastest. None:
                positions along each axis of the grid, between which the others' clocks are taken
                to follow straight lines.
            copies: how many such grids the launch has, where this is a part of it, as one head.
            hbm_bytes: compulsory bytes of the launch, where they are known; None: the distinct
                lines of the sampled workgroups, extrapolated.
            clock_ghz: nominal clock of the device; an MI350X has 2.2.
            parameters: constants of the model to change, by their names in
                csrc/emulator/timing_model.h.
            timeline_clocks: that the timeline of the middle workgroup covers, from its start.

        Raises:
            mha_sink.EmulationError: no such workgroup or constant; and as `launch`.
            ValueError: an empty sample; and as `launch`.
        """
        prepared = self._prepare(name, grid, block, args, lds, memory)
        return model_launch(
            self._code, *prepared, sample=sample, copies=_integer("copies", copies),
            hbm_bytes=hbm_bytes, clock_ghz=clock_ghz, parameters=parameters,
            timeline_clocks=_integer("timeline_clocks", timeline_clocks),
        )  # fmt: skip

    def profile(self) -> dict[str, _C.KernelCounts]:
        """What the launches of each kernel have executed since the object was loaded.

        "accesses" holds those of the launches that counted them; without one it is missing.
        """
        return copy.deepcopy(self._profile)

    def _prepare(
        self,
        name: str,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[object] | Mapping[str, object] | bytes,
        lds: int,
        memory: Mapping[str, object] | None,
    ) -> tuple[str, Sizes, Sizes, bytes, Memory, int]:
        """The leading arguments of `_C.EmulatedObject.launch`."""
        if name not in self.kernels:
            self._code.disassemble(name)  # raises, with the names that there are
        reached: Memory = []
        packed = bytes(args) if isinstance(args, bytes) else self._pack(name, args, reached)
        for label, value in (memory or {}).items():
            reached.append(_memory(f"memory {label}", label, value))
        _C.set_thread_count(torch.get_num_threads())
        return (
            name, _dimensions("grid", grid), _dimensions("block", block), packed, reached,
            _integer("lds", lds),
        )  # fmt: skip

    def _pack(
        self, name: str, args: Sequence[object] | Mapping[str, object], reached: Memory
    ) -> bytes:
        """The explicit part of the kernarg segment; adds the arrays to `reached`."""
        info = self.kernels[name]
        explicit = [a for a in info["arguments"] if not a["kind"].startswith("hidden_")]
        wanted = [a for a in explicit if a["name"] != PADDING]
        if not explicit and info["kernarg_bytes"]:
            raise TypeError(
                f"{name}: its metadata lists no arguments, so args must be the "
                f"{info['kernarg_bytes']} bytes of the segment"
            )
        labels: Sequence[str | None]
        if isinstance(args, Mapping):
            labels, values = [str(key) for key in args], list(args.values())
        else:
            labels, values = [None] * len(args), list(args)
        if len(values) != len(wanted):
            raise TypeError(
                f"{name}: {len(values)} arguments given, {len(wanted)} needed: "
                + ", ".join(map(_describe, wanted))
            )
        packed = bytearray(max((a["offset"] + a["size"] for a in explicit), default=0))
        for i, (argument, label, value) in enumerate(zip(wanted, labels, values, strict=True)):
            label = label or argument["name"]
            where = f"{name}: argument {i}" + (f" ({label})" if label else "")
            data = _pack_one(where, label or f"argument {i}", argument, value, reached)
            packed[argument["offset"] : argument["offset"] + argument["size"]] = data
        return bytes(packed)


def _describe(argument: _C.KernelArgument) -> str:
    kind = "pointer" if argument["kind"] in POINTERS else f"value of {argument['size']} bytes"
    return f"{argument['name']} {kind}".strip()


def _pack_one(
    where: str, label: str, argument: _C.KernelArgument, value: Any, reached: Memory
) -> bytes:
    size = argument["size"]
    if argument["kind"] in POINTERS:
        if value is None:
            return bytes(size)
        entry = _memory(where, label, value)
        reached.append(entry)
        return struct.pack("<Q", entry[0])
    if argument["kind"] != "by_value":
        raise TypeError(f"{where} is of kind {argument['kind']}, which cannot be given")
    if isinstance(value, (torch.Tensor, *ARRAYS)):
        raise TypeError(f"{where} is passed by value, {size} bytes; an array is given")
    if isinstance(value, (bytes, bytearray, *SCALARS)):
        buffer: Any = value
        data = bytes(memoryview(buffer))  # bytes(numpy.int32(8)) would be eight zeros
        if len(data) != size:
            raise ValueError(f"{where} has {size} bytes; {len(data)} are given")
        return data
    if isinstance(value, float):  # after numpy's: numpy.float64 is a float too
        if size not in WORDS:
            raise TypeError(f"{where} has {size} bytes; a float is given, which has 4 or 8")
        try:
            return struct.pack(f"<{WORDS[size]}", value)
        except OverflowError:
            raise ValueError(f"{where} is {value}, beyond a float of {size} bytes") from None
    if not isinstance(value, SupportsIndex):
        raise TypeError(
            f"{where} is a {type(value).__name__}; need an int, a float, a numpy scalar or bytes"
        )
    number = operator.index(value)
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise ValueError(f"{where} is {number}, beyond an integer of {size} bytes")
    return (number % (1 << 8 * size)).to_bytes(size, "little")


def _memory(where: str, label: str, value: Any) -> tuple[int, int, bool, str]:
    """What the array spans: (address, bytes, writable, label)."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout is not torch.strided:
            raise TypeError(f"{where} is on {value.device}, {value.layout}; need a strided CPU one")
        address, itemsize, writable = value.data_ptr(), value.dtype.itemsize, True
        shape, strides = value.shape, tuple(stride * itemsize for stride in value.stride())
    elif any(isinstance(value, array) for array in ARRAYS):
        address, itemsize, writable = value.ctypes.data, value.itemsize, value.flags.writeable
        shape, strides = value.shape, value.strides
    else:
        raise TypeError(
            f"{where} is a pointer; need a torch tensor, a numpy array or None, "
            f"not a {type(value).__name__}"
        )
    if any(stride < 0 for stride in strides):
        raise ValueError(f"{where} has a negative stride; the kernel would get its last element")
    if 0 in shape:
        return address, 0, writable, label
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return address, last + itemsize, writable, label


def _integer(where: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{where} is a {type(value).__name__}; need an int") from None
    if not 0 <= number < 1 << 32:
        raise ValueError(f"{where} is {number}; need 0 to {(1 << 32) - 1}")
    return number


def _dimensions(where: str, value: Dimensions) -> Sizes:
    sizes = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"{where} has {len(sizes)} dimensions; need 1 to 3")
    x, y, z = (*(_integer(where, size) for size in sizes), 1, 1)[:3]
    return x, y, z


def _sum(a: Any, b: Any) -> Any:
    """Counts added up, through dicts (of either's keys), lists and tuples."""
    if isinstance(a, dict):
        return {
            key: _sum(a[key], b[key]) if key in a and key in b else a.get(key, b.get(key))
            for key in {**a, **b}
        }
    if isinstance(a, list | tuple):
        return type(a)(map(_sum, a, b))
    return a + b
