"""Plots of a report, as PNG files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib import dates
from matplotlib.figure import Figure

INCHES: Final = (10.0, 5.0)
DPI: Final = 100
BARS: Final = 40

# By topic: times and values, in the order of time. A line is broken where a value is NaN.
Points = Sequence[tuple[datetime, float]]
Lines = Mapping[str, Points]


def with_gaps(points: Points, step: timedelta, between: float) -> Points:
    """With `between` at the beginning and end of each gap: where the next point is more than a step later."""
    found = list(points[:1])
    for (before, _), (time, value) in pairwise(points):
        if time - before > step:
            found += [(before + step, between), (time - step, between)]
        found.append((time, value))
    return found


def plot_lines(path: Path, title: str, unit: str, lines: Lines) -> None:
    def draw(axes: Any) -> None:  # noqa: ANN401
        for topic, points in lines.items():
            if points:
                axes.plot(*zip(*points, strict=True), marker=".", linewidth=1, label=topic)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(axes.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
        axes.set_xlabel("time of publication, UTC")
        axes.set_ylabel(unit)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(loc="upper left", fontsize="small")
        else:
            axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)

    _save(path, title, draw)


def plot_bars(path: Path, title: str, unit: str, bars: Sequence[tuple[str, float]]) -> None:
    """The longest first, so many at most."""

    def draw(axes: Any) -> None:  # noqa: ANN401
        shown = sorted(bars, key=lambda bar: bar[1])[-BARS:]
        axes.barh([name for name, _ in shown], [value for _, value in shown])
        axes.set_xlabel(unit)
        if not shown:
            axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)

    _save(path, title, draw)


def _save(path: Path, title: str, draw: Callable[[Any], None]) -> None:
    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.set_title(title)
    new = path.with_name(path.name + ".new")
    figure.savefig(new, format="png")
    new.replace(path)
