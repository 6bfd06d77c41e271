"""Tables that commands share: what the gate measured, and what kernels executed."""

from __future__ import annotations

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
