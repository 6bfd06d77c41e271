"""Rates and sizes of gfx950 (MI355X), each with where it comes from.

None of them was measured by this project, which has no such GPU.
"""

from __future__ import annotations

import re

CLOCK_GHZ = 2.4  # MI355X peak engine clock; sustained matrix work runs slower, by power
CLOCK_GHZ_MI350X = 2.2  # likewise; 1000 W instead of 1400
COMPUTE_UNITS = 256
DIES = 8  # XCDs of 32 compute units; workgroups go to them in turn (HazyResearch/HipKittens)
SIMDS = 4  # of a compute unit
WAVE = 64

# A wave64 instruction holds its SIMD's vector unit for 4 clocks, 16 lanes a clock (CDNA3 ISA, and
# LLVM's SIDPGFX950FullSpeedModel), and a wave issues at most one instruction in that time.
VALU_CLOCKS = 4
# A quarter of the rate (CDNA3 ISA). AMD announces a faster unit for MI350; no measurement is known.
TRANS_CLOCKS = 16
# Two operations in LLVM's model.
TWICE = re.compile(r"v_permlane(16|32)_swap_")

# LDS: 64 banks of 4 bytes for reads, 32 for writes; emulator/lds_banks.h has the phases.
LDS_BYTES = 160 * 1024
LDS_GRANULE = 1280  # allocation unit
# Vector L1: lines of 128 bytes; rocprofiler-compute's peak is 128 bytes a clock, and 64 is what
# CDNA3 reaches.
LINE = 128
L1_BYTES = 64
# fp32 atomics to memory that all eight dies share: 1.32 TB/s of payload is the most seen, in
# aiter's backward with fp32 dq (843 TFLOP/s, B 1, H 64, S 16384; ROCm/aiter op_tests/cpp/mha).
ATOMIC_TB = 1.32
L2_TB = 39.0  # 16 channels x 128 bytes x 8 dies x 2.4 GHz
HBM_TB = 8.0  # data sheet

REGISTERS = 512  # of a lane, architectural and accumulation together, in granules of 8
REGISTER_GRANULE = 8
WAVES = 8  # of a SIMD
WORKGROUPS_WITH_BARRIER = 16  # of a compute unit

# Passes of 4 clocks that an MFMA holds the matrix unit, as llvm-mca 22 reports for gfx950; by shape
# and type of A and B.
_MFMA = re.compile(r"v_mfma_[fi]32_((\d+)x(\d+)x(\d+)(?:_(\d+)b)?_\w+)")
_PASSES = {
    "16x16x32_bf16": 4, "16x16x32_f16": 4, "32x32x16_bf16": 8, "32x32x16_f16": 8,
    "16x16x16_bf16": 4, "16x16x16_f16": 4, "32x32x8_bf16": 8, "32x32x8_f16": 8,
    "16x16x64_i8": 4, "16x16x32_i8": 4, "32x32x32_i8": 8, "32x32x16_i8": 8,
    "16x16x4_f32": 8, "32x32x2_f32": 16,
}  # fmt: skip


def mfma_clocks(mnemonic: str) -> int | None:
    """Clocks that the instruction holds its SIMD's matrix unit; None where that is not known."""
    named = _MFMA.fullmatch(mnemonic)
    passes = _PASSES.get(named[1]) if named else None
    return None if passes is None else 4 * passes


def mfma_flops(mnemonic: str) -> int:
    """Multiplications and additions of one execution; 0 for what is no MFMA."""
    named = _MFMA.fullmatch(mnemonic)
    if named is None:
        return 0
    m, n, k, blocks = (int(number or 1) for number in named.groups()[1:])
    return 2 * m * n * k * blocks


def valu_clocks(mnemonic: str) -> int:
    """Clocks that a vector instruction that is neither MFMA nor transcendental holds its SIMD."""
    return 2 * VALU_CLOCKS if TWICE.match(mnemonic) else VALU_CLOCKS


def waves_per_simd(registers: int, lds_bytes: int, waves: int) -> tuple[int, int, str]:
    """How many workgroups fit a compute unit.

    Args:
        registers: allocated to a lane.
        lds_bytes: of a workgroup, static and dynamic.
        waves: of a workgroup.

    Returns:
        (waves of a SIMD, workgroups of a compute unit, what limits them).
    """
    granules = -(-max(registers, 1) // REGISTER_GRANULE) * REGISTER_GRANULE
    in_registers = REGISTERS // granules  # waves of a SIMD
    in_lds = LDS_BYTES // (-(-lds_bytes // LDS_GRANULE) * LDS_GRANULE) if lds_bytes else None
    limits = {
        # A workgroup of fewer waves than SIMDs leaves the others to the next.
        "registers": in_registers * SIMDS // waves
        if waves < SIMDS
        else in_registers // -(-waves // SIMDS),
        "wave slots": WAVES * SIMDS // waves,
        **({} if in_lds is None else {"LDS": in_lds}),
        **({} if waves == 1 else {"barriers": WORKGROUPS_WITH_BARRIER}),
    }
    limiter = min(limits, key=lambda name: (limits[name], name))
    workgroups = limits[limiter]
    return min(WAVES, -(-workgroups * waves // SIMDS)), workgroups, limiter
