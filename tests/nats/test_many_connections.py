"""What very many connections want is sent in pieces: others are served between, and what waits does not grow."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import Engine
from mq_shards.csrc._core import lib
from mq_shards.ringbuf import ring

from tests.nats.test_many_wanting import HANDED_PER_TURN, NATS, Client

LISTENERS = 1500
MOST_SENT = 2 * (256 + 128)  # csrc/acceptor/bounds.h, and of a test's turn the end is one of its own
MOST_TURNS = 1000


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    """Two acceptors that know each other."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    board = os.memfd_create("board")
    wakes = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    assert lib.board_format(board)
    engines = [Engine(index, 1, 1, board, wake) for index, wake in enumerate(wakes)]
    rings = [ring.create(1 << 18, epoch=1) for _ in range(2)]
    for one, other in ((0, 1), (1, 0)):
        engines[one].mesh(other, rings[one], rings[other], wakes[other])
    for engine in engines * 3:
        engine.turn(1)
    yield engines
    for engine in engines:
        engine.close()
    for fd in (board, *wakes, *rings):
        os.close(fd)


def listeners_of(engine: Engine, count: int = LISTENERS) -> list[Client]:
    made = [Client(engine) for _ in range(count)]
    for listener in made:
        listener.say(b"SUB a 1\r\n")
        listener.turn()
    return made


def turn(engines: list[Engine]) -> None:
    for engine in engines:
        engine.turn(1)
        assert not list(engine.upcalls())


def heard(listeners: list[Client]) -> int:
    return sum(len(listener.hear()) for listener in listeners)


def test_it_is_sent_in_pieces_and_others_are_answered_between(engines: list[Engine]) -> None:
    publisher, other = Client(engines[0]), Client(engines[0])
    listeners = listeners_of(engines[0])
    publisher.say(b"PUB a 1\r\nx\r\n")
    message = b"MSG a 1 1\r\nx\r\n"
    before, turns = 0, 0
    while before < LISTENERS * len(message):
        other.say(b"PING\r\n")
        turn(engines)
        turns += 1
        now = heard(listeners)
        assert now - before <= MOST_SENT * len(message), "a turn sends to some only"
        assert other.hear().count(b"PONG\r\n") >= turns - 1, "who comes meanwhile does not wait for all of them"
        before = now
        assert turns < MOST_TURNS
    assert turns >= LISTENERS // MOST_SENT
    assert all(listener.heard == message for listener in listeners)


def test_publishers_wait_until_what_was_published_is_on_its_way_and_those_of_other_acceptors_too(
    engines: list[Engine],
) -> None:
    """One there and one here publish for all, a third for one client, who hears of it soon."""
    listeners = listeners_of(engines[0])
    for _ in range(3):
        turn(engines)  # the other acceptor hears of it
    quick, one = Client(engines[0]), Client(engines[0])
    one.say(b"SUB b 1\r\n")
    count = 70
    publishers = [Client(engine) for engine in engines]
    for publisher, name in zip(publishers, (b"here", b"over"), strict=True):
        publisher.say(b"".join(b"PUB a 8\r\n%b%04d\r\n" % (name, n) for n in range(count)))
    line = len(b"MSG a 1 8\r\nhere0000\r\n")
    most = longest = answered = asked_at = 0
    quick.say(b"PUB b 0\r\n\r\n")
    for turns in range(MOST_TURNS):
        turn(engines)
        if one.hear().count(b"MSG b ") > answered:
            answered += 1
            longest, asked_at = max(longest, turns - asked_at), turns
            quick.say(b"PUB b 0\r\n\r\n")
        now = heard(listeners)
        most = max(most, engines[0].counters(NATS)["out-messages"] - answered - now // line)
        if now == 2 * count * line * LISTENERS:
            break
    expected = [[b"%b%04d" % (name, n) for n in range(count)] for name in (b"here", b"over")]
    for listener in listeners:
        came = listener.heard.split(b"\r\n")[1::2]
        assert [[word for word in came if word[:4] == words[0][:4]] for words in expected] == expected
    assert LISTENERS < most <= HANDED_PER_TURN + 4 * LISTENERS, "what waits to be sent"
    assert answered > 20 and longest <= 8
