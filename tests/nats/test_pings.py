"""When a client is asked whether it is there, by the time that is passed in."""

from __future__ import annotations

from mq_shards.acceptor.engine import Engine

from tests.nats.test_many_wanting import Client
from tests.nats.test_many_wanting import engine as engine

SECOND = 1_000_000_000
INTERVAL = 120


def seconds_until_ping(engine: Engine, client: Client, start: int) -> int:
    """From when it is `start`; what it is asked is not answered."""
    for second in range(2 * INTERVAL):
        engine.turn((start + second) * SECOND)
        if b"PING\r\n" in client.hear():
            client.heard = b""
            return second
    raise AssertionError("it is not asked")


def test_who_has_said_connect_is_asked_soon_and_others_when_they_have_been_silent_for_long(engine: Engine) -> None:
    engine.set("nats.ping-interval-ns", INTERVAL * SECOND)
    engine.set("nats.ping-max", 2)
    silent, connected = Client(engine), Client(engine)  # at time 1
    connected.say(b"CONNECT {}\r\n")
    connected.turn()
    soon = seconds_until_ping(engine, connected, 0)
    assert soon == 3  # 2 and up to a fifth of them
    assert silent.hear() == b""
    assert seconds_until_ping(engine, silent, soon) + soon == INTERVAL + 1


def test_a_proxy_has_some_time_to_say_for_whom_it_comes(engine: Engine) -> None:
    """The rest of what has been begun is waited for half as long as the first of it."""
    silent, slow, quick = Client(engine), Client(engine), Client(engine)
    for each in (silent, slow, quick):
        assert engine.call(each.conn, "proxied-until-ns", 10 * SECOND)
    slow.say(b"PROXY TCP4")
    quick.say(b"PROXY UNKNOWN\r\nPING\r\n")
    quick.turn()
    ended = {}
    for second in range(1, 12):
        engine.turn(second * SECOND)
        for each in (silent, slow, quick):
            if not engine.remote(each.conn):
                ended.setdefault(each.conn, second)
    assert ended == {slow.conn: 6, silent.conn: 10}
    assert b"PONG\r\n" in quick.hear()
