"""Samples of a product of axes in which all pairs, or triples, of values meet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def covering(
    axes: Mapping[str, Sequence[Any]],
    strength: int,
    allowed: Callable[[Mapping[str, Any]], bool] = lambda row: True,
) -> list[dict[str, Any]]:
    """Rows of one value an axis, such that any `strength` values of different axes meet in a row.

    Greedy and deterministic: a row begins with combinations that are still missing and takes, axis
    by axis, the value that adds most of them.

    Args:
        axes: values by name; the first of equally good ones is taken.
        strength: 2 for pairs, 3 for triples.
        allowed: told of a part of a row, whether it can still be completed. Combinations that
            cannot be are left out.
    """
    names = list(axes)

    def combinations(row: Mapping[str, int], new: str | None = None) -> Iterator[tuple[Any, ...]]:
        """Those of a row; with `new`, those that hold that axis."""
        others = [name for name in names if name in row and name != new]
        fixed = [] if new is None else [new]
        for chosen in itertools.combinations(others, strength - len(fixed)):
            yield tuple((name, row[name]) for name in names if name in chosen or name in fixed)

    def values(row: Mapping[str, int]) -> dict[str, Any]:
        return {name: axes[name][i] for name, i in row.items()}

    everything = {
        tuple(zip(chosen, indices, strict=True))
        for chosen in itertools.combinations(names, strength)
        for indices in itertools.product(*(range(len(axes[name])) for name in chosen))
    }
    missing = dict.fromkeys(sorted(everything))
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        del missing[tuple((name, row[name]) for name in names if name in row)]
        if not allowed(values(row)):
            continue
        for name in names:
            if name in row:
                continue
            options = [{**row, name: i} for i in range(len(axes[name]))]
            options = [option for option in options if allowed(values(option))]
            row = max(
                options,
                key=lambda option: sum(c in missing for c in combinations(option, name)),
                default={},
            )
            if not row:
                break
        if row:
            for covered in combinations(row):
                missing.pop(covered, None)
            rows.append(values({name: row[name] for name in names}))
    return rows


def pairwise(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """`covering` of strength 2, for axes without names."""
    named = {str(i): axis for i, axis in enumerate(axes)}
    return [tuple(row.values()) for row in covering(named, 2)]
