"""Limits that options set: at the limit all is well, one beyond is refused, and the broker goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nsq import frames
from tests.nsq.frames import OK, Frame, error, size
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer


@pytest.fixture
def wire(limited: NsqServer) -> Iterator[Wire]:
    with Wire(limited) as wire:
        yield wire


def test_message_size(limited: NsqServer, wire: Wire, topic: str) -> None:
    body = b"x" * 100
    with consumer(limited, topic, rdy=3) as reader:
        wire.publish(topic, body)
        wire.publish_deferred(topic, 0, body)
        wire.publish_many(topic, [body])
        messages = reader.messages(3)
        assert [message.body for message in messages] == [body] * 3
        reader.fin(*messages)
        wire.fails(f"PUB {topic}\n".encode() + size(101), "E_BAD_MESSAGE PUB message too big 101 > 100")
        with Wire(limited) as wire:
            wire.fails(f"DPUB {topic} 1\n".encode() + size(101), "E_BAD_MESSAGE DPUB message too big 101 > 100")
        with Wire(limited) as wire:
            wire.fails(
                f"MPUB {topic}\n".encode() + size(500) + size(2) + frames.sized(body) + size(101),
                "E_BAD_MESSAGE MPUB message too big 101 > 100",
            )
        assert reader.is_quiet()


def test_body_size_of_identify_and_auth(limited: NsqServer) -> None:
    with Wire(limited) as wire:
        assert wire.ask(frames.identify_body(b'{"hostname":"%s"}' % (b"h" * (1000 - 15)))) == OK
        wire.fails(b"IDENTIFY\n" + size(1001), "E_BAD_BODY IDENTIFY body too big 1001 > 1000")
    with Wire(limited) as wire:
        wire.fails(b"AUTH\n" + size(1001), "E_BAD_BODY AUTH body too big 1001 > 1000")


def test_body_size_of_mpub(limited: NsqServer, wire: Wire, topic: str) -> None:
    """The count and each message's size count too."""
    bodies = [b"x" * 100] * 9 + [b"x" * (1000 - 4 - 9 * 104 - 4)]
    command = frames.mpub(topic, bodies)
    assert len(command) == len(f"MPUB {topic}\n") + 4 + 1000
    assert wire.ask(command) == OK
    wire.fails(f"MPUB {topic}\n".encode() + size(1001), "E_BAD_BODY MPUB body too big 1001 > 1000")


def test_count_of_mpub(limited: NsqServer, wire: Wire, topic: str) -> None:
    """As many as messages of one byte fit into the greatest body."""
    wire.publish_many(topic, [b"x"] * 199)
    wire.fails(f"MPUB {topic}\n".encode() + size(1000) + size(200), "E_BAD_BODY MPUB invalid message count 200")


def test_rdy_count(limited: NsqServer, topic: str) -> None:
    with consumer(limited, topic, rdy=50, msg_timeout=1000) as wire:
        wire.publish_many(topic, [b"%d" % n for n in range(60)])
        # The answer to that and the messages may come in any order.
        held = wire.messages(50)
        assert wire.is_quiet(0.02)
        assert len({message.id for message in held}) == 50
        wire.fails("RDY 51\n", "E_INVALID RDY count 51 out of range 0-50")


def test_consumers_of_a_channel(limited: NsqServer, topic: str) -> None:
    wires = [consumer(limited, topic, "ch") for _ in range(2)]
    text = f"E_SUB_FAILED SUB failed consumers for {topic}:ch exceeds limit of 2"
    with Wire(limited) as third:
        third.fails(frames.sub(topic, "ch"), text)
    with consumer(limited, topic, "other", rdy=1) as other:
        other.publish(topic, b"x")
        assert other.message().body == b"x", "each channel has its own"
    wires.pop().close()
    for _ in range(1000):
        with Wire(limited) as wire:
            answer = wire.ask(frames.sub(topic, "ch"))
            if answer == OK:
                break
            assert answer == error(text)
    else:
        raise AssertionError("one has left, and nobody may take its place")
    for wire in wires:
        wire.close()


def test_delay_of_dpub(wire: Wire, topic: str) -> None:
    wire.publish_deferred(topic, 600, b"x")
    wire.fails(f"DPUB {topic} 601\n", "E_INVALID DPUB timeout 601 out of range 0-600")


def test_many_refused_clients_leave_nothing_behind(limited: NsqServer, topic: str) -> None:
    for _ in range(200):
        with Wire(limited) as wire:
            wire.send(f"PUB {topic}\n".encode() + size(101))
            assert wire.frames_until_close() == [Frame(1, b"E_BAD_MESSAGE PUB message too big 101 > 100")]
    with Wire(limited) as wire:
        wire.publish(topic, b"x")
