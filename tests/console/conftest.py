"""A broker with something in it, for all tests of the console; and one browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.console.browser import Browser, program
from tests.reader.broker import Broker, started


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    options = ("--shards", "64", "--set", "http.hosts=mq.example.com")
    with started(Path(tmp_path_factory.mktemp("console")) / "data", *options) as broker:
        yield broker


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = program()
    if chromium is None:
        pytest.skip("there is no chromium, and it cannot be installed")
    browser = Browser(chromium)
    yield browser
    browser.close()


@pytest.fixture
def page(browser: Browser, broker: Broker) -> Iterator[Browser]:
    browser.size(1200, 800)
    browser.errors.clear()
    browser.requested.clear()
    browser.open("about:blank")
    browser.open(f"http://127.0.0.1:{broker.port}/")
    browser.sees("busiest topics")
    yield browser
    assert not browser.errors
    hosts = {urlsplit(url).hostname for url in browser.requested if url.startswith("http")}
    assert hosts == {"127.0.0.1"}, "nothing comes from elsewhere"
