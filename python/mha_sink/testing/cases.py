"""The one grid of named shapes, for tests, benchmarks and the command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mha_sink.reference import Mask
from mha_sink.testing.covering import pairwise

GROUPS = ("smoke", "irregular", "gqa", "mqa", "window", "hdim", "corner", "packed")

# Distance of a head's sink from its mean sink-free lse. A zero sink, or one that dominates
# everywhere, hides a dropped or doubled sink; heads take these in turn.
SINK_OFFSETS = (-20.0, -2.0, 0.0, 2.0, 20.0)


@dataclass(frozen=True)
class Case:
    """One shape of attention: dense, or packed where `seqlens_q` says so (see `packed_case`).

    Attributes:
        batch: batch entries; packed: sequences.
        seqlen_q: queries of a batch entry; packed: rows of q, gaps and the tail included.
        seqlen_k: likewise, of k.
        hdim_v: head dim of v, out and dout; None: that of q and k.
        window: (left, right) inclusive, -1 unbounded; `causal` sets right to 0.
        sink_offsets: each head's sink is its mean sink-free lse plus one of these, in turn over
            batch and heads; empty: no sink.
        seqlens_q: packed: queries of each sequence, any of them 0; empty: dense.
        seqlens_k: likewise, keys.
        padded_q: rows from each sequence's start to the next one's; empty: no gaps, no
            `cu_seqlens_q_padded`.
        padded_k: likewise, of k.
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
    seqlens_q: tuple[int, ...] = ()
    seqlens_k: tuple[int, ...] = ()
    padded_q: tuple[int, ...] = ()
    padded_k: tuple[int, ...] = ()

    @property
    def scale(self) -> float:
        """The usual factor on the scores."""
        return float(self.hdim**-0.5)

    @property
    def packed(self) -> bool:
        return bool(self.seqlens_q)

    @property
    def mask(self) -> Mask:
        """What the functions of `mha_sink.reference` take by keyword."""
        return {"scale": self.scale, "causal": self.causal, "window": self.window}

    def __str__(self) -> str:
        return self.name


def packed_case(
    name: str,
    seqlens_q: tuple[int, ...],
    seqlens_k: tuple[int, ...],
    heads: tuple[int, int],
    hdim: int,
    *,
    padded_q: tuple[int, ...] = (),
    padded_k: tuple[int, ...] = (),
    tail: tuple[int, int] = (0, 0),
    group: str = "packed",
    **more: Any,
) -> Case:
    """A packed case.

    Args:
        name: without the group.
        seqlens_q: as of `Case`.
        seqlens_k: as of `Case`.
        heads: (nhead_q, nhead_k).
        hdim: head dim of q and k.
        padded_q: as of `Case`.
        padded_k: as of `Case`.
        tail: rows of (q, k) behind the last sequence.
        group: where the case belongs.
        more: other attributes of `Case`.

    Raises:
        ValueError: the lists differ in length, or a sequence is longer than its room.
    """
    for lengths, room in ((seqlens_q, padded_q), (seqlens_k, padded_k or seqlens_k)):
        room = room or lengths
        if not len(lengths) == len(room) == len(seqlens_q) > 0:
            raise ValueError(f"{name}: {lengths} and {room} differ in length")
        if any(length > rows for length, rows in zip(lengths, room, strict=True)):
            raise ValueError(f"{name}: lengths {lengths} exceed their rooms {room}")
    return Case(
        f"{group}/{name}", len(seqlens_q), sum(padded_q or seqlens_q) + tail[0],
        sum(padded_k or seqlens_k) + tail[1], *heads, hdim, group=group, seqlens_q=seqlens_q,
        seqlens_k=seqlens_k, padded_q=padded_q, padded_k=padded_k, **more,
    )  # fmt: skip


def _named(
    group: str, cases: Iterable[tuple[str, tuple[int, int, int, int, int, int], dict[str, Any]]]
) -> list[Case]:
    return [Case(f"{group}/{name}", *shape, group=group, **more) for name, shape, more in cases]


# Dense: (batch, seqlen_q, seqlen_k, nhead_q, nhead_k, hdim).
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

PACKED_CASES: tuple[Case, ...] = (
    packed_case("one", (113,), (203,), (4, 2), 64, causal=True),
    packed_case("equal", (64, 64), (64, 64), (4, 4), 64),
    # What aiter's own sink test uses.
    packed_case("48-80", (48, 80), (48, 80), (4, 4), 64),
    packed_case("lengths", (113, 1, 64, 17), (203, 5, 64, 130), (6, 2), 64, causal=True),
    packed_case("d128", (65, 130), (129, 33), (4, 1), 128, causal=True),
    packed_case("fp16", (65, 130), (129, 33), (4, 2), 64, dtype="float16"),
    packed_case("window", (113, 65, 130), (203, 40, 130), (2, 2), 64, window=(40, 20)),
    packed_case("causal-window", (113, 33), (113, 203), (2, 1), 64, causal=True, window=(31, 0)),
    packed_case("no-sink", (33, 70), (65, 70), (2, 2), 64, causal=True, sink_offsets=()),
    packed_case("d192-v128", (33, 70), (65, 20), (2, 2), 192, causal=True, hdim_v=128),
    packed_case("d256", (17, 40), (65, 20), (2, 1), 256, causal=True),
    packed_case("many-short", (3, 1, 2, 5, 1, 4, 2, 1), (4, 2, 2, 6, 1, 3, 9, 1), (4, 2), 64,
                causal=True),
    packed_case("empty-first", (0, 33), (17, 65), (2, 2), 64, causal=True),
    packed_case("empty-middle", (33, 0, 0, 17), (20, 0, 9, 17), (2, 2), 64, causal=True),
    packed_case("empty-last", (33, 0), (20, 9), (2, 2), 64),
    packed_case("no-keys", (33, 17, 5), (20, 0, 5), (2, 2), 64),
    packed_case("most-rows-empty", (70, 33), (3, 20), (5, 5), 64, causal=True),
    packed_case("tail", (33, 70), (65, 70), (2, 2), 64, causal=True, tail=(19, 70)),
    packed_case("padded-q", (33, 70), (65, 70), (4, 2), 64, causal=True, padded_q=(64, 80)),
    packed_case("padded-k", (33, 70), (65, 70), (4, 2), 64, causal=True, padded_k=(65, 96)),
    packed_case("padded", (33, 0, 70), (65, 3, 70), (4, 2), 64, causal=True,
                padded_q=(40, 8, 71), padded_k=(128, 8, 70), tail=(5, 9)),
    packed_case("padded-d128", (33, 70), (65, 70), (2, 2), 128, window=(20, 10),
                padded_q=(128, 128), padded_k=(128, 128)),
    # All of a sequence's room is a gap.
    packed_case("padded-empty", (0, 33), (0, 33), (2, 2), 64, padded_q=(16, 48),
                padded_k=(16, 48)),
)  # fmt: skip


def cases(*groups: str) -> list[Case]:
    """The cases of the given groups; of all groups without an argument.

    Raises:
        ValueError: no group has that name.
    """
    for group in groups:
        if group not in GROUPS:
            raise ValueError(f"no case group {group!r}; groups are {', '.join(GROUPS)}")
    return [case for case in (*CASES, *PACKED_CASES) if not groups or case.group in groups]


def case(name: str) -> Case:
    """The case of that name.

    Raises:
        ValueError: no case has that name.
    """
    for candidate in cases():
        if candidate.name == name:
            return candidate
    raise ValueError(f"no case {name!r}; cases are {', '.join(c.name for c in cases())}")


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
