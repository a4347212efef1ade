"""Tables of few rows, printed for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Numbers are aligned to the right, a null is an empty cell."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        padded = (t.rjust(w) if r else t.ljust(w) for t, w, r in zip(texts, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M" if value.second == 0 else "%Y-%m-%d %H:%M:%S")
    return str(value)
