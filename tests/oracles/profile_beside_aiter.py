"""Profiles of our attention backward and of aiter's hand-written one, side by side.

    python tests/oracles/profile_beside_aiter.py [--seqlen 512] [--json] ...

Both are bf16, head dim 128, 2 heads, not causal, dq by fp32 atomics. aiter's kernel comes from the
amd-aiter wheel. Other options are those of `python -m mha_sink profile mha_bwd`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from mha_sink import cli
from oracles import aiter_kernels

CASE, NHEAD, HDIM = "smoke/d128", 2, aiter_kernels.HDIM


def launch_spec(seqlen: int) -> dict[str, Any]:
    """What `profile object` launches aiter's backward with: batch 1, [1, seqlen, NHEAD, HDIM].

    The order of arguments, their slots and units are those of `aiter_kernels.backward`.
    """
    row, head, batch = 2 * NHEAD * HDIM, 2 * HDIM, 2 * seqlen * NHEAD * HDIM  # bytes

    def array(name: str, shape: list[int], dtype: str, fill: str | float) -> dict[str, Any]:
        return {"name": name, "dtype": dtype, "shape": shape, "fill": fill}

    bshd, bhs = [1, seqlen, NHEAD, HDIM], [1, NHEAD, seqlen]
    numbers = {
        "seqlen_q": seqlen, "k_tile": aiter_kernels.BACKWARD_KEYS * row,
        "q_head": head, "q_batch": batch, "q_row": row, "gqa": 1,
        "k_head": head, "k_batch": batch, "k_row": row, "dk_row": row,
        "seqlen_k": seqlen, "hdim_q": HDIM, "hdim_v": HDIM, "nhead": NHEAD,
        "v_head": head, "v_batch": batch, "v_row": row,
        "do_head": head, "do_batch": batch, "do_row": row,
        "dk_head": head, "dk_batch": batch, "dv_head": head, "dv_batch": batch, "dv_row": row,
        "lse_head": 4 * seqlen,
    }  # fmt: skip
    nulls = ("seqstart_q", "seqstart_k", "seqstart_q_padded", "seqstart_k_padded")
    last = {"max_seqlen_dq": seqlen, "mask_x": 0, "mask_y": 0}

    def values(of: dict[str, int]) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": "uint32", "value": n} for name, n in of.items()]

    return {
        "grid": [-(-seqlen // aiter_kernels.BACKWARD_KEYS), NHEAD, 1],
        "block": aiter_kernels.BACKWARD_THREADS,
        "slot": 16,
        "useful_flops": 10 * seqlen * seqlen * HDIM * NHEAD,
        "args": [
            array("dq", [1, NHEAD, seqlen, HDIM], "float32", "zeros"),
            *(array(name, bshd, "bfloat16", "zeros") for name in ("dk", "dv")),
            *(array(name, bshd, "bfloat16", "normal") for name in ("q", "k", "v", "dout")),
            array("lse", bhs, "float32", 10.0), array("delta", bhs, "float32", 0.0),
            {"name": "scale", "dtype": "float32", "value": HDIM**-0.5},
            {"name": "log2e", "dtype": "float32", "value": float(aiter_kernels.LOG2E)},
            *values(numbers),
            *({"name": name, "null": True} for name in nulls),
            *values(last),
        ],
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Exit status of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seqlen", type=int, default=512, help="queries and keys (%(default)s)")
    options, others = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        stem = "bwd_hd128_bf16_a32_psskddv"
        file, spec = Path(folder) / f"{stem}.co", Path(folder) / "launch.json"
        file.write_bytes(aiter_kernels.code_object(stem))
        spec.write_text(json.dumps(launch_spec(options.seqlen)))
        return cli.main(
            ["profile", "mha_bwd", "--case", CASE, "--seqlen", str(options.seqlen),
             "--beside", str(file), "--launch", str(spec), *others]
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
