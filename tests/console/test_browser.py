"""The console in a real Chromium, as somebody uses it who looks after a broker."""

from __future__ import annotations

import json
import re
import struct
import time
from typing import Any

import greenstalk
import pytest

from tests.console.browser import Browser
from tests.console.texts import act
from tests.nsq.api import channel_stats, post, topic_stats
from tests.reader.broker import Broker
from tests.servers import wait_until


def test_figures_are_live(page: Browser, broker: Broker) -> None:
    page.sees("healthy")
    broker.publish(*[("live.topic", b"x")] * 7)
    page.sees(r"live\.topic")
    page.go("#/topic/live.topic")
    page.sees(r"in all\s+7")
    broker.publish(*[("live.topic", b"x")] * 3)
    page.sees(r"in all\s+10")
    page.go("#/shards")
    page.sees("mq-worker-1\\s+up")
    assert page.js("document.querySelectorAll('.cell').length") == 64


def test_a_search_by_keyboard_opens_a_topic(page: Browser, broker: Broker) -> None:
    broker.publish(("needle.one", b"x"), ("needle.two", b"x"))
    page.key("/")
    page.type("NEEDLE.t")
    page.sees("1 of [0-9]+ topics")
    page.key("Escape")
    page.key("j")
    assert page.js("document.activeElement.innerText") == "needle.two"
    page.sees("1 of [0-9]+ topics")
    page.key("Enter")
    page.wait("document.querySelector('h1')?.innerText === 'needle.two'", "the topic is open")
    page.key("Escape")
    page.wait("location.hash === '#/topics'", "back in the list")
    page.wait("/topics$/i.test(document.querySelector('h1')?.innerText)", "the list is there, too")
    page.key("?")
    page.sees("find a topic")
    assert page.js("document.activeElement.innerText") == "Close"


def test_the_keyboards_place_stays_when_figures_change(page: Browser, broker: Broker) -> None:
    broker.publish(("stay.a", b"x"), ("stay.b", b"x"))
    page.go("#/topics?search=stay.&order=name&rising=1")
    page.sees("2 of")
    page.key("j")
    page.key("j")
    page.js("document.querySelector('tbody').dataset.old = '1'")
    page.wait("!document.querySelector('tbody').dataset.old", "it has been drawn anew")
    assert page.js("document.activeElement.innerText") == "stay.b"


def test_bodies_as_text_json_and_hex_and_never_as_html(page: Browser, broker: Broker) -> None:
    html = b"<img src=x onerror=\"document.title='taken'\"><b>bold</b>"
    sent = [html, b'{"name": "ada", "n": [1, 2]}', bytes([0, 1, 254, 255]) + b"bin", b"y" * 9000]
    post(broker.server, "/topic/create?topic=shown")
    post(broker.server, "/channel/create?topic=shown&channel=c")
    broker.publish(*[("shown", body) for body in sent])
    page.go("#/topic/shown")
    page.sees("00 01 fe ff 62 69 6e")
    assert page.js("document.querySelectorAll('.message').length") == 4
    page.js("document.querySelectorAll('.message summary').forEach((one) => one.click())")
    page.sees(r'"name": "ada",')
    page.sees(r"00000000  00 01 fe ff 62 69 6e")
    whole = "[...document.querySelectorAll('pre')].some((one) => one.innerText === 'y'.repeat(9000))"
    page.wait(whole, "all of it is there")
    page.sees("<b>bold</b>")
    page.button("Hex")
    page.sees("3c 69 6d 67")
    assert page.js("document.title") == "mq-shards"
    assert page.js("document.querySelectorAll('main img').length") == 0
    found = channel_stats(broker.server, "shown", "c")
    assert found is not None
    assert (found["depth"], found["in_flight_count"]) == (4, 0), "looked at, not taken"


@pytest.mark.parametrize("name", ["<img src=x onerror=document.title='taken'>", "'-alert(1)-' <b>", "%3Cb%3E/../#/?&"])
def test_a_name_is_never_html_nor_an_address(page: Browser, broker: Broker, name: str) -> None:
    act(broker, do="publish", topic=name, body="x")
    page.go("#/topics?order=name&show=all")
    page.sees(re.escape(name))
    found = f"[...document.querySelectorAll('td.name a')].find((one) => one.textContent === {json.dumps(name)})"
    page.wait(found, "it is in the list")
    page.js(f"{found}.click()")
    page.wait(f"document.querySelector('main h1')?.textContent === {json.dumps(name)}", "its page is shown")
    assert page.js("document.title") == "mq-shards"
    assert page.js("document.querySelectorAll('main img, main b').length") == 0


def test_a_message_that_is_open_stays_while_newer_ones_come(page: Browser, broker: Broker) -> None:
    broker.publish(("busy", b"read by somebody"))
    page.go("#/topic/busy")
    page.click(".message summary")
    page.wait("document.querySelector('.message[open] pre')", "the body is shown")
    broker.publish(*[("busy", b"newer")] * 50)
    page.wait("document.querySelector('main').innerText.match(/\\b51(?!\\d)/)", "51 are counted")
    assert page.js("document.querySelector('.message[open]')?.innerText.includes('read by somebody')")
    page.click(".message summary")
    page.wait("document.querySelectorAll('.message').length === 20", "the newest are shown again")


def test_one_thing_is_not_called_things(page: Browser, broker: Broker) -> None:
    broker.publish(("single", b"x"))
    act(broker, do="make", topic="single", channel="c")
    page.go("#/topic/single")
    page.sees(r"backlog\s+1\s*message\b")
    page.sees(r"in all\s+1\s*message,")
    page.button("Delete")
    page.sees("The topic, its 1 channel and 1 message are gone")
    page.button("Cancel")


def test_what_is_published_is_what_was_typed(page: Browser, broker: Broker) -> None:
    broker.publish(("typed", b"first"))
    page.go("#/topic/typed")
    page.sees(r"in all\s+1")
    page.key("n")
    page.sees("Publish to typed")
    page.type("häß\n{}")
    page.button("Publish")
    page.sees("Published to typed")
    found: Any = broker.json("/v1/peek?topic=typed")
    assert [message["text"] for message in found["messages"]] == ["first", "häß\n{}"]


def test_each_change_is_asked_about_first(page: Browser, broker: Broker) -> None:
    def channel() -> dict[str, Any]:
        found = channel_stats(broker.server, "asked", "c")
        assert found is not None
        return found

    act(broker, do="make", topic="asked", channel="c")
    act(broker, do="rewind", topic="asked", channel="c")  # from now on it is known what is finished
    broker.publish(*[("asked", b"x")] * 5)
    page.go("#/topic/asked")
    page.wait("document.querySelector('[data-key=\"channel c empty\"]')", "the channel is there")
    page.click('[data-key="channel c empty"]')
    page.sees("5 messages that wait for this channel are gone")
    assert page.js("document.activeElement.innerText") == "Cancel", "the safe one has the focus"
    page.key("Enter")
    page.wait("!document.querySelector('dialog')", "the question is gone")
    assert channel()["depth"] == 5
    page.click('[data-key="channel c empty"]')
    page.button("Empty")
    page.sees("Emptied")
    assert channel()["depth"] == 0
    page.click('[data-key="channel c pause"]')
    page.button("Pause")
    page.sees("paused")
    assert channel()["paused"]
    page.click('[data-key="channel c rewind"]')
    page.button("Next")
    page.button("Deliver again")
    wait_until(lambda: channel()["depth"] == 5, "all is to be delivered again")
    page.click('[data-key="delete"]')
    page.sees("for good")
    page.button("Delete")
    page.wait("location.hash === '#/topics'", "it is left")
    assert topic_stats(broker.server, "asked") is None


def test_buried_jobs_are_kicked(page: Browser, broker: Broker) -> None:
    with greenstalk.Client(("127.0.0.1", broker.server.beanstalk_port), use="kicked", watch="kicked") as client:
        for n in range(3):
            client.put(str(n))
        for _ in range(3):
            client.bury(client.reserve())
        page.go("#/topic/kicked")
        page.sees(r"3\s+buried")
        page.click('[data-key="kick"]')
        page.sees("3 buried jobs become ready again")
        page.button("Kick")
        page.sees("3 jobs kicked")
        assert client.stats_tube("kicked")["current-jobs-ready"] == 3


def test_readers_and_writers_are_shown_and_forgotten(page: Browser, broker: Broker) -> None:
    broker.publish(*[("read.by", b"x")] * 9)
    broker.call("PUT", "/v1/readers/nightly", b'{"read.by": 2}')
    data = struct.pack("<HHII", 7, 0, 1, 5) + b"read.by" + struct.pack(">I", 1) + b"y"
    assert broker.stage("staged-1", 0, data).status == 200
    assert broker.decide("importer", 1, {"staged-1": len(data)}).status == 200
    page.go("#/pipeline")
    page.sees(r"nightly\s+1\s+8")
    page.sees(r"importer\s+1\s+published")
    row = "[...document.querySelectorAll('tr')].find((row) => row.innerText.includes('nightly'))"
    page.js(f"{row}.querySelector('button').click()")
    page.button("Forget")
    page.sees("nightly is forgotten")
    assert broker.json("/v1/readers") == {"readers": []}


def test_in_the_dark_it_is_dark(page: Browser, broker: Broker) -> None:
    page.size(390, 800, dark=True, phone=True)
    ground = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)"
    page.wait(f"{ground}.reduce((sum, part) => sum + Number(part), 0) < 150", "its ground is dark")
    page.js("document.getElementById('theme').click()")
    assert page.js("document.documentElement.dataset.theme") == "light"
    page.js("localStorage.clear()")


def test_a_broker_that_is_away_is_said_and_comes_back(page: Browser, broker: Broker) -> None:
    broker.server.replace("mq-worker-0")
    broker.server.replace("mq-gateway")
    time.sleep(0.1)
    page.go("#/topics")
    page.sees("healthy")
    page.wait("document.querySelector('.problem').hidden", "nothing is wrong any more")
    page.errors.clear()  # what could not be loaded meanwhile


def test_every_control_has_a_name(page: Browser, broker: Broker) -> None:
    page.go("#/topics")
    page.sees("topics")
    unnamed = page.js(
        "[...document.querySelectorAll('button, input, a')]"
        ".filter((one) => !(one.innerText.trim() || one.getAttribute('aria-label'))).map((one) => one.outerHTML)"
    )
    assert unnamed == []
