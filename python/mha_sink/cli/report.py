"""Tables that commands share: what the gate measured, and what kernels executed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mha_sink import _C
from mha_sink.cli.table import print_table
from mha_sink.testing import GateResult

# Instruction classes by the unit that executes them; the rest is scalar and control.
MIX_CLASSES = ("mfma", "accvgpr", "valu", "trans", "lds", "vmem", "atomic")


def print_gate(title: str, result: GateResult) -> None:
    """Each tensor's error against float64 beside that of `reference.mixed`."""
    print_table(
        title,
        ("tensor", "max |x64|", "error", "mixed's error", "allowed", "gate"),
        [
            (
                t.name,
                f"{t.magnitude:.3e}",
                f"{t.error:.3e}",
                f"{t.reference_error:.3e}",
                f"{t.allowed:.3e}",
                t.status.value,
            )
            for t in result.tensors
        ],
    )
    for tensor in result.tensors:
        if tensor.reason:
            print(f"{tensor.name}: {tensor.reason}")


def print_instruction_mix(profile: Mapping[str, _C.InstructionMix]) -> None:
    """Share of each instruction class in what each kernel executed."""
    rows = []
    for kernel, mix in profile.items():
        total = mix["wave_instructions"]
        shares = [mix["classes"].get(name, 0) / max(total, 1) for name in MIX_CLASSES]
        cells = [f"{share:.1%}" for share in (*shares, 1 - sum(shares) if total else 0.0)]
        rows.append((kernel, f"{total:,}", *cells))
    print_table(
        "Instructions executed", ("kernel", "wave instructions", *MIX_CLASSES, "scalar"), rows
    )


ACCESS = re.compile(r"(s_load|s_buffer_load|ds(?!_b?permute|_swizzle)|global|buffer|flat|scratch)_")
WIDTH = re.compile(r"_(?:dwordx(\d+)|(dword)|[su]?(byte)|[su]?(short)|[ubif]+(\d+))")


def bytes_moved(mix: _C.InstructionMix, space: str) -> int:
    """Bytes that the executed accesses to "global" memory or to "lds" move with all lanes active.

    A load from global memory into LDS counts as global.
    """
    return sum(
        count * access_bytes(mnemonic)
        for mnemonic, count in mix["mnemonics"].items()
        if mnemonic.startswith("ds_") == (space == "lds")
    )


def access_bytes(mnemonic: str) -> int:
    """Bytes that one wave moves with an instruction; 0 when it does not access memory."""
    access, width = ACCESS.match(mnemonic), WIDTH.search(mnemonic)
    if access is None:
        return 0
    if "_atomic_" in mnemonic:  # 32 bits, packed pairs too, unless it says otherwise
        return 64 * (8 if mnemonic.endswith(("_x2", "_f64")) else 4)
    if width is None:
        return 0
    dwords, dword, byte, _, bits = width.groups()
    size = 4 * int(dwords) if dwords else 4 if dword else 1 if byte else int(bits or 16) // 8
    lanes = 1 if access[1].startswith("s_") else 64
    return size * lanes * (2 if "read2" in mnemonic or "write2" in mnemonic else 1)


def mfma_flops(mix: _C.InstructionMix) -> int:
    """Multiplications and additions of the executed matrix instructions."""
    total = 0
    for mnemonic, count in mix["mnemonics"].items():
        shape = re.match(r"v_mfma_\w+?_(\d+)x(\d+)x(\d+)", mnemonic)
        if shape is not None:
            m, n, k = map(int, shape.groups())
            total += 2 * m * n * k * count
    return total
