"""Runs gate cases of every kernel with the mha_sink found first, and prints a JSON report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import torch

from mha_sink import _C
from mha_sink.testing import Case, GateResult, case, check_mha_bwd, make_inputs
from mha_sink.testing.sparse_mla import (
    SparseCase,
    check_sparse_bwd,
    check_sparse_fwd,
    make_sparse_inputs,
)

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
            chosen = Case(kernel["name"], *shape, causal=True, dtype=DTYPES[dtype])
            found.append(replace(chosen, hdim_v=int(hdim_v) if hdim_v else None))
    return found


def results() -> Iterator[tuple[str, GateResult]]:
    for chosen in cases():
        inputs = make_inputs(chosen)
        yield chosen.name, check_mha_bwd(inputs)
        yield f"{chosen.name} deterministic", check_mha_bwd(inputs, deterministic=True)
    yield "packed", check_mha_bwd(make_inputs(case("packed/padded")))
    for dtype in DTYPES.values():
        for heads in (16, 32, 64, 128):
            sparse = make_sparse_inputs(SparseCase("sparse", 9, heads, 96, 7, dtype=dtype))
            yield f"sparse forward {dtype} {heads}", check_sparse_fwd(sparse)
            yield f"sparse backward {dtype} {heads}", check_sparse_bwd(sparse)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    _C.profile_start()
    failed = {name: str(result) for name, result in results() if not result.passed}
    launched = _C.profile_stop()
    report = {
        "extension": _C.__file__,
        "build": _C.build_info(),
        "launched": sorted(launched),
        "failed": failed,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
