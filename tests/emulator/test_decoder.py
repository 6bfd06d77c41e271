"""Our decoder and disassembler against LLVM's, instruction by instruction."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emulated import elf_sections
from mha_sink import _C

OBJDUMP = next(
    filter(None, map(shutil.which, ["llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20"])), None
)
needs_objdump = pytest.mark.skipif(OBJDUMP is None, reason="no llvm-objdump-20 to -22 is installed")

LINE = re.compile(r"^\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]{12}): (?P<code>[0-9A-F ]+)", re.M)


def normalize(text: str) -> str:
    """One spelling of an instruction, whichever of the two wrote it."""
    mnemonic, _, operands = text.strip().partition(" ")
    mnemonic = re.sub(r"_(e32|e64|dpp|e64_dpp)$", "", mnemonic)
    operands = operands.split("//")[0]
    if mnemonic.startswith(("s_branch", "s_cbranch")):
        operands = ""  # compared by what is executed: every loop of every test
    operands = re.sub(r"\s*,\s*", ", ", operands)
    # A literal is the same number in any base.
    operands = re.sub(r"\b0x[0-9a-f]+\b", lambda hit: str(int(hit[0], 16)), operands)
    words = operands.split(" ")
    return " ".join([mnemonic, *filter(None, words)])


def reference(elf: bytes, folder: Path) -> dict[int, str]:
    """LLVM's listing: offset in .text to instruction."""
    path = folder / "object.co"
    path.write_bytes(elf)
    command = [str(OBJDUMP), "-d", "--mcpu=gfx950", str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    start = elf_sections(elf)[".text"].address
    return {int(m["address"], 16) - start: m["text"] for m in LINE.finditer(listing)}


def compare(elf: bytes, name: str, folder: Path) -> int:
    """Asserts that both listings agree; returns how many instructions were compared."""
    code = _C.EmulatedObject(elf, name)
    expected = reference(elf, folder)
    count = 0
    for kernel in code.kernels:
        for line in code.disassemble(kernel["name"]).splitlines():
            address, _, text = line.partition(": ")
            offset = int(address, 16)
            assert offset in expected, f"{kernel['name']}: no instruction begins at {address}"
            assert normalize(text) == normalize(expected[offset]), f"{kernel['name']} {address}"
            count += 1
    return count


@needs_objdump
def test_test_kernels(kernel_folder: Path, tmp_path: Path) -> None:
    refused = {"unsupported", "undefined"}
    paths = [path for path in sorted(kernel_folder.glob("*.co")) if path.stem not in refused]
    assert paths
    count = sum(compare(path.read_bytes(), path.stem, tmp_path) for path in paths)
    assert count > 1000


@needs_objdump
def test_library_kernels(tmp_path: Path) -> None:
    names = [kernel["name"] for kernel in _C.kernels()]
    count = sum(compare(_C.kernel_binary(name), name, tmp_path) for name in names)
    assert count > 1000
