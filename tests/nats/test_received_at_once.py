"""How much is received from a client in a turn when few have input. Nothing is lost where that cuts a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from mq_shards.acceptor.engine import Engine

from tests.nats.engine_client import NATS, Client, opened

# csrc/acceptor/bounds.h
RECEIVE: Final = 64 << 10
RECEIVE_ALONE: Final = 256 << 10
MAX_MOVED: Final = 16 << 10

BODY: Final = bytes(range(256)) * 16
LINE: Final = b"PUB a %d\r\n" % len(BODY)
PUBLISHED: Final = LINE + BODY + b"\r\n"
BUFFER: Final = 4 << 20


@pytest.fixture
def engine() -> Iterator[Engine]:
    with opened() as engine:
        yield engine


def received_by_turns(engine: Engine, publisher: Client, listeners: list[Client], turns: int) -> list[int]:
    """How many bytes of messages came in each turn."""
    publisher.say(PUBLISHED * (3 * RECEIVE_ALONE // len(PUBLISHED)))
    came = []
    for _ in range(turns):
        before = engine.counters(NATS)["in-bytes"]
        publisher.turn()
        came.append(engine.counters(NATS)["in-bytes"] - before)
        for listener in listeners:
            listener.hear()
            listener.heard = b""
    while engine.counters(NATS)["in-bytes"] > before:
        before = engine.counters(NATS)["in-bytes"]
        publisher.turn()
    return came


def test_who_is_alone_is_received_from_much_at_a_time_and_less_while_that_makes_very_much_output(
    engine: Engine,
) -> None:
    publisher = Client(engine, buffer_bytes=BUFFER)
    alone = received_by_turns(engine, publisher, [], 2)
    assert all(RECEIVE_ALONE - 2 * len(PUBLISHED) < each <= RECEIVE_ALONE for each in alone)
    listeners = [Client(engine, buffer_bytes=BUFFER) for _ in range(20)]
    for listener in listeners:
        listener.say(b"SUB a 1\r\n")
        listener.turns_until_pong()
    first, *others = received_by_turns(engine, publisher, listeners, 4)
    assert first > RECEIVE_ALONE / 2
    assert all(0 < each <= RECEIVE + len(PUBLISHED) for each in others[1:])
    for listener in listeners:
        listener.socket.close()
    publisher.turns_until_pong()
    assert received_by_turns(engine, publisher, [], 2)[1] > RECEIVE_ALONE / 2


@pytest.mark.parametrize("cut", [1, MAX_MOVED - 1, MAX_MOVED, MAX_MOVED + 1, RECEIVE_ALONE - 1, RECEIVE_ALONE + 1])
def test_a_message_is_whole_wherever_its_first_part_ends(engine: Engine, cut: int) -> None:
    publisher, listener = Client(engine, buffer_bytes=BUFFER), Client(engine, buffer_bytes=BUFFER)
    listener.say(b"SUB a 1\r\n")
    listener.turns_until_pong()
    listener.heard = b""
    body = b"".join(b"%07d " % n for n in range((RECEIVE_ALONE + 5000) // 8))
    said = b"PUB a %d\r\n%b\r\n" % (len(body), body)
    for part in (said[:cut], said[cut:] + PUBLISHED):
        publisher.say(part)
        for _ in range(16):
            publisher.turn()
            listener.hear()
    expected = b"MSG a 1 %d\r\n%b\r\nMSG a 1 %d\r\n%b\r\n" % (len(body), body, len(BODY), BODY)
    assert listener.hear() == expected
