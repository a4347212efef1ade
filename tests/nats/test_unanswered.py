"""Requests to other accounts' services that nobody answers."""

from __future__ import annotations

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.nats.shares import service_line

from tests.nats.engine_client import NATS, Client, opened

SECOND = 1_000_000_000
AT_ONCE = 4096
BATCHES = 40  # more requests in all than twice as many as an acceptor waits for at a time


def line(exporter: int, subject: str, seconds: int) -> str:
    export = {"kind": "service", "subject": subject, "response": "single", "threshold_ns": seconds * SECOND}
    return service_line(exporter, export, {"kind": "service", "subject": subject, "to": subject})


def turn(engine: Engine, now_s: int) -> None:
    for _ in range(6):
        engine.turn(now_s * SECOND)
        list(engine.upcalls())


def test_they_take_nothing_from_one_that_is_answered_late() -> None:
    with opened() as engine:
        exporter, importer = (engine.configure(NATS, "account", 0, name) for name in (b"A", b"B"))
        shares = line(exporter, "slow", 3600) + line(exporter, "lost", 1)
        engine.configure(NATS, "shares", importer, shares.encode())
        asked, asker = Client(engine), Client(engine)
        for client, account in ((asked, exporter), (asker, importer)):
            engine.call(client.conn, "account", account)
        asked.say(b"SUB slow 1\r\nSUB lost 2\r\n")
        asker.say(b"SUB in 1\r\nPUB slow in 0\r\n\r\n")
        turn(engine, 1)
        reply = asked.hear().split()[3]
        for batch in range(BATCHES):
            asker.say(b"PUB lost out 0\r\n\r\n" * AT_ONCE)
            for _ in range(8):
                turn(engine, 2 + 2 * batch)
                asked.hear()
            assert asked.heard.count(b"MSG lost ") == AT_ONCE
            asked.heard = b""
        asked.say(b"PUB " + reply + b" 2\r\nyo\r\n")
        turn(engine, 2 + 2 * BATCHES)
        assert asker.hear() == b"MSG in 1 2\r\nyo\r\n"


def test_they_take_nothing_from_another_account() -> None:
    """Though none of them is over, and there are more than an acceptor waits for."""
    with opened() as engine:
        exporter, few, many = (engine.configure(NATS, "account", 0, name) for name in (b"A", b"B", b"C"))
        for importer in (few, many):
            engine.configure(NATS, "shares", importer, line(exporter, "slow", 3600).encode())
        asked, asker, other = Client(engine), Client(engine), Client(engine)
        for client, account in ((asked, exporter), (asker, few), (other, many)):
            engine.call(client.conn, "account", account)
        asked.say(b"SUB slow 1\r\n")
        asker.say(b"SUB in 1\r\n" + b"PUB slow in 0\r\n\r\n" * 100)
        turn(engine, 1)
        replies = [heard.split()[3] for heard in asked.hear().split(b"\r\n") if heard]
        assert len(replies) == 100
        asked.heard = b""
        for _ in range(BATCHES):
            other.say(b"PUB slow out 0\r\n\r\n" * AT_ONCE)
            for _ in range(8):
                turn(engine, 2)
                asked.hear()
            assert asked.heard.count(b"MSG slow ") == AT_ONCE
            asked.heard = b""
        for reply in replies:
            asked.say(b"PUB " + reply + b" 2\r\nyo\r\n")
        turn(engine, 2)
        assert asker.hear() == b"MSG in 1 2\r\nyo\r\n" * 100
