"""Code objects that are damaged, foreign or wrong give errors, never crashes or hangs."""

import struct
from pathlib import Path

import numpy as np
import pytest

from emulated import elf_sections, launch
from mha_sink import _C

STEMS = ["lds_dma", "barriers", "mfma", "lanes"]


@pytest.fixture(scope="session", params=STEMS)
def elf(request: pytest.FixtureRequest, kernel_folder: Path) -> bytes:
    return (kernel_folder / f"{request.param}.co").read_bytes()


def try_to_load(elf: bytes) -> str | None:
    """The error's message, or None when the object loads; then everything readable is read."""
    try:
        code = _C.EmulatedObject(elf, "damaged.co")
        for kernel in code.kernels:
            code.disassemble(kernel["name"])
            code.source_lines(kernel["name"])
    except _C.EmulationError as error:
        return str(error)
    return None


def test_kernels_are_listed_with_their_resources(kernel_folder: Path) -> None:
    code = _C.EmulatedObject((kernel_folder / "barriers.co").read_bytes(), "barriers")
    assert code.name == "barriers"
    kernels = {kernel["name"]: kernel for kernel in code.kernels}
    assert set(kernels) == {
        "reverse_both_barriers",
        "reverse_no_barrier_before_read",
        "reverse_no_barrier_before_write",
        "sum_with_barriers",
        "sum_without_barriers",
        "barrier_after_others_ended",
        "barrier_deadlock",
    }
    assert kernels["sum_with_barriers"]["lds_bytes"] == 1024
    assert kernels["barrier_after_others_ended"]["lds_bytes"] == 0
    for kernel in kernels.values():
        assert kernel["scratch_bytes"] == kernel["vgpr_spills"] == kernel["mfma"] == 0
        assert 0 < kernel["vgpr"] < 64


def test_truncated_objects_are_errors(elf: bytes) -> None:
    text = elf_sections(elf)[".text"]
    for size in [*range(256), *range(256, text.offset + text.size, 97)]:
        assert try_to_load(elf[:size]) is not None, size
    for size in range(text.offset + text.size, len(elf), 97):
        try_to_load(elf[:size])  # may load: what is cut off is for linkers and debuggers


def test_empty_and_foreign_files_are_named(kernel_folder: Path) -> None:
    for content in (b"", b"\x7fELF", b"not an object" * 100, Path("/proc/self/exe").read_bytes()):
        message = try_to_load(content)
        assert message is not None
        assert "damaged.co" in message


def test_other_architecture_is_named(elf: bytes) -> None:
    # e_flags bits 0..7: 0x4c is gfx942, 0x4f gfx950.
    assert elf[48] == 0x4F
    message = try_to_load(elf[:48] + b"\x4c" + elf[49:])
    assert message is not None
    assert "gfx950" in message


def test_random_damage_never_crashes(elf: bytes) -> None:
    """Bytes, words and ranges overwritten anywhere: an error or a readable object."""
    random = np.random.default_rng(len(elf))
    outcomes = []
    for _ in range(300):
        damaged = bytearray(elf)
        for _ in range(random.integers(1, 8)):
            kind, at = random.integers(4), int(random.integers(len(elf) - 16))
            # Half of all damage in the first 4 KiB: headers, notes, symbols, descriptors.
            if random.integers(2):
                at = int(random.integers(4096))
            if kind == 0:
                damaged[at] ^= 1 << random.integers(8)
            elif kind == 1:
                damaged[at : at + 4] = random.bytes(4)
            elif kind == 2:
                extreme = [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, len(elf)][random.integers(5)]
                damaged[at : at + 4] = struct.pack("<I", extreme)
            else:
                damaged[at : at + 16] = elf[:16]
        outcomes.append(try_to_load(bytes(damaged)))
    refused = [message for message in outcomes if message is not None]
    assert refused
    assert all("damaged.co" in message for message in refused)


def test_random_damage_to_code_stays_within_bounds(
    kernel_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged programs that still decode run into a fault or to their end."""
    monkeypatch.setenv("MHA_SINK_MAX_INSTRUCTIONS", "100000")
    elf = (kernel_folder / "barriers.co").read_bytes()
    text = elf_sections(elf)[".text"]
    random = np.random.default_rng(7)
    x = np.arange(256, dtype=np.float32)
    x.flags.writeable = False
    memory = np.full(4096, 7, np.float32)
    for _ in range(400):
        damaged = bytearray(elf)
        damaged[text.offset + int(random.integers(text.size))] ^= 1 << random.integers(8)
        try:
            code = _C.EmulatedObject(bytes(damaged), "damaged.co")
            launch(code, "sum_with_barriers", 1, 256, {"x": x, "out": memory[2048:2049]})
        except _C.EmulationError:
            pass
        assert (memory[:2048] == 7).all()
        assert (memory[2049:] == 7).all()
