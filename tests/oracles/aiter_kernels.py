"""AMD's hand-written gfx950 attention kernels, taken from the amd-aiter wheel on PyPI.

The wheel (MIT, 40 MB) is fetched once; eight of its code objects stay in a cache folder.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

import numpy as np

import wheels
from emulated import Array, launch
from mha_sink import _C

REQUIREMENT = "amd-aiter==0.1.7.post2.dev18"
FOLDER = "aiter_meta/hsa/gfx950/fmha_v3_[fb]wd"
# SHA-256 of <name>.co in one of the two folders of that wheel.
OBJECTS = {
    "fwd_hd128_bf16": "0db3e1b8fbd078c628f79dccf0641129cc0d14b18e3273733f384c0427250183",
    "fwd_hd128_bf16_causal": "bb2ba1c81baec331fc1a5fc7e7b16a0e773131e368baf3624a2ca0a2ac543000",
    "bwd_hd128_bf16_a32_psskddv": (
        "93728df7751c1ac50e771b8e3b2d0f8678da677562347d1421de788dc60d74b2"
    ),
    "bwd_hd128_bf16_causal_a32_psskddv": (
        "68bc0945e45bf8f557384efa734d6d8e928e566c29ad618c1ba90c04bb4a7aaa"
    ),
    "bwd_hd128_bf16_a16_psskddv": (
        "7a201e61c34d95394829b6d55774db5d4b03b52f0ead8f0ec32ad9a918ce4066"
    ),
    "bwd_hd128_bf16_causal_a16_psskddv": (
        "88472e015091dff706ed19f12c0044549156af948b97017fa42c885e78a17900"
    ),
    "bwd_hd64_bf16_a32_rtne_pssk": (
        "7e39ae2dd584e23a956206cf871b4ed82f56e11ba084b8362584a6959e30cd60"
    ),
    "bwd_hd64_bf16_causal_a32_rtne_pssk": (
        "b905916e5965368c786b1fd37a658a4e14aeab881a26eb47a752183ed4942570"
    ),
}
HDIM = 128
FORWARD_QUERIES, FORWARD_THREADS = 256, 512  # a tile's queries; work-items of a workgroup
BACKWARD_KEYS, BACKWARD_KEYS_HD64, BACKWARD_THREADS = 256, 192, 256
LOG2E = np.float32(1.4426950408889634)


def code_object(stem: str) -> bytes:
    """The ELF file of one of OBJECTS. Raises wheels.Unavailable."""
    folder = wheels.files(REQUIREMENT, *(f"{FOLDER}/{name}.co" for name in OBJECTS))
    (path,) = folder.glob(f"{FOLDER}/{stem}.co")
    elf = path.read_bytes()
    if hashlib.sha256(elf).hexdigest() != OBJECTS[stem]:
        raise RuntimeError(f"{path} is not what {REQUIREMENT} holds: remove it")
    return elf


class Loaded(NamedTuple):
    elf: bytes
    code: _C.EmulatedObject
    kernel: str


@cache
def load(stem: str) -> Loaded:
    elf = code_object(stem)
    code = _C.EmulatedObject(elf, f"aiter {stem}")
    (kernel,) = (info["name"] for info in code.kernels)
    return Loaded(elf, code, kernel)


def in_slots(
    arguments: dict[str, Array | np.generic | None], slot: int = 16
) -> dict[str, Array | np.generic]:
    """Each argument alone in a slot of so many bytes, as these kernels read them: padding goes in
    between."""
    spread: dict[str, Array | np.generic] = {}
    for name, value in arguments.items():
        size = 8 if value is None or isinstance(value, np.ndarray) else value.itemsize
        spread[name] = np.uint64(0) if value is None else value
        for i in range((slot - size) // 4):
            spread[f"{name} padding {i}"] = np.uint32(0)
    return spread


def strides(tensor: Array) -> tuple[np.uint32, np.uint32, np.uint32]:
    """Bytes from one head, batch and row to the next of [batch, seqlen, nhead, hdim]."""
    batch, row, head, _ = tensor.strides
    return np.uint32(head), np.uint32(batch), np.uint32(row)


def forward(
    q: Array, k: Array, v: Array, out: Array, lse: Array, scale: float, causal: bool,
    schedule: tuple[int, bool] | None = None,
) -> _C.InstructionMix:  # fmt: skip
    """q, k, v, out: bf16 bits [batch, seqlen, nhead, HDIM]; lse: fp32 [batch, nhead, seqlen_q].

    The argument order and units are those of fmha_fwd_v3_args in aiter's mha_fwd.h.
    """
    batch, seqlen_q, nhead, _ = q.shape
    seqlen_k, nhead_k = k.shape[1:3]
    q_head, q_batch, q_row = strides(q)
    k_head, k_batch, k_row = strides(k)
    v_head, v_batch, v_row = strides(v)
    o_head, o_batch, o_row = strides(out)
    arguments = {
        "out": out, "q": q, "k": k, "v": v, "lse": lse,
        "scale": np.float32(scale),
        "seqlen_q": np.uint32(seqlen_q),
        "q_row": q_row,
        "q_tile": np.uint32(FORWARD_QUERIES * q_row),
        "q_head": q_head,
        "q_batch": q_batch,
        "gqa": np.uint32(nhead // nhead_k),
        "k_row": k_row, "k_head": k_head, "k_batch": k_batch,
        # Which order workgroups take tiles in: 5, or 3 for causal with nhead not a multiple of 8.
        "option": np.uint32(3 if causal and nhead % 8 else 5),
        "has_lse": np.uint32(1),
        "seqlen_k": np.uint32(seqlen_k),
        "hdim_q": np.uint32(HDIM), "hdim_v": np.uint32(HDIM),
        "nhead": np.uint32(nhead),
        "v_row": v_row, "v_head": v_head, "v_batch": v_batch,
        "out_row": o_row, "out_head": o_head, "out_batch": o_batch,
        "seqstart_q": None, "seqstart_k": None,
        "lse_head": np.uint32(lse.strides[1]),
        "seqstart_q_padded": None, "seqstart_k_padded": None,
    }  # fmt: skip
    tiles = -(-seqlen_q // FORWARD_QUERIES)
    grid = (-(-tiles // 2) if causal else tiles, nhead, batch)  # causal: two tiles a workgroup
    loaded = load("fwd_hd128_bf16_causal" if causal else "fwd_hd128_bf16")
    return launch(loaded.code, loaded.kernel, grid, FORWARD_THREADS, in_slots(arguments), schedule)


def backward(
    q: Array, k: Array, v: Array, dout: Array, lse: Array, delta: Array,
    dq: Array, dk: Array, dv: Array, scale: float, causal: bool,
    schedule: tuple[int, bool] | None = None,
) -> _C.InstructionMix:  # fmt: skip
    """dk, dv: bf16 bits like k; lse, delta: fp32 [batch, nhead, seqlen_q].

    dq: zeroed fp32 [batch, nhead, seqlen_q, hdim]; the kernel adds to it atomically.

    The argument order and units are those of fmha_bwd_v3_args_gfx950 in aiter's codegen.py.
    """
    if q.shape[-1] == 64:
        return backward_hd64(q, k, v, dout, lse, delta, dq, dk, dv, scale, causal, schedule)
    batch, seqlen_q, nhead, _ = q.shape
    seqlen_k, nhead_k = k.shape[1:3]
    q_head, q_batch, q_row = strides(q)
    k_head, k_batch, k_row = strides(k)
    v_head, v_batch, v_row = strides(v)
    do_head, do_batch, do_row = strides(dout)
    dk_head, dk_batch, dk_row = strides(dk)
    dv_head, dv_batch, dv_row = strides(dv)
    arguments = {
        "dq": dq, "dk": dk, "dv": dv, "q": q, "k": k, "v": v, "dout": dout,
        "lse": lse, "delta": delta,
        "scale": np.float32(scale), "log2e": LOG2E,
        "seqlen_q": np.uint32(seqlen_q),
        "k_tile": np.uint32(BACKWARD_KEYS * k_row),
        "q_head": q_head, "q_batch": q_batch, "q_row": q_row,
        "gqa": np.uint32(nhead // nhead_k),
        "k_head": k_head, "k_batch": k_batch, "k_row": k_row,
        "dk_row": dk_row,
        "seqlen_k": np.uint32(seqlen_k),
        "hdim_q": np.uint32(HDIM), "hdim_v": np.uint32(HDIM),
        "nhead": np.uint32(nhead),
        "v_head": v_head, "v_batch": v_batch, "v_row": v_row,
        "do_head": do_head, "do_batch": do_batch, "do_row": do_row,
        "dk_head": dk_head, "dk_batch": dk_batch,
        "dv_head": dv_head, "dv_batch": dv_batch, "dv_row": dv_row,
        "lse_head": np.uint32(lse.strides[1]),
        "seqstart_q": None, "seqstart_k": None,
        "seqstart_q_padded": None, "seqstart_k_padded": None,
        "max_seqlen_dq": np.uint32(seqlen_q),
        "mask_x": np.int32(0), "mask_y": np.int32(0),
    }  # fmt: skip
    tiles = -(-seqlen_k // BACKWARD_KEYS)
    grid = (-(-tiles // 2) if causal else tiles, nhead, batch)  # causal: two tiles a workgroup
    loaded = load(f"bwd_hd128_bf16_{'causal_' if causal else ''}a32_psskddv")
    return launch(loaded.code, loaded.kernel, grid, BACKWARD_THREADS, in_slots(arguments), schedule)


def backward_hd64(
    q: Array, k: Array, v: Array, dout: Array, lse: Array, delta: Array,
    dq: Array, dk: Array, dv: Array, scale: float, causal: bool,
    schedule: tuple[int, bool] | None = None,
) -> _C.InstructionMix:  # fmt: skip
    """As `backward`, of head dim 64.

    The argument order and units are those of fmha_bwd_v3_genl_args in aiter's mha_bwd.h.
    """
    batch, seqlen_q, nhead, hdim = q.shape
    seqlen_k, nhead_k = k.shape[1:3]
    arguments: dict[str, Array | np.generic | None] = {
        "dq": dq, "dk": dk, "dv": dv, "q": q, "k": k, "v": v, "dout": dout,
        "lse": lse, "delta": delta,
        "scale": np.float32(scale), "log2e": LOG2E,
        "gqa": np.uint32(nhead // nhead_k),
        "seqlen_q": np.uint32(seqlen_q), "seqlen_k": np.uint32(seqlen_k),
        "hdim": np.uint32(hdim), "nhead": np.uint32(nhead),
    }  # fmt: skip
    for name, tensor in {"q": q, "k": k, "v": v, "do": dout, "dk": dk, "dv": dv}.items():
        arguments |= zip(
            (f"{name}_head", f"{name}_batch", f"{name}_row"), strides(tensor), strict=True
        )
    tiles = -(-seqlen_k // BACKWARD_KEYS_HD64)
    grid = (-(-tiles // 2) if causal else tiles, nhead, batch)  # causal: two tiles a workgroup
    loaded = load(f"bwd_hd64_bf16_{'causal_' if causal else ''}a32_rtne_pssk")
    return launch(
        loaded.code, loaded.kernel, grid, BACKWARD_THREADS, in_slots(arguments, 8), schedule
    )
