"""Source lines from the line tables of code objects, and what is shown where there are none.

Planted faults name theirs in test_faults.py and test_sanitizer.py; tests/cpp/line_table_test.cpp
has tables that no compiler writes.
"""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from emulated import Section, elf_sections, launch, place
from listing import compare_lines, needs_dwarfdump
from mha_sink import _C, emulator

LINE_SECTIONS = (".debug_line", ".debug_line_str", ".debug_str")


@pytest.fixture(scope="session")
def faults(kernel_folder: Path) -> bytes:
    return (kernel_folder / "faults.co").read_bytes()


def fault_of(elf: bytes) -> str:
    """What the emulator says of an access out of bounds."""
    x = np.zeros(64, np.uint32)
    arguments = {"x": x, "out": x, "index": np.int32(64)}
    with pytest.raises(_C.EmulationError) as fault:
        launch(_C.EmulatedObject(elf, "faults"), "global_read", 1, 64, arguments)
    return re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", str(fault.value))


def test_files_are_named_as_the_build_named_them(kernel_folder: Path) -> None:
    """-ffile-prefix-map makes them relative to the repository, on every machine."""
    for path in sorted(kernel_folder.glob("*.co")):
        if path.stem in ("undefined", "unsupported"):
            continue
        code = emulator.load(path)
        for kernel in code.kernels:
            lines = code.source_lines(kernel)
            assert len(lines) == len(code.instructions(kernel))
            files = {line.file for line in lines if line is not None}
            assert files, kernel
            assert files <= {f"tests/kernels/{path.stem}.hip", "tests/kernels/gfx950.h"}


def test_a_source_line_as_text_has_the_base_name() -> None:
    assert str(emulator.SourceLine("/a/b.hip", 7)) == "b.hip:7"


@needs_dwarfdump
def test_lines_of_the_test_kernels_are_llvms(kernel_folder: Path, tmp_path: Path) -> None:
    refused = {"unsupported", "undefined"}
    paths = [path for path in sorted(kernel_folder.glob("*.co")) if path.stem not in refused]
    assert sum(compare_lines(path.read_bytes(), path.stem, tmp_path) for path in paths) > 1000


def test_library_kernels_have_lines_if_the_build_was_told_so() -> None:
    """MHA_SINK_KERNEL_LINES, off by default."""
    for kernel in (info["name"] for info in _C.kernels()):
        elf = _C.kernel_binary(kernel)
        found = emulator.load(elf, kernel).source_lines(kernel)
        assert any(found) == (".debug_line" in elf_sections(elf)), kernel


def section_header(elf: bytes, section: Section) -> int:
    """Offset in the file of the section's header."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    (count,) = struct.unpack_from("<H", elf, 60)
    (at,) = (
        at
        for at in range(table, table + 64 * count, 64)
        if struct.unpack_from("<QQ", elf, at + 24) == (section.offset, section.size)
    )
    return at


# What a header of .debug_line says: offset in the header, format, value.
UNREADABLE = {
    "compressed": (8, "<Q", 0x800),
    "without bytes in the file": (4, "<I", 8),
    "past the end of the file": (24, "<Q", 1 << 40),
    "of more bytes than there are": (32, "<Q", 1 << 63),
    "empty": (32, "<Q", 0),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_section_that_cannot_be_read_leaves_messages_without_lines(
    faults: bytes, what: str
) -> None:
    known = fault_of(faults)
    line = " " + place("faults", "global_read's access")
    assert line in known
    at, form, value = UNREADABLE[what]
    damaged = bytearray(faults)
    header = section_header(faults, elf_sections(faults)[".debug_line"])
    struct.pack_into(form, damaged, header + at, value)
    assert fault_of(bytes(damaged)) == known.replace(line, "")


def test_strings_that_are_missing_leave_messages_without_lines(faults: bytes) -> None:
    damaged = bytearray(faults)
    sections = elf_sections(faults)
    for name in LINE_SECTIONS[1:]:
        struct.pack_into("<Q", damaged, section_header(faults, sections[name]) + 32, 0)
    assert " (" not in fault_of(bytes(damaged)).partition("workgroup")[0]


def test_damaged_tables_change_no_behaviour(faults: bytes) -> None:
    """Whatever lines they then say."""

    def without_lines(message: str) -> str:
        return re.sub(r"` at (0x\w+)(?: \(.*:\d+\))?, workgroup", r"` at \1, workgroup", message)

    known = without_lines(fault_of(faults))
    sections = [elf_sections(faults)[name] for name in LINE_SECTIONS]
    random = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(faults)
        for _ in range(random.integers(1, 6)):
            section = sections[random.integers(len(sections))]
            damaged[section.offset + int(random.integers(section.size))] = random.integers(256)
        assert without_lines(fault_of(bytes(damaged))) == known
