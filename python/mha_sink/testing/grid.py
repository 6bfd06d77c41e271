"""The acceptance matrix: all axes of dense and packed backward, sampled so that values meet.

A full product has millions of cases. A sample of strength t holds every combination of values of
any t axes at least once: faults that need t particular values together are found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mha_sink.testing.cases import SINK_OFFSETS, Case, packed_case
from mha_sink.testing.check import expected, run_guarded
from mha_sink.testing.covering import covering
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.inputs import make_inputs

TENSORS = ("dout", "q", "k", "v", "out", "dq", "dk", "dv")

# By layout: which tensors have strides of their own (names of `LAYOUTS`).
GRID_LAYOUTS: dict[str, dict[str, str]] = {
    "bshd": {},
    "bhsd": dict.fromkeys(TENSORS, "bhsd"),
    "sbhd": dict.fromkeys(TENSORS, "sbhd"),
    "packed-kv": dict.fromkeys(("k", "v", "dk", "dv"), "kv"),
    "packed-qkv": dict.fromkeys(("q", "k", "v", "dq", "dk", "dv"), "qkv"),
    "sliced-dout": {"dout": "sliced"},
}

# Causal, (left, right).
MASKS = (
    (False, (-1, -1)),
    (True, (-1, -1)),
    *((False, (left, -1)) for left in (0, 4, 32, 128)),
    *((False, window) for window in ((0, 0), (4, 35), (128, 30))),
)

# Values of an axis stand in ascending order of cost: where several do, the first is taken.
AXES: dict[str, Sequence[Any]] = {
    "seqlens": (
        (1, 1), (15, 16), (17, 33), (1, 147), (33, 0), (0, 33), (48, 80), (113, 203), (128, 217),
        (108, 256), (259, 259), (516, 253), (512, 256), (1023, 1024), (2048, 2048),
    ),
    "hdims": (
        (32, 32), (40, 40), (64, 64), (72, 72), (96, 96), (111, 111), (128, 128), (160, 160),
        (192, 128), (192, 192), (256, 256),
    ),
    "sink": (
        (-2.0,), (), (-math.inf,), (-1000.0,), (-20.0,), (0.0,), (2.0,), (20.0,), SINK_OFFSETS,
    ),
    "mask": MASKS,
    "heads": ((4, 4), (6, 2), (8, 1), (28, 4), (64, 8)),
    "rows": ("dense", "batch", "packed", "padded-q", "padded-k", "padded"),
    "layout": tuple(GRID_LAYOUTS),
    "dtype": ("bfloat16", "float16"),
    "deterministic": (False, True),
    "d_sink_start": (0.0, 2.5),
    "sink_shape": ("b,h", "h"),
}  # fmt: skip

# Multiply-adds of one of the five products: a second or two for the reference on two cores.
MOST_WORK = 2**29


@dataclass(frozen=True)
class GridCase:
    """A case, and how it is called.

    Attributes:
        layouts: as `run_guarded` takes them.
        shared_sink: the sink is handed in as [nhead_q].
        d_sink_start: what d_sink holds before the call.
    """

    case: Case
    layouts: Mapping[str, str]
    deterministic: bool
    shared_sink: bool
    d_sink_start: float

    def __str__(self) -> str:
        return str(self.case)


def acceptance_grid(strength: int = 2) -> list[GridCase]:
    """The matrix, sampled: any `strength` values of different axes meet in some case."""
    return [_grid_case(**row) for row in covering(AXES, strength, _allowed)]


def check_grid_case(chosen: GridCase) -> GateResult:
    """`run_guarded` on the case, through the gate.

    Raises:
        AssertionError: as `run_guarded`.
    """
    inputs = make_inputs(chosen.case)
    against = expected(inputs)
    if chosen.shared_sink and inputs.sink is not None:
        inputs = replace(inputs, sink=inputs.sink[0].clone())
    written = run_guarded(
        inputs, chosen.layouts, chosen.d_sink_start, deterministic=chosen.deterministic
    )
    results = [written, against.x64, against.xr]
    if "d_sink" in written:
        # What is accumulated into is judged as it lies there: its own rounding is not the kernel's.
        results = [{**x, "d_sink": x["d_sink"] + chosen.d_sink_start} for x in results]
    return check(*results)


def _allowed(row: Mapping[str, Any]) -> bool:
    (sq, sk), (hdim, hdim_v) = row.get("seqlens", (1, 1)), row.get("hdims", (32, 32))
    heads, rows = row.get("heads", (4, 4)), row.get("rows", "dense")
    packed = rows not in ("dense", "batch")
    # A packed case has a second sequence of a quarter of the work, a batch two equal ones.
    work = heads[0] * sq * sk * max(hdim, hdim_v) * (1 if rows == "dense" else 2)
    # [h] in place of [b, h] needs equal sinks in all entries.
    shared = row.get("sink_shape") == "h"
    # A packed tensor has no batch dimension to move.
    movable = not packed or row.get("layout") != "sbhd"
    return work <= MOST_WORK and movable and not (shared and rows != "dense")


def _grid_case(
    seqlens: tuple[int, int],
    hdims: tuple[int, int],
    sink: tuple[float, ...],
    mask: tuple[bool, tuple[int, int]],
    heads: tuple[int, int],
    rows: str,
    layout: str,
    dtype: str,
    deterministic: bool,
    d_sink_start: float,
    sink_shape: str,
) -> GridCase:
    (sq, sk), (hdim, hdim_v), (causal, window) = seqlens, hdims, mask
    name = "-".join([
        rows, f"h{heads[0]}k{heads[1]}", f"d{hdim}" + f"v{hdim_v}" * (hdim != hdim_v),
        f"q{sq}k{sk}", "causal" if causal else f"w{window[0]},{window[1]}",
        "sink" + ("+".join(f"{x:g}" for x in sink) if len(sink) < 2 else "spread"),
        layout, dtype, *(["det"] if deterministic else []),
        *(["h"] if sink_shape == "h" else []), *(["acc"] if d_sink_start else []),
    ])  # fmt: skip
    more: dict[str, Any] = {
        "causal": causal, "window": window, "sink_offsets": sink, "dtype": dtype,
        "hdim_v": hdim_v, "group": "grid",
    }  # fmt: skip
    if rows in ("dense", "batch"):
        case = Case(name, 1 if rows == "dense" else 2, sq, sk, *heads, hdim, **more)
    else:
        lengths_q, lengths_k = (sq, 0, sq // 2), (sk, 3, sk // 2)
        case = packed_case(
            name, lengths_q, lengths_k, heads, hdim, **more,
            padded_q=tuple(n + 5 for n in lengths_q) if rows in ("padded-q", "padded") else (),
            padded_k=tuple(n + 9 for n in lengths_k) if rows in ("padded-k", "padded") else (),
            tail=(4, 7) if rows == "padded" else (0, 0),
        )  # fmt: skip
        case = replace(case, name=name)
    return GridCase(case, GRID_LAYOUTS[layout], deterministic, sink_shape == "h", d_sink_start)
