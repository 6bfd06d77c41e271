"""Our disassembly of a code object compared with llvm-objdump's."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emulated import elf_sections
from mha_sink import _C

OBJDUMP = next(filter(None, (shutil.which(f"llvm-objdump-{v}") for v in (22, 21, 20))), None)
needs_objdump = pytest.mark.skipif(OBJDUMP is None, reason="no llvm-objdump-20 to -22 is installed")

SYMBOL = re.compile(r"^([0-9a-f]{16}) <(\S+)>:$", re.M)
LINE = re.compile(
    r"^\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]{12}):(?: [0-9A-F]{8})+(?: <(?P<target>\S+)>)?",
    re.M,
)


def normalize(text: str) -> str:
    """One spelling of an instruction, whichever of the two wrote it."""
    mnemonic, _, operands = text.partition(" ")
    # Which encoding an instruction has is no part of its name here; DPP shows in its modifiers.
    mnemonic = re.sub(r"(_e32|_e64|_dpp)+$", "", mnemonic)
    # A literal is the same number in any base.
    operands = re.sub(r"\b0x[0-9a-f]+\b", lambda number: str(int(number[0], 16)), operands)
    # An SMEM offset of 0 beside a register is spelt where its encoding bit is set.
    operands = re.sub(r" offset:0$", "", operands)
    return " ".join([mnemonic, *operands.replace(",", ", ").split()])


def llvm_listing(elf: bytes, folder: Path) -> dict[int, str]:
    """Offset in .text to normalized instruction; branch targets are offsets in .text too."""
    path = folder / "object.co"
    path.write_bytes(elf)
    command = [str(OBJDUMP), "-d", "--mcpu=gfx950", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    begin = elf_sections(elf)[".text"].address
    symbols = {name: int(address, 16) - begin for address, name in SYMBOL.findall(text)}
    listing = {}
    for line in LINE.finditer(text):
        instruction = line["text"]
        mnemonic, _, label = instruction.partition(" ")
        if label in symbols:  # a branch in a code object that kept its local labels
            instruction = f"{mnemonic} {symbols[label]}"
        elif line["target"]:
            symbol, _, offset = line["target"].partition("+")
            target = symbols[symbol] + int(offset or "0", 16)
            instruction = f"{mnemonic} {target}"
        listing[int(line["address"], 16) - begin] = normalize(instruction)
    return listing


def compare(elf: bytes, name: str, folder: Path) -> int:
    """Asserts that both listings agree; returns how many instructions were compared."""
    code = _C.EmulatedObject(elf, name)
    expected = llvm_listing(elf, folder)
    count = 0
    for kernel in code.kernels:
        for line in code.disassemble(kernel["name"]).splitlines():
            address, _, text = line.partition(": ")
            assert normalize(text) == expected.get(int(address, 16)), f"{kernel['name']} {address}"
            count += 1
    return count
