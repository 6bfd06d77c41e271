"""One table for every command: by rich where it is installed, plain columns otherwise."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

try:
    import rich.box
    import rich.console
    import rich.table
except ImportError:
    rich = None  # type: ignore[assignment]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows of text under `title`; the first column is aligned left, the others right."""
    if rich is None or not sys.stdout.isatty():
        print(f"\n{title}\n" + "\n".join(plain_lines(columns, rows)))
        return
    table = rich.table.Table(title=title, title_justify="left", box=rich.box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    rich.console.Console(width=max(shutil.get_terminal_size().columns, 100)).print(table)


def plain_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table as lines of text."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (columns, ["-" * width for width in widths], *rows)
    ]
