"""Mutants of dq_dk_dv's machine code: each lacks a barrier, a product or a memory access."""

from __future__ import annotations

import functools
import math
import struct

import pytest
import torch

from emulated import SCHEDULES, elf_sections
from mha_sink import _C, EmulationError
from mha_sink.testing import Case, GateResult, check, expected, make_inputs

KERNEL = "mha_dq_dk_dv_bf16_hd64"
S_NOP = 0xBF800000
S_BARRIER = 0xBF8A0000
KEYS_PER_WORKGROUP, ROW_PADDING, UNBOUNDED = 256, 64, 0x3FFFFFFF
# Several query tiles, so that the double buffer is refilled, the last of them ragged, with rows for
# every atomic; all keys of a workgroup in use.
SHAPE = Case("mutants", 1, 319, 256, 2, 1, 64, causal=True)


@functools.cache
def prepared():
    inputs = make_inputs(SHAPE)
    return inputs, expected(inputs)


def code_object() -> bytearray:
    return bytearray(_C.kernel_binary(KERNEL))


def instructions(mnemonic: str) -> list[int]:
    """Where in the file the instructions of that name lie."""
    elf = bytes(code_object())
    text = elf_sections(elf)[".text"].offset  # one kernel, at the start of its section
    lines = _C.EmulatedObject(elf, KERNEL).disassemble(KERNEL).splitlines()
    found = [line.partition(": ") for line in lines]
    return [text + int(at, 16) for at, _, rest in found if rest.startswith(mnemonic)]


def replaced(offsets: list[int], words: int = 1) -> bytearray:
    """The code object with s_nop in place of instructions of so many 32-bit words."""
    elf = code_object()
    for at in offsets:
        struct.pack_into(f"<{words}I", elf, at, *([S_NOP] * words))
    return elf


def run(elf: bytearray, schedule: tuple[int, bool] = (50, False)) -> GateResult:
    """The kernel alone, between torch's versions of what dot_do_o and convert_dq compute."""
    inputs, against = prepared()
    shape = SHAPE
    padded = -(-shape.seqlen_q // ROW_PADDING) * ROW_PADDING
    rows = (shape.batch, shape.nhead_q, padded)
    row_lse, row_delta = torch.full(rows, -math.inf), torch.zeros(rows)
    blind = inputs.lse == -math.inf
    row_lse[..., : shape.seqlen_q] = (-inputs.lse / math.log(2)).masked_fill(blind, -math.inf)
    row_delta[..., : shape.seqlen_q] = against.xr["softmax_d"]
    dq_acc = torch.zeros(shape.batch, shape.nhead_q, shape.seqlen_q, shape.hdim)
    dk, dv = (torch.full_like(inputs.k, math.nan) for _ in range(2))
    tensors = {
        "q": inputs.q, "k": inputs.k, "v": inputs.v, "dout": inputs.dout, "dk": dk, "dv": dv,
    }  # fmt: skip
    vectors = {"row_lse": row_lse, "row_delta": row_delta, "dq_acc": dq_acc}
    # DqDkDvParams of csrc/hip/mha/params.h.
    arguments = struct.pack("<2q2i", 0, 0, shape.seqlen_q, shape.seqlen_k)
    arguments += b"".join(
        struct.pack("<4q", x.data_ptr(), *x.stride()[:3]) for x in tensors.values()
    )
    arguments += struct.pack(
        "<7q", row_lse.data_ptr(), row_delta.data_ptr(), *row_lse.stride()[:2],
        dq_acc.data_ptr(), shape.nhead_q * shape.seqlen_q, shape.seqlen_q,
    )  # fmt: skip
    arguments += struct.pack(
        "<4if3i", shape.nhead_q, shape.nhead_k, shape.hdim, shape.hdim, shape.scale, UNBOUNDED, 0, 0
    )
    memory = [
        (x.data_ptr(), x.numel() * x.element_size(), name in ("dk", "dv", "dq_acc"), name)
        for name, x in {**tensors, **vectors}.items()
    ]
    grid = (shape.nhead_k, -(-shape.seqlen_k // KEYS_PER_WORKGROUP), shape.batch)
    _C.EmulatedObject(bytes(elf), KERNEL).launch(
        KERNEL, grid, (256, 1, 1), arguments, memory, 0, *schedule
    )
    dq = (dq_acc * shape.scale).transpose(1, 2).to(torch.bfloat16)
    names = ("dq", "dk", "dv")
    return check(
        {"dq": dq, "dk": dk, "dv": dv},
        {name: against.x64[name] for name in names},
        {name: against.xr[name] for name in names},
    )


def caught(elf: bytearray) -> bool:
    """Whether some schedule of the waves makes the mutant fail."""
    for schedule in SCHEDULES:
        try:
            if run(elf, schedule).failures:
                return True
        except EmulationError:
            return True
    return False


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_original_passes(schedule):
    result = run(code_object(), schedule)
    assert result.passed, str(result)


def test_each_barrier_counts():
    barriers = instructions("s_barrier")
    elf = code_object()
    assert [struct.unpack_from("<I", elf, at)[0] for at in barriers] == [S_BARRIER] * len(barriers)
    assert len(barriers) >= 2
    survivors = [hex(at) for at in barriers if not caught(replaced([at]))]
    assert survivors == []


@pytest.mark.parametrize(
    "mnemonic", ["v_mfma", "buffer_atomic", "ds_write", "ds_read", "buffer_load"]
)
def test_each_product_and_access_counts(mnemonic):
    """Each is two words long. A sample, spread over the kernel."""
    found = instructions(mnemonic)
    assert len(found) >= 8
    survivors = [hex(at) for at in found[::5] if not caught(replaced([at], 2))]
    assert survivors == []
