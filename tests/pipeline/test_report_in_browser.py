"""A report's page in a real browser: all of it is seen, and no label lies on another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from mq_shards.pipeline import plots
from mq_shards.pipeline.report_page import page

from tests.console.browser import Browser
from tests.console.conftest import browser  # noqa: F401

T0 = datetime(2026, 3, 1, 23, 50, tzinfo=UTC)
TOPICS = ["orders", "żółw <b>&", "mails.outgoing.with-a-rather-long-name-as-teams-give-them", *map(str, range(11))]
FIGURES = ("messages", "bytes", "mean bytes", "max bytes", "mean delay ms", "p50 delay ms", "p99 delay ms")
# Pairs of texts of one picture that lie on each other.
OVERLAPS = """[...document.querySelectorAll('figure')].flatMap((figure) => {
    const texts = [...figure.querySelectorAll('text')].map((one) => [one.textContent, one.getBoundingClientRect()]);
    return texts.flatMap(([text, a], n) => texts.slice(n + 1).filter(([, b]) =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2
    ).map(([other]) => `${text} / ${other}`));
})"""
# How bright the page is, and the text of its pictures as they are shown: 0 to 255.
BRIGHT = """(() => {
    const red = (of) => +getComputedStyle(of).backgroundColor.match(/[0-9]+/)[0];
    const inverts = getComputedStyle(document.querySelector('figure svg')).filter.match(/invert\\(([0-9.]+)/);
    return [red(document.querySelector('section')), inverts ? 255 * inverts[1] : 0];
})()"""
CUT = "[...document.querySelectorAll('.scroll, figure')].filter((one) => one.scrollWidth > one.clientWidth).length"


@cache
def report() -> str:
    at = [T0 + timedelta(minutes=n) for n in range(25)]
    lines = {name: [(t, 3.0**n + t.minute) for t in at] for n, name in enumerate(TOPICS)}
    bars = [(f"user-{n} in {TOPICS[n % 3]}", 10.0**n) for n in range(20)]
    drawn = plots.plot_lines("Rates", "messages a second", lines), plots.plot_bars("Talkers", "messages", bars)
    rows = [{"topic": name, **dict.fromkeys(FIGURES, 1_234_567.8)} for name in TOPICS]
    return page("Report", T0, [("messages", "1,234")], [], drawn, {"Topics": rows})


@pytest.mark.parametrize("width", [1200, 1920])
def test_all_is_seen_and_no_label_lies_on_another(browser: Browser, tmp_path: Path, width: int) -> None:  # noqa: F811
    path = tmp_path / "report.html"
    path.write_text(report())
    browser.size(width, 900)
    browser.open(path.as_uri())
    browser.sees("p99 delay ms")
    assert browser.js("document.querySelectorAll('figure text').length") > 60
    assert browser.js(OVERLAPS) == []
    assert browser.js(CUT) == 0
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    assert browser.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_read_on_a_phone_by_day_and_by_night(browser: Browser, tmp_path: Path, dark: bool) -> None:  # noqa: F811
    path = tmp_path / "report.html"
    path.write_text(report())
    browser.size(390, 800, dark=dark, phone=True)
    browser.open(path.as_uri())
    browser.sees("p99 delay ms")
    assert browser.js(OVERLAPS) == []
    assert browser.js("document.documentElement.scrollWidth <= innerWidth"), "only pictures and tables scroll aside"
    page, text = browser.js(BRIGHT)
    assert (page < 64 and text > 192) if dark else (page > 192 and text < 64)
