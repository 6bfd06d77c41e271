"""One launch of a kernel, written down as JSON; docs/emulator.md has the form."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mha_sink import emulator
from mha_sink.profiling.arrays import aligned_zeros

# struct's letters by what "dtype" calls a value.
VALUES = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
ARRAYS = ("bfloat16", "float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")
FILLS = ("zeros", "normal")
KEYS = {"kernel", "grid", "block", "args", "lds", "slot", "useful_flops"}

Argument = torch.Tensor | bytes | None  # an array, a packed value, a null pointer


@dataclass(frozen=True)
class LaunchSpec:
    """A launch, with its arrays made.

    Attributes:
        kernel: name; None: the object's only one.
        grid: workgroups.
        block: work-items of a workgroup.
        args: by name, in order: tensors, packed values as bytes, None for null pointers.
        lds: bytes of dynamic LDS.
        slot: each argument starts a slot of so many bytes and is alone in it; 0: where the
            object's metadata says.
        useful_flops: what the launch computes for its caller, to compare what it issues with.
    """

    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: dict[str, Argument] = field(default_factory=dict)
    lds: int = 0
    slot: int = 0
    useful_flops: float | None = None

    def kernel_of(self, code: emulator.CodeObject) -> str:
        """The kernel's name.

        Raises:
            ValueError: the spec names none and the object has several.
        """
        if self.kernel is not None:
            return self.kernel
        if len(code.kernels) > 1:
            raise ValueError(f"{code.name} has the kernels {', '.join(code.kernels)}; name one")
        (kernel,) = code.kernels
        return kernel

    def packed(self) -> tuple[dict[str, Argument] | bytes, dict[str, torch.Tensor] | None]:
        """`args` and `memory` as `CodeObject.launch` takes them."""
        if not self.slot:
            return self.args, None
        packed = b""
        for value in self.args.values():
            address = value.data_ptr() if isinstance(value, torch.Tensor) else 0
            data = value if isinstance(value, bytes) else struct.pack("<Q", address)
            packed += data.ljust(self.slot, b"\0")
        return packed, {k: v for k, v in self.args.items() if isinstance(v, torch.Tensor)}


def read_launch_spec(path: Path) -> LaunchSpec:
    """The launch that a file describes.

    Raises:
        ValueError: not JSON, or not of that form; names the entry.
        OSError: the file cannot be read.
    """
    try:
        spec = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(spec, dict):
        raise ValueError(f"{path} holds a {type(spec).__name__}; need an object")
    unknown, missing = spec.keys() - KEYS, {"grid", "block", "args"} - spec.keys()
    if unknown or missing:
        what = "unknown keys" if unknown else "no"
        raise ValueError(f"{path} has {what} {', '.join(sorted(unknown or missing))}")
    slot = _number(f"{path}: slot", spec.get("slot", 0))
    if not isinstance(spec["args"], list):
        raise ValueError(f"{path}: args is no list")
    args: dict[str, Argument] = {}
    for i, entry in enumerate(spec["args"]):
        where = f"{path}: args[{i}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{where} is no object")
        name = str(entry.get("name", f"argument {i}"))
        if name in args:
            raise ValueError(f"{where}: {name} is given twice")
        args[name] = _argument(f"{where} ({name})", entry)
        size = len(data) if isinstance(data := args[name], bytes) else 8
        if slot and size > slot:
            raise ValueError(f"{where} ({name}) has {size} bytes, more than a slot of {slot}")
    flops = spec.get("useful_flops")
    return LaunchSpec(
        spec.get("kernel"),
        _sizes(f"{path}: grid", spec["grid"]),
        _sizes(f"{path}: block", spec["block"]),
        args,
        _number(f"{path}: lds", spec.get("lds", 0)),
        slot,
        None if flops is None else float(flops),
    )


def _argument(where: str, entry: dict[str, Any]) -> Argument:
    if entry.get("null") is True:
        return None
    dtype = entry.get("dtype")
    if "value" in entry:
        if dtype not in VALUES:
            raise ValueError(f"{where}: dtype is {dtype}; a value needs one of {', '.join(VALUES)}")
        try:
            return struct.pack(f"<{VALUES[dtype]}", entry["value"])
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{where}: {entry['value']!r} is no {dtype}: {error}") from None
    if "shape" not in entry:
        raise ValueError(f'{where} has neither "shape", "value" nor "null"')
    if dtype not in ARRAYS:
        raise ValueError(f"{where}: dtype is {dtype}; an array needs one of {', '.join(ARRAYS)}")
    shape, fill = _sizes(f"{where}: shape", entry["shape"]), entry.get("fill", "zeros")
    array = aligned_zeros(shape, getattr(torch, dtype))
    if fill == "zeros":
        return array
    if fill == "normal":
        # By name, so that two arrays of one shape differ and a file means the same every time.
        generator = torch.Generator().manual_seed(sum(entry.get("name", "").encode()))
        return array.copy_(torch.randn(shape, generator=generator))
    if isinstance(fill, int | float):
        return array.fill_(fill)
    raise ValueError(f"{where}: fill is {fill!r}; need a number or one of {', '.join(FILLS)}")


def _number(where: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{where} is {value!r}; need a number of at least 0")
    return value


def _sizes(where: str, value: Any) -> tuple[int, ...]:
    sizes = value if isinstance(value, list) else [value]
    return tuple(_number(where, size) for size in sizes)
