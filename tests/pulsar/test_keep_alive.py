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


def answered(server: PulsarServer, name: str, answer: str, **fields: object) -> Wire:
    """A new connection that has had the answer. On a busy machine the first tick may come before: it is tried again."""
    while True:
        began = time.monotonic()
        wire = Wire(server.port)
        wire.say(name, **fields)
        frame = wire.receive()
        if frame is not None:
            assert frame.name == answer
            return wire
        wire.socket.close()
        assert time.monotonic() - began > TICK_S * 0.9


def connected(server: PulsarServer) -> Wire:
    return answered(server, "connect", "connected", client_version="test", protocol_version=21)


def has_been_cut_off_by_the_second_tick_of(other: Wire, wire: Wire) -> bool:
    """Ticks of two connections come in the order in which these were accepted, however late the test looks."""
    other.expect("ping")
    assert other.receive() is None
    wire.socket.setblocking(False)
    return wire.is_closed()


@pytest.mark.parametrize("pings", [False, True], ids=["says nothing", "says PING"])
def test_who_has_not_said_connect_by_the_first_tick_is_cut_off(server: PulsarServer, pings: bool) -> None:
    def opened() -> Wire:
        return answered(server, "ping", "pong") if pings else Wire(server.port)

    began = time.monotonic()
    with opened() as first, opened() as second, connected(server) as other:
        assert first.receive() is None
        assert time.monotonic() - began > TICK_S * 0.9
        assert has_been_cut_off_by_the_second_tick_of(other, second)


def test_who_does_not_answer_a_ping_is_cut_off_at_the_next_tick(server: PulsarServer) -> None:
    began = time.monotonic()
    with connected(server) as first, connected(server) as second:
        second.expect("ping")
        with connected(server) as other:
            first.expect("ping")
            assert first.receive() is None
            assert time.monotonic() - began > 2 * TICK_S * 0.9
            assert has_been_cut_off_by_the_second_tick_of(other, second)


@pytest.mark.parametrize("answer", ["pong", "ping"])
def test_who_says_anything_stays(server: PulsarServer, answer: str) -> None:
    """It may be cut off only if the test was not given the processor in time to say it, and is tried again then."""
    pings, late = 0, True
    while pings < 4:
        assert late, f"cut off after {pings} pings that were answered in time"
        pings, late, began = 0, False, time.monotonic()
        with connected(server) as wire:
            while pings < 4 and (frame := wire.receive()) is not None:
                if frame.name == "ping":
                    pings += 1
                    wire.say(answer)
                    late = late or time.monotonic() - began > (pings + 0.9) * TICK_S


def test_what_a_burst_of_sends_took_is_free_for_others_after_the_next_tick() -> None:
    sends, connections, pending_bytes = 1000, 20, 40
    burst = b"".join(send_frame(1, n, entry_of(metadata(sequence_id=n), b"x")) for n in range(sends))
    with ExitStack() as stack:
        server = stack.enter_context(running(settings=["pulsar.keep-alive=4s"]))

        def answer(wires: list[Wire]) -> None:
            """Asked or not: a busy machine may take longer for a burst than a client may say nothing."""
            for wire in wires:
                wire.say("pong")

        def burst_all(name: str) -> int:
            """The acceptor's memory after new connections have each sent a burst, and the tick after it."""
            wires = [stack.enter_context(Wire(server.port)).connect() for _ in range(connections)]
            for n, wire in enumerate(wires):
                wire.producer(f"{name}-{n}")
                wire.raw(burst)
                for last in range(99, sends, 100):
                    wire.until(lambda frame, n=last: frame.name == "send_receipt" and frame.body.sequence_id == n)
                    answer(wires)
            for wire in wires:
                wire.expect("ping")
                answer(wires)
            return anonymous_bytes(server.pid_of("mq-acceptor-0"))

        burst_all("warm")  # the pools of the acceptor have what they keep then
        sizes = [burst_all(name) for name in ("first", "second", "third")]
        # The memory's end may move once for another reason; what a burst leaves behind, each of them does.
        grown = min(after - before for before, after in itertools.pairwise(sizes))
        assert grown < sends * connections * pending_bytes / 2
