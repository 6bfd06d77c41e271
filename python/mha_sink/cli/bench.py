"""Phases of the sparse MLA backward: milliseconds on a GPU, instructions and bytes without one.

The indices are those of DeepSeek-V4, a causal window and a pool of compressed keys, unless uniform
ones are asked for. q, kv, o, do and lse are random: only the correctness check looks at values.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import mha_sink
from mha_sink import _C, _tensors
from mha_sink.cli.errors import UsageError
from mha_sink.cli.report import bytes_moved, mfma_flops, print_gate
from mha_sink.cli.selftest import default_device, parse_device
from mha_sink.cli.table import print_table
from mha_sink.sparse import HEAD_DIM, SparseMlaPlan, prepare_bwd, ready
from mha_sink.testing import SparseCase, check_sparse_bwd, make_sparse_inputs
from mha_sink.testing.sparse_indices import (
    NUM_POOL,
    RATIO,
    WINDOW,
    uniform_indices,
    window_pool_indices,
)
from mha_sink.testing.sparse_mla import SparseMlaBwd

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CORRECTNESS = SparseCase("t128-h64-topk128-pool64", 128, 64, 128, num_pool=64)
GPU_CFGS = [(4096, 128, 512), (4096, 128, 1024), (8192, 128, 512)]
EMULATED_CFGS = [(256, 64, 256)]
# How many of the five products with a row of kv a phase computes, for each slot and head.
PRODUCTS = {"dq": 3, "dkv_slots": 2}
# Twice MI355X's last level, the 256 MB Infinity Cache.
FLUSH_BYTES = 512 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operation", choices=["sparse_mla"])
    parser.add_argument(
        "--cfgs", type=_cfg, nargs="+", metavar="T,H,TOPK",
        help="shapes; default: the published ones on a GPU, 256,64,256 in the emulator",
    )  # fmt: skip
    parser.add_argument(
        "--indices", choices=["window", "uniform"], default="window",
        help="a causal window and a pool, or independent draws from all rows (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--window", type=int, default=WINDOW, help="tokens (%(default)s)")
    parser.add_argument("--ratio", type=int, default=RATIO, help="tokens a block (%(default)s)")
    parser.add_argument(
        "--num-pool", type=int, default=NUM_POOL, help="blocks of the pool (%(default)s)"
    )
    parser.add_argument("--r-chunk", type=int, help="slots at a time; default: all")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--no-sink", action="store_true", help="attend without a sink")
    parser.add_argument(
        "--plan",
        action="store_true",
        help="invert the indices before, as layers that share them do",
    )
    parser.add_argument("--breakdown", action="store_true", help="each phase")
    parser.add_argument(
        "--skip-correctness", action="store_true",
        help=f"leave out the gate, at {CORRECTNESS}",
    )  # fmt: skip
    parser.add_argument(
        "--device", type=parse_device, metavar="{emulated,rocm,rocm:N}",
        help="what is measured; default: rocm where there is one, else emulated",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=20, help="on a GPU (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> int:
    """Exit status: 0, 1 when the correctness gate fails."""
    if options.repeats < 1:
        raise UsageError(f"--repeats is {options.repeats}; need at least 1")
    device = torch.device(options.device or default_device())
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device rocm needs a torch for ROCm that sees its GPU")
    if not options.skip_correctness:
        result = check_sparse_bwd(make_sparse_inputs(CORRECTNESS), bwd=backward_on(device))
        print_gate(f"{CORRECTNESS} on {'the emulator' if device.type == 'cpu' else device}", result)
        if not result.passed:
            print("\nThe gate FAILED.")
            return 1
    cfgs = options.cfgs or (EMULATED_CFGS if device.type == "cpu" else GPU_CFGS)
    report = count_phases if device.type == "cpu" else time_phases
    for cfg in cfgs:
        report(make_problem(cfg, options, device), options)
    return 0


def backward_on(device: torch.device) -> SparseMlaBwd:
    """`sparse_mla_bwd_dsv4` on a device, for tensors on the CPU."""

    def backward(**arguments: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        moved: dict[str, Any] = {
            name: x.to(device) if isinstance(x, Tensor) else x for name, x in arguments.items()
        }
        dq, dkv, d_sink = mha_sink.sparse_mla_bwd_dsv4(**moved)
        return dq.cpu(), dkv.cpu(), None if d_sink is None else d_sink.cpu()

    return backward


@dataclass
class Problem:
    """One shape on a device; `arguments` are those of `prepare_bwd` in order."""

    tokens: int
    nhead: int
    topk: int
    num_kv: int
    valid: int
    arguments: tuple[
        Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, float | None, int | None
    ]
    plan: SparseMlaPlan | None = None
    outputs: tuple[Tensor, Tensor, Tensor | None] | None = field(default=None, repr=False)

    @property
    def slots(self) -> int:
        return self.tokens * self.topk

    @property
    def title(self) -> str:
        share = self.valid / self.slots if self.slots else 0.0
        return (
            f"T {self.tokens}, H {self.nhead}, num_kv {self.num_kv}, topk {self.topk}, "
            f"{share:.1%} of the slots used"
        )

    def flops(self, slots: int, products: int = 5) -> int:
        """Of some of the five products with a row of kv, for all heads."""
        return products * 2 * HEAD_DIM * self.nhead * slots

    def prepared(self) -> _C.SparseMlaBwdCall:
        call, self.outputs = prepare_bwd(*self.arguments, plan=self.plan)
        return call


def make_problem(
    cfg: tuple[int, int, int], options: argparse.Namespace, device: torch.device
) -> Problem:
    """Random tensors of a shape.

    Raises:
        UsageError: the shape does not fit the index pattern.
    """
    tokens, nhead, topk = cfg
    pool = options.num_pool if topk > options.window or options.indices == "uniform" else 0
    num_kv = tokens + pool
    if options.indices == "uniform":
        indices = uniform_indices(tokens, topk, num_kv, empty=0.0, seed=options.seed)
    else:
        try:
            indices = window_pool_indices(
                tokens, topk, window=options.window, ratio=options.ratio, num_pool=pool,
                seed=options.seed,
            )  # fmt: skip
        except ValueError as error:
            raise UsageError(str(error)) from None
    generator = torch.Generator(device).manual_seed(options.seed)

    def normal(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype, device=device)

    dtype = DTYPES[options.dtype]
    q, do, o = (normal(tokens, nhead, HEAD_DIM, dtype=dtype) for _ in range(3))
    kv = normal(num_kv, HEAD_DIM, dtype=dtype)
    # About the lse of as many scores of unit spread, so that P neither vanishes nor overflows.
    lse = normal(tokens, nhead, dtype=torch.float32) + torch.tensor(max(topk, 1)).log().item()
    sink = None if options.no_sink else normal(nhead, dtype=torch.float32)
    valid = int((indices >= 0).sum())
    indices = indices.to(device)
    plan = mha_sink.sparse_mla_plan(indices, num_kv) if options.plan else None
    arguments = (q, kv, do, o, lse, indices, sink, None, options.r_chunk)
    return Problem(tokens, nhead, topk, num_kv, valid, arguments, plan)


def count_phases(problem: Problem, options: argparse.Namespace) -> None:
    """Prints what the emulator executed, in all or phase by phase."""
    call = problem.prepared()
    device = torch.device("cpu")
    with ready(device) as stream:
        _C.profile_start()
        try:
            phases = _C.sparse_mla_bwd_phases(call, _tensors.Workspace(device), stream, 1)
        finally:
            profile = _C.profile_stop()
    rows = []
    for name, kernels, _ in [*(phases if options.breakdown else []), ("all", list(profile), 0.0)]:
        mixes = [profile[kernel] for kernel in kernels if kernel in profile]
        executed = sum(mix["wave_instructions"] for mix in mixes)
        mfma = sum(mix["classes"]["mfma"] for mix in mixes)
        issued = sum(mfma_flops(mix) for mix in mixes)
        used = problem.flops(problem.valid, PRODUCTS.get(name, 5))
        moved = [sum(bytes_moved(mix, space) for mix in mixes) for space in ("global", "lds")]
        rows.append((
            name,
            f"{executed:,}",
            f"{mfma:,}",
            f"{executed / mfma:.2f}" if mfma else "-",
            f"{used / issued:.1%}" if issued else "-",
            *(f"{count / 1e6:,.2f}" for count in moved),
        ))  # fmt: skip
    print_table(
        f"{problem.title}: emulated on CPU, which says nothing about a GPU's time",
        ("phase", "wave instructions", "MFMA", "per MFMA", "useful", "global MB", "LDS MB"),
        rows,
    )
    print("useful: share of the issued products that used slots need; MB: with all lanes active")


def time_phases(problem: Problem, options: argparse.Namespace) -> None:
    """Prints the median time of whole calls with flushed caches, and the phases of warm ones."""
    call = problem.prepared()
    device = problem.arguments[0].device
    workspace = _tensors.Workspace(device)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    with ready(device) as stream:

        def flushed() -> float:
            flush.zero_()
            return _C.sparse_mla_bwd(call, workspace, stream, timed=True)

        flushed()
        milliseconds = median(flushed, options.repeats)
        phases = _C.sparse_mla_bwd_phases(call, workspace, stream, options.repeats)
    rows = [(
        "whole call, flushed", f"{milliseconds:.4f}",
        f"{problem.flops(problem.slots) / milliseconds * 1e-9:.1f}",
        f"{problem.flops(problem.valid) / milliseconds * 1e-9:.1f}",
    )]  # fmt: skip
    if options.breakdown:
        rows += [(f"  {name}, warm", f"{time:.4f}", "", "") for name, _, time in phases]
    print_table(
        f"{problem.title}: median of {options.repeats} on {device}",
        ("", "ms", "TFLOP/s of all slots", "of used slots"),
        rows,
    )


def median(measure: Callable[[], float], repeats: int) -> float:
    """The median of some measurements."""
    return statistics.median(measure() for _ in range(repeats))


def _cfg(text: str) -> tuple[int, int, int]:
    try:
        tokens, nhead, topk = map(int, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; need T,H,TOPK") from None
    if min(tokens, nhead, topk) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; need at least 1 of each")
    return tokens, nhead, topk
