"""Our disassembly and line tables of a code object compared with LLVM's."""

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from emulated import elf_sections
from mha_sink import _C


def llvm_tool(name: str) -> str | None:
    return next(filter(None, (shutil.which(f"{name}-{v}") for v in (22, 21, 20))), None)


OBJDUMP, DWARFDUMP = llvm_tool("llvm-objdump"), llvm_tool("llvm-dwarfdump")
needs_objdump = pytest.mark.skipif(OBJDUMP is None, reason="no llvm-objdump-20 to -22 is installed")
needs_dwarfdump = pytest.mark.skipif(
    DWARFDUMP is None, reason="no llvm-dwarfdump-20 to -22 is installed"
)

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


DIRECTORY = re.compile(r'^include_directories\[ *(\d+)\] = "(.*)"$', re.M)
FILE = re.compile(r'^file_names\[ *(\d+)\]:\n +name: "(.*)"\n +dir_index: (\d+)$', re.M)
ROW = re.compile(r"^0x([0-9a-f]{16}) +(\d+) +\d+ +(\d+) .*?( end_sequence)?$", re.M)


def llvm_lines(elf: bytes, folder: Path) -> dict[int, tuple[str, int]]:
    """File and line of every fourth offset in .text that a row of llvm-dwarfdump covers."""
    path = folder / "object.co"
    path.write_bytes(elf)
    command = [str(DWARFDUMP), "--debug-line", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    begin = elf_sections(elf)[".text"].address
    lines = {}
    for unit in text.split("Line table prologue:")[1:]:
        directories = {int(i): name for i, name in DIRECTORY.findall(unit)}
        files = {
            int(i): os.path.normpath(
                os.path.join(directories.get(0, ""), directories.get(int(directory), ""), name)
            )
            for i, name, directory in FILE.findall(unit)
        }
        rows = [(int(a, 16) - begin, int(n), int(f), end) for a, n, f, end in ROW.findall(unit)]
        for (address, line, file, end), (next_address, *_) in pairwise(rows):
            if not end and line:
                lines.update(dict.fromkeys(range(address, next_address, 4), (files[file], line)))
    return lines


def compare_lines(elf: bytes, name: str, folder: Path) -> int:
    """Asserts that both find the same lines; returns how many instructions have one."""
    code = _C.EmulatedObject(elf, name)
    expected = llvm_lines(elf, folder)
    count = 0
    for kernel in (info["name"] for info in code.kernels):
        places = code.source_lines(kernel)
        for (address, *_), place in zip(code.instructions(kernel), places, strict=True):
            assert place == expected.get(address), f"{kernel} {address:#x}"
            count += place is not None
    return count
