"""Wait states around MFMAs that the compiler cannot see.

csrc/hip/arch/mfma.h writes MFMAs as asm, which LLVM's hazard recogniser skips. These are the two
rules that it would enforce for v_mfma_f32_32x32x16 (8 passes) and v_mfma_f32_16x16x32 (4 passes),
read off what clang 22 does around the intrinsics: 2 wait states between a VALU write and an MFMA
that reads it, 12 and 8 between an MFMA and another instruction that touches its result.
"""

import re
from collections.abc import Iterator

import pytest

from mha_sink import _C

VALU_TO_MFMA = 2
MFMA_TO_ANY = {"v_mfma_f32_32x32x16": 12, "v_mfma_f32_16x16x32": 8}

REGISTER = re.compile(r"\b([va])(?:\[(\d+):(\d+)\]|(\d+)\b)")

Instruction = tuple[str, list[str]]


def registers(operands: list[str]) -> set[tuple[str, int]]:
    found = set()
    for file, first, last, single in REGISTER.findall(", ".join(operands)):
        first, last = (single, single) if single else (first, last)
        found |= {(file, index) for index in range(int(first), int(last) + 1)}
    return found


def parse(listing: str) -> list[Instruction]:
    program = []
    for line in listing.splitlines():
        mnemonic, _, operands = line.partition(": ")[2].strip().partition(" ")
        program.append((mnemonic, [operand.strip() for operand in operands.split(",")]))
    return program


def is_mfma(mnemonic: str) -> bool:
    return mnemonic.startswith("v_mfma")


def hazards(program: list[Instruction]) -> Iterator[str]:
    """Violations of the two rules, in program order: a branch in between only adds states."""
    for index, (mnemonic, operands) in enumerate(program):
        if mnemonic.startswith("s_"):
            continue
        read = registers(operands[1:3]) if is_mfma(mnemonic) else set()
        touched = set() if is_mfma(mnemonic) else registers(operands)
        states = 0
        for before, before_operands in reversed(program[:index]):
            if states >= max(MFMA_TO_ANY.values()):
                break
            written = registers(before_operands[:1])
            if is_mfma(before):
                needed = MFMA_TO_ANY[before.rpartition("_")[0]]
                conflict = written & (touched | read)
            else:
                needed, conflict = VALU_TO_MFMA, written & read if before[:2] == "v_" else set()
            if conflict and states < needed:
                yield f"#{index} {mnemonic} {operands} {states} states after {before}"
            states += int(before_operands[0]) + 1 if before == "s_nop" else 1


def listing(*lines: str) -> str:
    return "\n".join(f"{4 * i:x}: {line}" for i, line in enumerate(lines))


MFMA = "v_mfma_f32_32x32x16_bf16 v[0:15], v[20:23], v[24:27], 0"
SMALL = "v_mfma_f32_16x16x32_f16 v[0:3], v[20:23], v[24:27], 0"


@pytest.mark.parametrize(
    "lines",
    [
        ("v_mov_b32 v20, 0", MFMA),
        ("v_mov_b32 v20, 0", "s_nop 0", MFMA),
        (MFMA, "s_nop 10", "v_add_f32 v30, v15, v31"),
        (MFMA, "global_store_dwordx4 v40, v[12:15], s[2:3]"),
        (SMALL, "s_nop 6", "v_add_f32 v30, v3, v31"),
    ],
)
def test_finds_a_missing_wait(lines: tuple[str, ...]) -> None:
    assert list(hazards(parse(listing(*lines))))


@pytest.mark.parametrize(
    "lines",
    [
        ("v_mov_b32 v20, 0", "s_nop 1", MFMA, "s_nop 11", "v_add_f32 v30, v15, v31"),
        ("v_mov_b32 v20, 0", "s_nop 1", SMALL, "s_nop 7", "v_add_f32 v30, v3, v31"),
    ],
)
def test_accepts_enough_waiting(lines: tuple[str, ...]) -> None:
    assert not list(hazards(parse(listing(*lines))))


@pytest.mark.parametrize("kernel", [kernel["name"] for kernel in _C.kernels()])
def test_kernels_wait(kernel: str) -> None:
    code = _C.EmulatedObject(_C.kernel_binary(kernel), kernel)
    assert not list(hazards(parse(code.disassemble(kernel))))
