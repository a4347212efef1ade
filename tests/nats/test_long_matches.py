"""What takes long to find is found in several turns: strangers choose subjects and patterns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import Engine

from tests.nats.engine_client import Client, opened

AT_ONCE = 1 << 16  # HANDED_PER_TURN of csrc/acceptor/acceptor_state.h
FEW = 64  # SUBJECT_FEW_PARTS of csrc/base/subjects.h
DEPTH = 12
PARTS = 2 ** (DEPTH + 1)  # of all patterns together


@pytest.fixture
def engine() -> Iterator[Engine]:
    with opened() as engine:
        yield engine


@pytest.mark.parametrize("line", [b"PUB %s 0\r\n\r\n", b"pub\t%s 0\r\n\r\n"], ids=["many-in-a-row", "each-apart"])
def test_messages_that_nobody_gets_but_many_might_take_turns(engine: Engine, line: bytes) -> None:
    """Another client is answered in each."""
    listener, publisher, other = Client(engine), Client(engine), Client(engine)
    ways = itertools.product((b"*", b"a"), repeat=DEPTH)
    listener.say(b"".join(b"SUB %s.z %d\r\n" % (b".".join(way), number) for number, way in enumerate(ways)))
    listener.turns_until_pong()
    messages = 200
    publisher.say(b"".join(line % (b"a." * DEPTH + b"%d" % n) for n in range(messages)) + b"PING\r\n")
    turns = 0
    while b"PONG\r\n" not in publisher.hear():
        assert other.turns_until_pong() <= 2
        turns += 1
        assert turns < 10_000
    assert turns >= messages * (PARTS - FEW) / AT_ONCE / 2 / 2
