"""Plots of a report, as PNG files for slides and as SVG for its page."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib import dates, font_manager, ticker
from matplotlib.figure import Figure

WIDTH_INCHES: Final = 11.0
LINES_INCHES: Final = 4.2
BAR_INCHES: Final = 0.28  # height of a bar
DPI: Final = 130
BARS: Final = 25
LABEL_LETTERS: Final = 36
ROUNDS: Final = 3  # of telling labels apart: a new label may be that of another name
BEFORE_LETTERS: Final = 10  # shown before the first letter in which names differ
LOG_FROM: Final = 20.0  # the highest value, in medians, from which the scale is logarithmic
HEADROOM: Final = 1.05
SHORTEST: Final = timedelta(minutes=6)  # an axis of time is no shorter: a mark of its own for each minute
# What is written at a mark, by the unit in which marks differ, from years to seconds: each can be read alone.
TIMES: Final = ("%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S")
AT_BEGINNINGS: Final = ("", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S")  # where the unit is at its first value
AT_THE_END: Final = ("", "", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y")  # once, for what the marks leave out
# Twelve that can be told apart, also by the colour-blind; each further dozen of lines has another dash.
COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00",
    "#332288", "#882255", "#44aa99", "#999933", "#aa4499", "#555555",
)  # fmt: skip
DASHES: Final = ("-", "--", ":")
FONT: Final = "DejaVu Sans"
# For letters that it lacks, as Chinese ones, in the PNG files: those that are installed. A browser has its own.
OTHER_FONTS: Final = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Droid Sans Fallback")
STYLE: Final[Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
    "svg.hashsalt": "report", "font.family": [FONT],
    "text.parse_math": False,  # a topic's name is no formula, though it may look like one
}  # fmt: skip

# By topic: times and values, in the order of time. A line is broken where a value is NaN.
Points = Sequence[tuple[datetime, float]]
Lines = Mapping[str, Points]


@dataclass(frozen=True)
class Plot:
    title: str
    png: bytes
    svg: str

    def save(self, path: Path) -> None:
        new = path.with_name(path.name + ".new")
        new.write_bytes(self.png)
        new.replace(path)


def with_gaps(points: Points, step: timedelta, between: float) -> Points:
    """Adds `between` at the beginning and end of each gap: where the next point is more than a step later."""
    found = list(points[:1])
    for (before, _), (time, value) in pairwise(points):
        if time - before > step:
            found += [(before + step, between), (time - step, between)]
        found.append((time, value))
    return found


def shortened(name: str) -> str:
    """Leaves out the middle of a long name: names differ at their ends."""
    if len(name) <= LABEL_LETTERS:
        return name
    half = (LABEL_LETTERS - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def labels(names: Sequence[str]) -> list[str]:
    """Returns short labels that differ even where names differ only in what is left out."""
    found = [shortened(name) for name in names]
    for _ in range(ROUNDS):
        for places in _alike(names, found):
            first = _common([names[place] for place in places])
            for place in places:
                found[place] = _from(names[place], first)
    return found


def _common(names: Sequence[str]) -> int:
    """Returns how many letters all names begin with in common."""
    shortest = min(names, key=len)
    differ = (n for n, letter in enumerate(shortest) if any(name[n] != letter for name in names))
    return next(differ, len(shortest))


def _alike(names: Sequence[str], labels: Sequence[str]) -> list[list[int]]:
    """Returns the places of different names that have the same label, by label."""
    by_label: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        by_label.setdefault(label, []).append(place)
    return [places for places in by_label.values() if len({names[place] for place in places}) > 1]


def _from(name: str, first: int) -> str:
    """Returns the part of a name from a little before its letter `first` on."""
    start = max(0, first - BEFORE_LETTERS)
    end = start + LABEL_LETTERS - 2
    return f"{'…' if start else ''}{name[start:end]}{'…' if name[end:] else ''}"


def plot_lines(title: str, unit: str, lines: Lines) -> Plot:
    """Draws lines, with a legend beside them in the same order."""
    styles = cycle((colour, dash) for dash in DASHES for colour in COLOURS)

    def draw(figure: Figure, axes: Any) -> None:  # noqa: ANN401
        for label, points in zip(labels([*lines]), lines.values(), strict=True):
            colour, dash = next(styles)
            if points:
                marker = "." if len(points) < 60 else ""
                axes.plot(
                    *zip(*points, strict=True), marker=marker, color=colour, linestyle=dash, linewidth=1.4,
                    label=label.lstrip("_") or "_",
                )  # fmt: skip
        _mark_times(axes, [time for points in lines.values() for time, _ in points])
        axes.set_xlabel("time of publication, UTC")
        axes.set_ylabel(unit)
        values = [value for points in lines.values() for _, value in points if math.isfinite(value)]
        if _stray(values):
            axes.set_yscale("log")
            # Text stays text in a report's SVG: the default labels, formulas, would be shown as they are written.
            axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        else:  # leaves room above the highest value, however near the lowest is
            axes.set_ylim(0, HEADROOM * max(values, default=0.0) or 1.0)
        axes.grid(alpha=0.25)
        if axes.lines:
            figure.legend(loc="outside right upper", fontsize="small", frameon=False)
        else:
            _nothing(axes)

    return _plot(title, LINES_INCHES, draw)


def plot_bars(title: str, unit: str, bars: Sequence[tuple[str, float]]) -> Plot:
    """Draws the BARS longest bars, the longest first, in a plot so high that no label touches another."""
    shown = sorted(bars, key=lambda bar: bar[1])[-BARS:]

    def draw(figure: Figure, axes: Any) -> None:  # noqa: ANN401
        # By place and not by name: two names may be shortened to the same.
        axes.barh(range(len(shown)), [value for _, value in shown], color=COLOURS[0])
        axes.set_yticks(range(len(shown)), labels([name for name, _ in shown]))
        axes.set_xlabel(unit)
        axes.grid(alpha=0.25, axis="x")
        for place, (_, value) in enumerate(shown):
            axes.annotate(
                f"{value:,.0f}", (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.margins(x=0.12)
        if not shown:
            _nothing(axes)

    return _plot(title, max(1.6, 1.0 + BAR_INCHES * len(shown)), draw)


def _mark_times(axes: Any, times: Sequence[datetime]) -> None:  # noqa: ANN401
    if times and (more := SHORTEST - (max(times) - min(times))) > timedelta():
        axes.set_xlim(min(times) - more / 2, max(times) + more / 2)
    locator = dates.AutoDateLocator(maxticks=10)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        dates.ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator, formats=[*TIMES], zero_formats=[*AT_BEGINNINGS], offset_formats=[*AT_THE_END]
        )
    )


def _stray(values: Sequence[float]) -> bool:
    """Whether the highest value would flatten all others."""
    return bool(values) and min(values) > 0 and max(values) > LOG_FROM * median(values)


def _nothing(axes: Any) -> None:  # noqa: ANN401
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)


def _fonts() -> list[str]:
    there = {font.name for font in font_manager.fontManager.ttflist}
    return [FONT, *(name for name in OTHER_FONTS if name in there)]


def _plot(title: str, height_inches: float, draw: Callable[[Figure, Any], None]) -> Plot:
    with matplotlib.rc_context({**STYLE, "font.family": _fonts()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # it is drawn as a box
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), dpi=DPI, layout="constrained")
        axes = figure.subplots()
        draw(figure, axes)
        # Laid out once for each of both files: saving would do it twice, and draw the figure once more before.
        layout = figure.get_layout_engine()
        assert layout is not None
        figure.set_layout_engine(None)
        layout.execute(figure)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        axes.set_title(title, loc="left", fontweight="bold", fontfamily=FONT)  # the others may have no bold
        layout.execute(figure)
        png = io.BytesIO()
        figure.savefig(png, format="png")
    # Leaves out the XML header, which only a file of its own needs.
    text = svg.getvalue()
    return Plot(title, png.getvalue(), text[text.index("<svg") :])
