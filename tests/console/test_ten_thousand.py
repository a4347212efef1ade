"""The console with 10,000 topics, on a phone, in the dark, and by the keyboard alone; and `mq-shards top` beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.nsq.api import topic_stats
from tests.reader.broker import Broker, started
from tests.servers import wait_until
from tests.terminal.commands import done, objects

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
TOPICS = 10_000
PHONE = 375
DOWNLOADED = "performance.getEntries().reduce((sum, one) => sum + (one.transferSize ?? 0), 0)"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with started(Path(tmp_path_factory.mktemp("many")) / "data") as broker:
        for begin in range(0, TOPICS, 1000):
            assert broker.publish(*[(f"many.{n:05d}", b"x") for n in range(begin, begin + 1000)]).status == 200
        yield broker


@pytest.fixture
def page(browser: Browser, many: Broker) -> Iterator[Browser]:
    browser.size(PHONE, 700, dark=True, phone=True)
    browser.errors.clear()
    browser.open("about:blank")
    browser.open(f"http://127.0.0.1:{many.port}/")
    browser.sees("busiest topics")
    yield browser
    assert not browser.errors


def fits(page: Browser) -> bool:
    return int(page.js("document.documentElement.scrollWidth")) <= PHONE


def test_it_is_there_soon_and_small_and_fits(page: Browser) -> None:
    page.sees("healthy")
    assert page.js(DOWNLOADED) < 200_000, "with its figures"
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in ground.strip("rgb()").split(",")) < 150 and fits(page)
    for where in ("#/topics", "#/topic/many.09999", "#/shards", "#/pipeline"):
        page.js(f"location.hash = {where!r}")
        page.wait("document.querySelector('main').innerText.length > 60", f"{where} is there")
        assert fits(page), where


def test_by_the_keyboard_alone_a_topic_is_found_published_to_and_deleted(page: Browser, many: Broker) -> None:
    page.key("/")
    page.type("many.07777")
    page.sees(r"1 of 10\D?000 topics")
    page.key("Escape")
    page.key("j")
    page.key("Enter")
    page.wait("document.querySelector('h1')?.innerText === 'many.07777'", "the topic is open")
    page.key("n")
    page.wait("document.querySelector('dialog[open]')", "it asks what is published")
    page.tab_to("it.tagName === 'TEXTAREA'", "the body")
    page.type("typed")
    page.tab_to("it.tagName === 'BUTTON' && /publish/i.test(it.innerText)", "the button")
    page.key("Enter")
    wait_until(lambda: topic_stats(many.server, "many.07777")["message_count"] == 2, "it is published")
    page.wait("!document.querySelector('dialog[open]')", "the dialog has gone")
    page.tab_to("it.dataset.key === 'delete'", "the button")
    page.key("Enter")
    page.wait("document.querySelector('dialog[open]')", "it asks first")
    page.key("Enter")
    page.wait("!document.querySelector('dialog[open]')", "Enter was the safe answer")
    assert topic_stats(many.server, "many.07777") is not None
    page.tab_to("it.dataset.key === 'delete'", "the button")
    page.key("Enter")
    page.wait("document.querySelector('dialog[open]')", "it asks again")
    page.tab_to("it.closest('dialog') && /delete/i.test(it.innerText)", "the other answer")
    page.key("Enter")
    wait_until(lambda: topic_stats(many.server, "many.07777") is None, "it is gone")


def test_pages_of_them_are_turned_by_the_keyboard(page: Browser) -> None:
    page.js("location.hash = '#/topics?order=name&rising=1'")
    page.sees("many.00000")
    page.tab_to("it.dataset.key === 'after'", "the next page")
    page.key("Enter")
    page.wait("!document.body.innerText.includes('many.00000')", "another page is shown")
    page.sees("many.00050")
    page.wait("document.activeElement.dataset.key === 'after'", "the next one is a key away")
    page.key("Enter")
    page.sees("many.00100")
    page.key("ArrowLeft")
    page.sees("many.00050")
    page.key("ArrowRight")
    page.sees("many.00100")
    assert fits(page)


def test_top_shows_them_too(many: Broker) -> None:
    at = f"--at=http://127.0.0.1:{many.port}"
    begun = time.monotonic()
    (found,) = objects("top", "--count", "1", at)
    assert len(found["rows"]) >= 10 and len(found["rows"]) < 1000
    assert b"many." in done("top", "--count", "1", at)
    assert len(done("topics", "many.099", at).splitlines()) >= 100
    assert time.monotonic() - begun < 60
