"""The one grid of named shapes, for tests, benchmarks and the command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mha_sink.reference import Mask

GROUPS = ("smoke", "irregular", "gqa", "mqa", "window", "hdim", "corner")

# Distance of a head's sink from its mean sink-free lse. A zero sink, or one that dominates
# everywhere, hides a dropped or doubled sink; heads take these in turn.
SINK_OFFSETS = (-20.0, -2.0, 0.0, 2.0, 20.0)


@dataclass(frozen=True)
class Case:
    """One shape of dense attention.

    Attributes:
        hdim_v: head dim of v, out and dout; None: that of q and k.
        window: (left, right) inclusive, -1 unbounded; `causal` sets right to 0.
        sink_offsets: each head's sink is its mean sink-free lse plus one of these, in turn over
            batch and heads; empty: no sink.
    """

    name: str
    batch: int
    seqlen_q: int
    seqlen_k: int
    nhead_q: int
    nhead_k: int
    hdim: int
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    sink_offsets: tuple[float, ...] = SINK_OFFSETS
    dtype: str = "bfloat16"
    hdim_v: int | None = None
    group: str = "smoke"

    @property
    def scale(self) -> float:
        """The usual factor on the scores."""
        return float(self.hdim**-0.5)

    @property
    def mask(self) -> Mask:
        """What the functions of `mha_sink.reference` take by keyword."""
        return {"scale": self.scale, "causal": self.causal, "window": self.window}

    def __str__(self) -> str:
        return self.name


def _named(
    group: str, cases: Iterable[tuple[str, tuple[int, int, int, int, int, int], dict[str, Any]]]
) -> list[Case]:
    return [Case(f"{group}/{name}", *shape, group=group, **more) for name, shape, more in cases]


# (batch, seqlen_q, seqlen_k, nhead_q, nhead_k, hdim)
CASES: tuple[Case, ...] = (
    *_named("smoke", [
        ("d64", (1, 128, 128, 2, 2, 64), {}),
        ("d64-causal", (1, 128, 128, 2, 2, 64), {"causal": True}),
        ("d128", (1, 128, 128, 2, 2, 128), {}),
        ("d128-causal", (1, 128, 128, 2, 2, 128), {"causal": True}),
        ("no-sink", (1, 128, 128, 2, 2, 64), {"sink_offsets": ()}),
        ("d64-fp16", (1, 128, 128, 2, 2, 64), {"dtype": "float16"}),
        ("d128-fp16-causal", (1, 128, 128, 2, 2, 128), {"causal": True, "dtype": "float16"}),
    ]),
    *_named("irregular", [
        ("q17-k33", (2, 17, 33, 4, 4, 64), {"causal": True}),
        ("q113-k203", (1, 113, 203, 4, 4, 128), {"causal": True}),
        ("q203-k113", (1, 203, 113, 4, 4, 64), {}),
        ("q259-k259", (1, 259, 259, 4, 4, 64), {"causal": True}),
        ("q65-k257", (1, 65, 257, 2, 2, 128), {}),
    ]),
    *_named("gqa", [
        ("h6-k2", (2, 113, 203, 6, 2, 64), {"causal": True}),
        ("h28-k4", (1, 65, 129, 28, 4, 128), {"causal": True}),
        ("h64-k8", (1, 64, 64, 64, 8, 64), {"causal": True}),
    ]),
    *_named("mqa", [
        ("h8", (2, 65, 113, 8, 1, 64), {}),
        ("h8-causal", (1, 113, 113, 8, 1, 128), {"causal": True}),
    ]),
    *_named("window", [
        ("left-31", (1, 203, 203, 2, 2, 64), {"causal": True, "window": (31, 0)}),
        ("left-127", (1, 300, 300, 2, 1, 64), {"causal": True, "window": (127, 0)}),
        ("left-0", (1, 65, 65, 2, 2, 64), {"causal": True, "window": (0, 0)}),
        ("both", (1, 113, 203, 2, 2, 128), {"window": (40, 20)}),
        ("right", (1, 203, 113, 2, 2, 64), {"window": (-1, 50)}),
        # Wider than the keys, and still a mask: the first rows may not see the last keys.
        ("right-beyond-keys", (1, 203, 33, 2, 2, 64), {"window": (-1, 40)}),
        ("left-and-empty-rows", (1, 203, 65, 2, 2, 128), {"causal": True, "window": (16, 0)}),
    ]),
    # Each native tile, and head dims between them, which the kernel pads.
    *_named("hdim", [
        *((f"d{hdim}", (1, 113, 203, 4, 2, hdim), {"causal": True})
          for hdim in (8, 32, 40, 72, 96, 120, 136, 160, 176, 192, 224, 256)),
        *((f"d{hdim}-fp16", (1, 65, 129, 2, 2, hdim), {"dtype": "float16"})
          for hdim in (32, 96, 160, 192, 256)),
        ("d192-v128", (1, 113, 203, 4, 2, 192), {"causal": True, "hdim_v": 128}),
        ("d192-v128-fp16", (1, 65, 129, 2, 2, 192), {"dtype": "float16", "hdim_v": 128}),
        ("d64-v128", (1, 113, 203, 2, 2, 64), {"hdim_v": 128}),
        ("d72-v24", (1, 65, 300, 2, 1, 72), {"causal": True, "hdim_v": 24}),
    ]),
    *_named("corner", [
        ("q1-k1", (2, 1, 1, 5, 5, 64), {}),
        ("q1-k1-causal", (1, 1, 1, 5, 5, 128), {"causal": True}),
        ("q1-k259", (1, 1, 259, 4, 4, 64), {"causal": True}),
        ("q259-k1", (1, 259, 1, 5, 5, 64), {}),
        ("most-rows-empty", (1, 259, 3, 5, 5, 64), {"causal": True}),
        ("all-rows-empty-but-one", (1, 64, 1, 5, 5, 128), {"causal": True}),
    ]),
)  # fmt: skip


def cases(*groups: str) -> list[Case]:
    """The cases of the given groups; of all groups without an argument.

    Raises:
        ValueError: no group has that name.
    """
    for group in groups:
        if group not in GROUPS:
            raise ValueError(f"no case group {group!r}; groups are {', '.join(GROUPS)}")
    return [case for case in CASES if not groups or case.group in groups]


def case(name: str) -> Case:
    """The case of that name.

    Raises:
        ValueError: no case has that name.
    """
    for candidate in CASES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"no case {name!r}; cases are {', '.join(c.name for c in CASES)}")


# The acceptance grid of dense attention backward: every combination, or pairs of values.
BATCHES = (1, 2)
HEADS = ((4, 4), (6, 2), (8, 1), (28, 4))
HDIMS = (64, 128)
DTYPES = ("bfloat16", "float16")
CAUSAL = (False, True)
SEQLENS = ((1, 1), (17, 33), (113, 203), (203, 113), (259, 259), (512, 256))
# All offsets side by side, then each alone: a head whose gradients are e^20 times smaller than its
# neighbour's is only measured when it is alone in its tensor.
SINKS = (SINK_OFFSETS, *((offset,) for offset in SINK_OFFSETS))
AXES: tuple[Sequence[Any], ...] = (BATCHES, HEADS, HDIMS, CAUSAL, SEQLENS, SINKS, DTYPES)


def full_grid() -> list[Case]:
    """Every combination of the acceptance grid."""
    return [_grid_case(*values) for values in itertools.product(*AXES)]


def pairwise_grid() -> list[Case]:
    """A sample of `full_grid` in which every pair of values of two axes occurs."""
    return [_grid_case(*values) for values in pairwise(AXES)]


def pairwise(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Combinations of one value an axis, such that every two values of different axes meet.

    Greedy and deterministic: each step takes the combination that covers most uncovered pairs.
    """

    def pairs(row: tuple[int, ...]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
        return set(itertools.combinations(enumerate(row), 2))

    candidates = list(itertools.product(*(range(len(axis)) for axis in axes)))
    uncovered = set().union(*map(pairs, candidates))
    chosen = []
    while uncovered:
        best = max(candidates, key=lambda row: len(pairs(row) & uncovered))
        chosen.append(best)
        uncovered -= pairs(best)
    return [tuple(axis[i] for axis, i in zip(axes, row, strict=True)) for row in chosen]


def _grid_case(
    batch: int,
    heads: tuple[int, int],
    hdim: int,
    causal: bool,
    seqlens: tuple[int, int],
    offsets: tuple[float, ...],
    dtype: str,
) -> Case:
    sink = "spread" if len(offsets) > 1 else f"{offsets[0]:+.0f}"
    name = (
        f"b{batch}-h{heads[0]}k{heads[1]}-d{hdim}-{'causal' if causal else 'full'}"
        f"-q{seqlens[0]}k{seqlens[1]}-sink{sink}-{dtype}"
    )
    return Case(
        name, batch, *seqlens, *heads, hdim, causal,
        sink_offsets=offsets, dtype=dtype, group="grid",
    )  # fmt: skip
