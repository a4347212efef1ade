"""What a report says in words and shows on its page, of figures that are given."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from mq_shards.pipeline import anomalies, plots, report
from mq_shards.pipeline.report_page import ROWS, page

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def minutes(topic: str, counts: list[int], delays: list[float | None] | None = None) -> list[dict[str, Any]]:
    delays = delays or [None] * len(counts)
    return [
        {"topic": topic, "minute": T0 + timedelta(minutes=n), "messages": count, "p99_delay_ms": delay}
        for n, (count, delay) in enumerate(zip(counts, delays, strict=True))
        if count
    ]


def texts(rows: list[dict[str, Any]], of_minutes: int, backlog: list[dict[str, Any]] | None = None) -> list[str]:
    found = anomalies.found(rows, backlog or [], T0 + timedelta(minutes=of_minutes, seconds=30))
    return [f"{anomaly.topic}: {anomaly.text}" for anomaly in found]


def test_what_is_as_usual_is_not_spoken_of() -> None:
    steady = [1000, 1040, 980, 1010, 990, 1100, 950, 1000, 1020, 985, 1015, 1003]
    assert texts(minutes("orders", steady, [20.0 + n for n in range(12)]), 12) == []
    assert texts(minutes("rare", [1, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 1]), 12) == []
    assert texts(minutes("new", [5, 900]), 2) == [], "nobody knows what is usual"


def test_a_rush_is_named_with_its_time_and_size() -> None:
    rows = minutes("orders", [100] * 10 + [1200, 900, *[100] * 10])
    assert texts(rows, 22) == [
        "orders: 1,200 messages a minute from 2026-03-01 12:10 to 12:12, 12 times the usual 100",
    ]


def test_what_came_before_a_topic_was_left_alone_was_no_rush() -> None:
    assert texts(minutes("orders", [300] * 5), 19) == []
    assert texts(minutes("orders", [300] * 12), 40) == [
        "orders: nothing since 2026-03-01 12:12, for 28 minutes; before, it was never quiet for 1",
    ]


def test_what_is_said_of_several_topics_is_said_once() -> None:
    rows = [row for n in range(20) for row in minutes(f"t{n:02}", [300 + n] * 12)]
    assert texts(rows, 40) == [
        "t00, t01, t02 and 17 more: nothing since 2026-03-01 12:12, for 28 minutes; before, it was never quiet for 1",
    ]


def test_silence_that_is_over_is_named_if_there_was_no_other_like_it() -> None:
    assert texts(minutes("mails", [40] * 20 + [0] * 12 + [40] * 10), 42) == [
        "mails: nothing from 2026-03-01 12:20 to 12:32, for 12 minutes; otherwise, it was never quiet for 1",
    ]
    assert texts(minutes("mails", [40] * 20 + [0] * 2 + [40] * 10), 32) == []
    assert texts(minutes("mails", [40] * 20 + [0] * 12 + [40] * 10 + [0] * 6 + [40]), 49) == []


def test_silence_is_named_but_not_the_minute_that_is_not_over() -> None:
    rows = minutes("mails", [50] * 20)
    assert texts(rows, 21) == []
    assert texts(rows, 40) == [
        "mails: nothing since 2026-03-01 12:20, for 20 minutes; before, it was never quiet for 1",
    ]


def test_a_message_of_a_clock_that_was_set_back_costs_no_minutes_of_decades() -> None:
    """Each minute since 1970 would be some 30 million."""
    old = [{**minutes("orders", [7])[0], "minute": datetime(1970, 1, 1, tzinfo=UTC)}]
    counted = anomalies._counts(old + minutes("orders", [50] * 20), T0 + timedelta(minutes=20))
    assert [count for _, count in counted] == [50] * 20
    assert anomalies._counts(old, T0) == []
    assert texts(old + minutes("orders", [50] * 20), 40) == texts(minutes("orders", [50] * 20), 40)


def test_late_events_are_named() -> None:
    rows = minutes("clicks", [10] * 12, [40.0] * 6 + [250_000.0] + [40.0] * 5)
    assert texts(rows, 12) == [
        "clicks: events were up to 4 minutes old when published at 2026-03-01 12:06; usually 40 ms (p99)",
    ]


def test_a_backlog_is_compared_with_what_comes() -> None:
    rows = minutes("orders", [100] * 12)
    backlog = [
        {"topic": "orders", "kind": "channel", "name": "billing", "waiting": 12_000},
        {"topic": "orders", "kind": "channel", "name": "quick", "waiting": 500},
        {"topic": "unknown", "kind": "tube", "name": "unknown", "waiting": 10**9},
    ]
    assert texts(rows, 12, backlog) == ["orders: channel billing is 12,000 messages behind, 2 hours of the usual"]


def test_the_strangest_comes_first_and_there_is_an_end() -> None:
    rows = [row for n in range(50) for row in minutes(f"t{n:02}", [100] * 10 + [1000 + 100 * n, *[100] * 3])]
    found = texts(rows, 14)
    assert len(found) == anomalies.MOST
    assert found[0].startswith("t49: 5,900 messages")


class Checker(HTMLParser):
    """Fails on what is not closed in order, and collects what would be loaded."""

    VOID = frozenset({"meta", "path", "use", "rect", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.loaded += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def drawn(topics: int) -> plots.Plot:
    points = [(T0 + timedelta(minutes=n), float(n)) for n in range(5)]
    return plots.plot_lines("Rates", "messages a second", {f"topic-{n}<&>": points for n in range(topics)})


def test_what_waits_is_drawn_of_those_for_whom_something_does() -> None:
    waiting = (("orders", "tube", "orders", 3), ("orders", "channel", "billing", 2), ("mails", "tube", "mails", 0))
    keys = ("topic", "kind", "name", "waiting")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("topics", "minutes", "talkers")}
    svg = report._plots(rows | {"backlog": [dict(zip(keys, row, strict=True)) for row in waiting]})["backlog"].svg
    assert ">tube orders<" in svg and ">orders / channel billing<" in svg and "mails" not in svg


def test_names_whose_letters_no_font_has_are_drawn_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    svg = plots.plot_bars("Talkers", "messages", [("订单 \U000e0041", 3.0)]).svg
    assert "订单" in svg and [*recwarn] == []


def test_the_page_is_whole_needs_nothing_else_and_strangers_names_are_texts() -> None:
    nasty = "<script>alert(1)</script>"
    rows = [{"topic": nasty, "messages": n, "rate": 1.25, "at": T0, "none": None} for n in range(ROWS + 20)]
    odd = [anomalies.Anomaly(nasty, nasty, 1)]
    text = page("Report", T0, [("messages", "1,234")], odd, [drawn(3)], {"Topics": rows})
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.loaded == []
    assert "<script" not in text
    assert checker.cells[:4] == [nasty, "0", "1.2", "2026-03-01 12:00"]
    assert len(checker.cells) == 4 * ROWS
    assert f"The first {ROWS} of {ROWS + 20}." in text
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)


@pytest.mark.parametrize("topics", [1, 12, 30])
def test_lines_stay_apart(topics: int) -> None:
    curves = re.findall(r'<path d="[^"]+" clip-path="[^"]+" style="fill: none; ([^"]*)"', drawn(topics).svg)
    assert len({style for style in curves if "stroke: #b0b0b0" not in style}) == topics


def test_the_highest_line_does_not_lie_on_the_edge_though_all_are_near_it() -> None:
    """As sizes of messages are, which begin at 0 all the same."""
    at = [T0 + timedelta(minutes=n) for n in range(3)]
    svg = plots.plot_lines("Sizes", "bytes", {"a": [(t, 58.0) for t in at], "b": [(t, 60.0) for t in at]}).svg
    (top,) = {float(y) for y in re.findall(r'<clipPath[^>]*>\s*<rect x="[^"]+" y="([^"]+)"', svg)}
    lines = r'<path d="M [\d.]+ ([\d.]+) [^"]*" clip-path="[^"]+" style="fill: none; stroke: #(?!b0b0b0)'  # no grid
    highest = [float(y) for y in re.findall(lines, svg)]
    assert len(highest) == 2 and min(highest) > top + 8


def test_one_topic_of_many_does_not_press_the_others_to_the_ground() -> None:
    def ticks(highest: float) -> str:
        rates = {"orders": highest, "clicks": 50.0, **{f"sensor.{n}": 4.0 + n for n in range(10)}}
        return plots.plot_lines("Rates", "/s", {name: [(T0, rate)] for name, rate in rates.items()}).svg

    # Each is ten times the one before, and written as a number: a page shows no formulas.
    low, high, highest = ticks(60.0), ticks(278.0), ticks(3e6)
    assert {">10<", ">100<"} <= set(re.findall(">[^<>]+<", high))
    assert ">10<" in low and ">100<" not in low
    for svg in (low, high, highest):
        assert "10^" not in svg and "mathdefault" not in svg
    assert ">1,000,000<" in highest


def test_names_that_are_long_are_shortened_in_the_middle() -> None:
    name = "a" * 50 + "-the-end"
    assert plots.shortened(name).endswith("-the-end")
    assert len(plots.shortened(name)) <= plots.LABEL_LETTERS
    svg = plots.plot_bars("Waits", "messages", [(name, 5.0), ("b", 3.0)]).svg
    assert plots.shortened(name) in svg


def test_long_names_that_differ_in_the_middle_only_have_labels_that_differ() -> None:
    def name(number: int) -> str:
        return f"orders.eu-central-1.customer-{number:03d}.checkout-completed-events"

    names = [*map(name, range(20)), name(7) + "-retried", "short", "x" * 250, "x" * 249, "x" * 100 + "y" * 150]
    labels = plots.labels(names)
    assert len(set(labels)) == len(names)
    assert all(len(label) <= plots.LABEL_LETTERS for label in labels)
    assert "customer-013" in labels[13] and labels[21] == "short"
    assert plots.labels([name(1), name(1)]) == [plots.shortened(name(1))] * 2
    svg = plots.plot_lines("Rates", "messages a second", {each: [(T0, 1.0)] for each in names}).svg
    assert all(label in svg for label in labels)


@pytest.mark.parametrize("name", ["a$_$b", "$^$", "$\\frac{$", "%s {} \\"])
def test_a_name_is_no_formula(name: str) -> None:
    for plot in (plots.plot_lines("Rates", "/s", {name: [(T0, 1.0)]}), plots.plot_bars("Waits", "/s", [(name, 1.0)])):
        assert f">{name}<" in plot.svg


@pytest.mark.parametrize(
    ("points", "step", "first"),
    [
        (1, timedelta(minutes=1), ["11:57", "11:58", "11:59", "12:00"]),
        (4, timedelta(minutes=1), ["11:59", "12:00", "12:01"]),
        (20, timedelta(hours=1), ["12:00", "15:00", "18:00", "21:00", "02 Mar", "03:00"]),
        (9, timedelta(days=1), ["02 Mar", "03 Mar"]),
        (40, timedelta(days=10), ["Mar 2026", "May 2026"]),
    ],
)
def test_each_mark_on_the_axis_of_time_can_be_read_alone(points: int, step: timedelta, first: list[str]) -> None:
    svg = plots.plot_lines("Rates", "/s", {"a": [(T0 + n * step, 1.0) for n in range(points)]}).svg
    marks = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    marks = marks[: marks.index("time of publication, UTC")]
    assert marks[: len(first)] == first
    assert not any(mark.isdecimal() for mark in marks), "30 may be a second, a minute or a day"
