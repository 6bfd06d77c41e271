"""Our decoder and disassembler against LLVM's, instruction by instruction."""

import re
import struct
from pathlib import Path

from listing import compare, needs_objdump
from mha_sink import _C


def embedded_objects() -> list[bytes]:
    """The library's own code objects, as the build linked them into the extension module."""
    module = Path(_C.__file__).read_bytes()
    objects = []
    # ELF64, little endian, version 1, OS ABI 64 (AMDGPU_HSA).
    for match in re.finditer(rb"\x7fELF\x02\x01\x01\x40", module):
        elf = module[match.start() :]
        (table,) = struct.unpack_from("<Q", elf, 40)
        entry_size, count = struct.unpack_from("<HH", elf, 58)
        objects.append(elf[: table + entry_size * count])
    return objects


@needs_objdump
def test_test_kernels(kernel_folder: Path, tmp_path: Path) -> None:
    refused = {"unsupported", "undefined"}
    paths = [path for path in sorted(kernel_folder.glob("*.co")) if path.stem not in refused]
    assert paths
    assert sum(compare(path.read_bytes(), path.stem, tmp_path) for path in paths) > 1000


@needs_objdump
def test_library_kernels(tmp_path: Path) -> None:
    objects = embedded_objects()
    assert len(objects) == len(_C.kernels())
    assert sum(compare(elf, "embedded", tmp_path) for elf in objects) > 1000
