"""Launching gfx950 kernels in the emulator from tests, on numpy arrays."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mha_sink import _C

Array = NDArray[Any]

KERNELS = Path(__file__).parent / "kernels"

# What registers and LDS hold before anything is written: NaN as fp32, bf16 and fp16.
POISON = 0xFFC1FFC1

# (instructions before the next wave runs, waves in descending order). 0: until the wave blocks.
SCHEDULES = [(1, False), (50, False), (50, True), (0, False), (0, True)]


def pack_arguments(arguments: Mapping[str, Array | np.generic | None]) -> bytes:
    """The kernarg segment: arrays and None as pointers, numpy scalars by value, each aligned."""
    packed = b""
    for value in arguments.values():
        if value is None:
            value = np.uint64(0)
        elif isinstance(value, np.ndarray):
            value = np.uint64(value.ctypes.data)
        packed += bytes(-len(packed) % value.itemsize) + value.tobytes()
    return packed


def launch(
    code: _C.EmulatedObject,
    kernel: str,
    workgroups: int | tuple[int, ...],
    workgroup_size: int,
    arguments: Mapping[str, Array | np.generic | None],
    schedule: tuple[int, bool] | None = None,
    dynamic_lds: int = 0,
    sanitize: str | None = None,
) -> _C.InstructionMix:
    """Runs a grid. The kernel may touch the arrays among `arguments` and nothing else; one whose
    writeable flag is off it may only read. Faults name an array by its key."""
    grid = (workgroups,) if isinstance(workgroups, int) else workgroups
    memory = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous
            memory.append((value.ctypes.data, value.nbytes, bool(value.flags.writeable), name))
    quantum, reverse = schedule if schedule else (None, None)
    x, y, z = (*grid, 1, 1)[:3]
    return code.launch(
        kernel,
        (x, y, z),
        (workgroup_size, 1, 1),
        pack_arguments(arguments),
        memory,
        dynamic_lds,
        quantum,
        reverse,
        sanitize=sanitize,
    )


def bf16_bits(values: Array) -> NDArray[np.uint16]:
    """float32 values rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    quiet = bits >> 16 | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def bf16_values(bits: Array) -> NDArray[np.float32]:
    """float32 values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def guarded(shape: tuple[int, ...], dtype: Any, guard: int = 64) -> tuple[Array, Array]:
    """(view, whole): an output of all-ones bits (NaN as a float) with `guard` more elements on
    either side, which `untouched` checks afterwards. The view is what a kernel may touch."""
    count = int(np.prod(shape))
    whole = np.full((count + 2 * guard) * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype)
    return whole[guard : guard + count].reshape(shape), whole


def untouched(view: Array, whole: Array) -> bool:
    """Whether the guard elements around `view` still hold what `guarded` put there."""
    guard = (whole.size - view.size) // 2
    edges = np.concatenate([whole[:guard], whole[whole.size - guard :]])
    return bool((edges.view(np.uint8) == 0xFF).all())


class Section(NamedTuple):
    """Of an ELF file: where it is loaded, and where its bytes are in the file."""

    address: int
    offset: int
    size: int


def elf_sections(elf: bytes) -> dict[str, Section]:
    """By name. For intact 64-bit little-endian files."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count, names = struct.unpack_from("<HHH", elf, 58)
    # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    strings = headers[names][4]
    sections = {}
    for name, _, _, address, offset, size in headers:
        end = elf.index(b"\0", strings + name)
        sections[elf[strings + name : end].decode()] = Section(address, offset, size)
    return sections


def source_line(source: Path, text: str) -> int:
    """Number of the one line of the file that contains `text`."""
    (number,) = [i for i, line in enumerate(source.read_text().splitlines(), 1) if text in line]
    return number


def place(stem: str, text: str) -> str:
    """How messages spell the line of tests/kernels/<stem>.hip that contains `text`."""
    return f"({stem}.hip:{source_line(KERNELS / f'{stem}.hip', text)})"


def build_test_kernels(folder: Path) -> Path:
    """Compiles tests/kernels/*.hip into `folder`, once for all processes that share it.

    Returns the folder with the <stem>.co files. Raises with the compiler's output when it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    beside_python = Path(sys.executable).parent / "cmake"
    cmake = str(beside_python) if beside_python.exists() else shutil.which("cmake")
    if cmake is None:
        raise RuntimeError("the test kernels need cmake: pip install -r requirements-dev.txt")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done_before = folder / "built"
        if not done_before.exists():
            configure = [cmake, "-S", str(KERNELS), "-B", str(folder)]
            configure += [f"-DMHA_SINK_PYTHON={sys.executable}"]
            for command in (configure, [cmake, "--build", str(folder), f"-j{os.cpu_count()}"]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
            done_before.touch()
    return folder
