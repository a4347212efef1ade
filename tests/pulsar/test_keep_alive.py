"""Who says nothing is asked, and cut off when it does not answer: a real broker does so every 30 s."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire

TICK_S = 0.7


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    with running(settings=[f"pulsar.keep-alive={int(TICK_S * 1000)}ms"]) as server:
        yield server


@pytest.mark.parametrize("pings", [False, True], ids=["says nothing", "says PING"])
def test_who_has_not_said_connect_by_the_first_tick_is_cut_off(server: PulsarServer, pings: bool) -> None:
    with Wire(server.port) as wire:
        began = time.monotonic()
        if pings:
            wire.say("ping")
            wire.expect("pong")
        assert wire.receive() is None
        assert TICK_S * 0.9 < time.monotonic() - began < TICK_S * 5


def test_who_does_not_answer_a_ping_is_cut_off_at_the_next_tick(server: PulsarServer) -> None:
    with Wire(server.port) as wire:
        wire.connect()
        wire.expect("ping")
        began = time.monotonic()
        assert wire.receive() is None
        assert TICK_S * 0.9 < time.monotonic() - began < TICK_S * 5


@pytest.mark.parametrize("answer", ["pong", "ping"])
def test_who_says_anything_stays(server: PulsarServer, answer: str) -> None:
    with Wire(server.port) as wire:
        wire.connect()
        for _ in range(3):
            wire.expect("ping")
            wire.say(answer)
        wire.ask("lookupTopic", "lookupTopicResponse", topic="t")
