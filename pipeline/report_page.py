"""A report as one HTML page that needs nothing else: it can be mailed, and opened where there is no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from mq_shards.pipeline.anomalies import Anomaly
from mq_shards.pipeline.plots import Plot

ROWS: Final = 100  # most rows of a table; the files beside the page have all
Row = Mapping[str, Any]
_NUMBERS: Final = (int, float)
_STYLE: Final = (Path(__file__).with_name("report.css")).read_text


def page(
    title: str,
    made: datetime,
    totals: Sequence[tuple[str, str]],
    anomalies: Sequence[Anomaly],
    plots: Iterable[Plot],
    tables: Mapping[str, Sequence[Row]],
) -> str:
    """`totals`: the figures at the top, each after what it is. `tables`: rows by the table's heading."""
    parts = [
        f"<header><h1>{escape(title)}</h1><p>made {made:%Y-%m-%d %H:%M:%S} UTC</p></header>",
        "<section class='totals'>",
        *(f"<div><b>{escape(figure)}</b><span>{escape(what)}</span></div>" for what, figure in totals),
        "</section>",
        "<section><h2>What stands out</h2>",
        _anomalies(anomalies),
        "</section>",
        *(f"<section><h2>{escape(plot.title)}</h2><figure>{plot.svg}</figure></section>" for plot in plots),
        *(f"<section><h2>{escape(name)}</h2>{_table(rows)}</section>" for name, rows in tables.items()),
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE()}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _anomalies(anomalies: Sequence[Anomaly]) -> str:
    if not anomalies:
        return "<p>Nothing: rates, delays and backlogs are as they usually are.</p>"
    return "<ul>" + "".join(f"<li><b>{escape(a.topic)}</b>: {escape(a.text)}</li>" for a in anomalies) + "</ul>"


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    columns = list(rows[0])
    right = {name for name in columns if all(isinstance(row[name], (*_NUMBERS, type(None))) for row in rows)}
    head = "".join(f"<th{_side(name, right)}>{escape(name.replace('_', ' '))}</th>" for name in columns)
    lines = [
        "<tr>" + "".join(f"<td{_side(name, right)}>{escape(_cell(row[name]))}</td>" for name in columns) + "</tr>"
        for row in rows[:ROWS]
    ]
    more = f"<p class='more'>The first {ROWS} of {len(rows):,}.</p>" if len(rows) > ROWS else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f"<div class='scroll'><table>{body}</table></div>{more}"


def _side(name: str, right: set[str]) -> str:
    return " class='n'" if name in right else ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    return str(value)
