"""Who says nothing is asked, and cut off when it does not answer: a real broker does so every 30 s."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.nsq.process_memory import anonymous_bytes
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, entry_of, metadata, send_frame

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


def test_what_a_burst_of_sends_took_is_free_for_others_after_the_next_tick() -> None:
    sends, connections, pending_bytes = 1000, 20, 40
    burst = b"".join(send_frame(1, n, entry_of(metadata(sequence_id=n), b"x")) for n in range(sends))
    with ExitStack() as stack:
        server = stack.enter_context(running(settings=["pulsar.keep-alive=2s"]))

        def burst_all(name: str) -> int:
            """The acceptor's memory after new connections have each sent a burst, and the tick after it."""
            wires = [stack.enter_context(Wire(server.port)).connect() for _ in range(connections)]
            for n, wire in enumerate(wires):
                wire.producer(f"{name}-{n}")
                wire.raw(burst)
                wire.until(lambda frame: frame.name == "send_receipt" and frame.body.sequence_id == sends - 1)
            for wire in wires:
                wire.expect("ping")
                wire.say("pong")
            return anonymous_bytes(server.pid_of("mq-acceptor-0"))

        burst_all("warm")  # the pools of the acceptor have what they keep then
        sizes = [burst_all(name) for name in ("first", "second", "third")]
        # The memory's end may move once for another reason; what a burst leaves behind, each of them does.
        grown = min(after - before for before, after in itertools.pairwise(sizes))
        assert grown < sends * connections * pending_bytes / 2
