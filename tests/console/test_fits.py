"""The console on narrow and wide screens, light and dark: every control is in reach, every text can be read."""

from __future__ import annotations

import pytest

from tests.console.browser import Browser
from tests.console.texts import LONG, act
from tests.nsq.api import channel_stats
from tests.reader.broker import Broker

PAGES = ("#/", "#/topics", f"#/topic/{LONG}", "#/shards", "#/pipeline")
# The controls that stand, by a pixel or more, beside what is shown of the elements that they are in.
CUT_OFF = """
[...document.querySelectorAll("button, a, input")].filter((one) => {
  if (!one.offsetParent || one.matches(".skip, td.name a")) return false;  // a name may end in an ellipsis
  const own = one.getBoundingClientRect();
  let [left, right] = [0, innerWidth];
  for (let around = one.parentElement; around; around = around.parentElement) {
    if (getComputedStyle(around).overflowX === "visible") continue;
    const { left: begin, right: end } = around.getBoundingClientRect();
    [left, right] = [Math.max(left, begin), Math.min(right, end)];
  }
  return own.left < left - 1 || own.right > right + 1;
}).map((one) => one.outerHTML)"""
# The texts with less contrast than WCAG 2.2 asks for at level AA, and how much they have.
FAINT = """
(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const over = (above, below) => below.map((value, i) => (above[i] * above[3] + value * (255 - above[3])) / 255);
  const light = (colour) => colour.slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const own = (one) => parts(getComputedStyle(one).backgroundColor);
  const ground = (one) => (one ? over(own(one), ground(one.parentElement)) : [255, 255, 255]);
  const found = {};
  for (const one of document.querySelectorAll("body *")) {
    const texts = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const text = texts.map((node) => node.data.trim()).join("");
    if (!text || !one.offsetParent || one.disabled || one.matches(".skip")) continue;
    const style = getComputedStyle(one);
    const below = ground(one);
    const [a, b] = [light(over(parts(style.color), below)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found[text] = contrast;
  }
  return found;
})()"""


def prepared(broker: Broker) -> None:
    """Something to see on each page."""
    broker.publish((LONG, b"x" * 300))
    act(broker, do="make", topic=LONG, channel="c")
    assert broker.call("PUT", "/v1/readers/nightly", b'{"' + LONG.encode() + b'": 1}').status == 200


@pytest.mark.parametrize("width", [360, 768, 1024, 1280])
def test_every_control_is_reached_without_scrolling_sideways(page: Browser, broker: Broker, width: int) -> None:
    prepared(broker)
    page.size(width, 800, phone=width < 700)
    for where in PAGES:
        page.go(where)
        page.wait("document.querySelector('main').innerText.length > 60", f"{where} is there")
        assert page.js("document.documentElement.scrollWidth") <= width, where
        assert page.js(CUT_OFF) == [], where


def test_a_number_and_its_unit_stay_on_one_line(page: Browser) -> None:
    found = page.js("import('/console/format.js').then((it) => [it.short(12345), it.bytes(2048), it.bytes(20)])")
    assert found == ["12.3\N{NO-BREAK SPACE}k", "2.0\N{NO-BREAK SPACE}KiB", "20\N{NO-BREAK SPACE}B"]


@pytest.mark.parametrize("width", [360, 720, 1024])
def test_a_narrow_screen_has_all_figures_of_the_list(page: Browser, broker: Broker, width: int) -> None:
    """Beside each other if the screen has room for the figures alone, else as cards."""
    prepared(broker)
    page.size(width, 800, phone=width < 700)
    page.go("#/topics")
    page.wait("document.querySelector('tbody tr')", "the list is there")
    shown = page.js(
        "[...document.querySelectorAll('tbody tr:first-child td')].filter((cell) => cell.offsetParent)"
        ".map((cell) => document.querySelectorAll('th')[cell.cellIndex].textContent)"
    )
    assert {"Delivered/s", "In flight", "Consumers", "Oldest"} <= set(shown)
    assert page.js("!!document.querySelector('.folded')") == (width < 700)


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_stands_out_from_its_ground(page: Browser, broker: Broker, *, dark: bool) -> None:
    prepared(broker)
    page.size(1280, 800, dark=dark)
    for where in PAGES:
        page.go(where)
        page.wait("document.querySelector('main').innerText.length > 60", f"{where} is there")
        assert page.js(FAINT) == {}, where


def test_a_screen_reader_is_told_the_page_and_each_column(page: Browser, broker: Broker) -> None:
    prepared(broker)
    for where in PAGES:
        page.go(where)
        page.wait("document.querySelector('main').innerText.length > 60", f"{where} is there")
        page.wait("document.querySelectorAll('main h1').length === 1", f"{where} says what it is")
        assert page.js("[...document.querySelectorAll('th')].filter((one) => !one.textContent).length") == 0, where


def test_who_cancels_by_escape_is_at_the_button_again(page: Browser, broker: Broker) -> None:
    prepared(broker)
    page.go(f"#/topic/{LONG}")
    page.tab_to("it.dataset.key === 'channel c delete'", "the button")
    page.key("Enter")
    page.wait("document.querySelector('dialog[open]')", "it asks")
    page.js("document.querySelector('[data-key=\"channel c delete\"]').dataset.old = 'yes'")
    page.wait("!document.querySelector('[data-old]')", "new figures have replaced the button")
    page.key("Escape")
    page.wait("!document.querySelector('dialog')", "it does not ask any more")
    assert page.js("document.activeElement.dataset.key") == "channel c delete"
    assert channel_stats(broker.server, LONG, "c") is not None
