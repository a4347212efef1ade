"""What stands out in a report, as sentences: rates, delays and backlogs that differ from the usual.

"Usual" is the median over a topic's minutes, from its first message to its last, and their spread is the median
absolute deviation (MAD): a few odd minutes change neither. The thresholds are high, because each needless
sentence costs trust.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from statistics import median
from typing import Any, Final

MINUTE: Final = timedelta(minutes=1)
WINDOW: Final = timedelta(days=31)  # how far back minutes count: a wrong clock may have dated a message 1970
LEAST_MINUTES: Final = 10  # minutes of a topic before anything counts as usual
TIMES_USUAL: Final = 3.0
MADS: Final = 8.0
LEAST_MESSAGES: Final = 60  # per minute, above the usual
LEAST_DELAY_MS: Final = 1000.0  # above the usual
QUIET_GAPS: Final = 3.0  # times the longest silence besides
QUIET_MINUTES: Final = 3
BACKLOG_MINUTES: Final = 30.0  # minutes of the usual rate that the backlog amounts to
MOST: Final = 20
NAMED: Final = 3  # topics of which the same is said

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Anomaly:
    """`weight`: the ratio to the usual value; for a backlog, to the threshold."""

    topic: str
    text: str
    weight: float


def found(minutes: Sequence[Row], backlog: Sequence[Row], until: datetime) -> list[Anomaly]:
    """Returns the anomalies, the strangest first. `minutes` and `backlog`: rows of the report's tables. `until`: the
    end of what is known."""
    result: list[Anomaly] = []
    usual: dict[str, float] = {}
    in_order = sorted(minutes, key=lambda row: (row["topic"], row["minute"]))
    for topic, rows in groupby(in_order, lambda row: row["topic"]):
        of_topic = list(rows)
        counts = _counts(of_topic, until)
        alive = _until_the_last(counts)
        if len(alive) >= LEAST_MINUTES:
            usual[topic] = median(count for _, count in alive)
            result += _rushes(topic, alive)
            result += _silence(topic, counts)
        result += _delays(topic, of_topic)
    result += _backlogs(backlog, usual)
    return sorted(_together(result), key=lambda anomaly: (-anomaly.weight, anomaly.topic))[:MOST]


def _together(anomalies: Iterable[Anomaly]) -> Iterable[Anomaly]:
    """What is said of several topics in the same words is said once."""
    by_text: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        by_text.setdefault(anomaly.text, []).append(anomaly)
    for text, same in by_text.items():
        names = sorted(anomaly.topic for anomaly in same)
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        yield Anomaly(", ".join(names[:NAMED]) + more, text, max(anomaly.weight for anomaly in same))


def _counts(rows: Sequence[Row], until: datetime) -> list[tuple[datetime, int]]:
    """Returns the count of each whole minute, from the topic's first in the window to `until`; 0 where nothing came."""
    by_minute = {row["minute"]: int(row["messages"]) for row in rows if row["minute"] > until - WINDOW}
    counts, minute = [], min(by_minute, default=until)
    while minute + MINUTE <= until:
        counts.append((minute, by_minute.get(minute, 0)))
        minute += MINUTE
    return counts


def _until_the_last(counts: Sequence[tuple[datetime, int]]) -> Sequence[tuple[datetime, int]]:
    """Without those behind the last message: a topic that nobody publishes to any more has not changed its ways."""
    return counts[: max((at for at, (_, count) in enumerate(counts, 1) if count), default=0)]


def _rushes(topic: str, counts: Sequence[tuple[datetime, int]]) -> Iterable[Anomaly]:
    usual, stray = _usual([count for _, count in counts])
    above = max(TIMES_USUAL * usual, usual + MADS * stray, usual + LEAST_MESSAGES)
    for stretch in _stretches(counts, lambda count: count > above):
        most = max(count for _, count in stretch)
        much = f"{_times(most, usual)} the usual {usual:,.0f}" if usual else "where there are usually none"
        yield Anomaly(topic, f"{most:,} messages a minute {_when(stretch)}, {much}", most / max(usual, 1.0))


def _silence(topic: str, counts: Sequence[tuple[datetime, int]]) -> Iterable[Anomaly]:
    gaps = [*_stretches(counts, lambda count: count == 0)]
    longest = sorted(gaps, key=len)[-2:]
    if not longest:
        return
    gap, other = longest[-1], len(longest[0]) if len(longest) > 1 else 0
    if len(gap) >= max(QUIET_MINUTES, QUIET_GAPS * (other + 1)):
        lasts = gap[-1] == counts[-1]
        when = f"since {gap[0][0]:%Y-%m-%d %H:%M}" if lasts else _when(gap)
        text = f"nothing {when}, for {len(gap):,} minutes; {'before' if lasts else 'otherwise'}"
        yield Anomaly(topic, f"{text}, it was never quiet for {other + 1:,}", len(gap) / (other + 1))


def _delays(topic: str, rows: Sequence[Row]) -> Iterable[Anomaly]:
    delays = [(row["minute"], float(row["p99_delay_ms"])) for row in rows if row["p99_delay_ms"] is not None]
    if len(delays) < LEAST_MINUTES:
        return
    usual, stray = _usual([delay for _, delay in delays])
    above = max(TIMES_USUAL * usual, usual + MADS * stray, usual + LEAST_DELAY_MS)
    for stretch in _stretches(delays, lambda delay: delay > above):
        most = max(delay for _, delay in stretch)
        text = f"events were up to {_span(most)} old when published {_when(stretch)}; usually {_span(usual)} (p99)"
        yield Anomaly(topic, text, most / max(usual, 1.0))


def _backlogs(backlog: Sequence[Row], usual: Mapping[str, float]) -> Iterable[Anomaly]:
    for row in backlog:
        rate = usual.get(row["topic"], 0.0)
        if rate and row["waiting"] / rate > BACKLOG_MINUTES:
            minutes = row["waiting"] / rate
            text = f"{row['kind']} {row['name']} is {row['waiting']:,} messages behind"
            text = f"{text}, {_span(minutes * 60_000)} of the usual"
            yield Anomaly(row["topic"], text, minutes / BACKLOG_MINUTES)


def _usual(values: Sequence[float]) -> tuple[float, float]:
    """Returns the median and the MAD."""
    middle = median(values)
    return middle, median(abs(value - middle) for value in values)


def _stretches(points: Sequence[tuple[datetime, Any]], odd: Any) -> Iterable[list[tuple[datetime, Any]]]:  # noqa: ANN401
    """Yields the runs of consecutive minutes whose value is odd."""
    stretch: list[tuple[datetime, Any]] = []
    for minute, value in points:
        if stretch and (not odd(value) or minute - stretch[-1][0] > MINUTE):
            yield stretch
            stretch = []
        if odd(value):
            stretch.append((minute, value))
    if stretch:
        yield stretch


def _when(stretch: Sequence[tuple[datetime, Any]]) -> str:
    first, last = stretch[0][0], stretch[-1][0]
    if first == last:
        return f"at {first:%Y-%m-%d %H:%M}"
    end = f"{last + MINUTE:%H:%M}" if first.date() == last.date() else f"{last + MINUTE:%Y-%m-%d %H:%M}"
    return f"from {first:%Y-%m-%d %H:%M} to {end}"


def _times(value: float, usual: float) -> str:
    return f"{value / usual:,.0f} times" if value >= 10 * usual else f"{value / usual:.1f} times"


def _span(milliseconds: float) -> str:
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1000)):
        if milliseconds >= 2 * size:
            return f"{milliseconds / size:,.0f} {unit}"
    return f"{milliseconds:,.0f} ms"
