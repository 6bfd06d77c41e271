"""Runs gate cases of every kernel with the mha_sink found first, and prints a JSON report."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch

from mha_sink import _C
from mha_sink.testing import Case, check_mha_bwd, make_inputs

PREFIX = "mha_dq_dk_dv_"
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def cases() -> list[Case]:
    """For each dtype and head dim that has kernels: odd lengths, grouped heads, a mask, sinks."""
    found = []
    for kernel in _C.kernels():
        if kernel["name"].startswith(PREFIX):
            dtype, _, hdims = kernel["name"].removeprefix(PREFIX).partition("_hd")
            hdim, _, hdim_v = hdims.partition("x")
            shape = (1, 65, 129, 4, 2, int(hdim))
            case = Case(kernel["name"], *shape, causal=True, dtype=DTYPES[dtype])
            found.append(replace(case, hdim_v=int(hdim_v) if hdim_v else None))
    return found


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    _C.profile_start()
    results = {case.name: check_mha_bwd(make_inputs(case)) for case in cases()}
    launched = _C.profile_stop()
    report = {
        "extension": _C.__file__,
        "build": _C.build_info(),
        "launched": sorted(launched),
        "failed": {name: str(result) for name, result in results.items() if not result.passed},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
