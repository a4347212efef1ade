"""A client that may answer requests (allow_responses) and has very many of them unanswered."""

from __future__ import annotations

import time

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.nats.who import Permissions, Responses

from tests.nats.engine_client import NATS, Client, opened

SECOND = 1_000_000_000
LIFETIME_S = 100
AT_ONCE = 4096
TOO_MANY = 32 * AT_ONCE  # more than a connection holds


def ask(engine: Engine, asker: Client, asked: Client, requests: range, now_s: int) -> float:
    """Returns the CPU seconds that it took."""
    began = time.thread_time()
    asker.say(b"".join(b"PUB ask in.%d 0\r\n\r\n" % number for number in requests))
    asked.heard = b""
    while asked.hear().count(b"MSG ask ") < len(requests):
        engine.turn(now_s * SECOND)
        list(engine.upcalls())
    return time.thread_time() - began


def answer(engine: Engine, asker: Client, asked: Client, requests: range, now_s: int) -> int:
    """Returns how many came."""
    asker.heard = asked.heard = b""
    asked.say(b"".join(b"PUB in.%d 0\r\n\r\n" % number for number in requests) + b"PING\r\n")
    while not asked.hear().endswith(b"PONG\r\n"):
        engine.turn(now_s * SECOND)
        list(engine.upcalls())
    return asker.hear().count(b"MSG in.")


def test_further_requests_cost_no_more_and_are_answered_again_when_there_is_room() -> None:
    with opened() as engine:
        engine.configure(NATS, "permissions", 1, Permissions(responses=Responses(1, LIFETIME_S * SECOND)).lines())
        asked, asker = Client(engine), Client(engine)
        asked.say(b"SUB ask 1\r\n")
        asker.say(b"SUB in.* 1\r\n")
        asked.turn()
        engine.call(asked.conn, "permissions", 1)
        costs = [ask(engine, asker, asked, range(first, first + AT_ONCE), 1) for first in range(0, TOO_MANY, AT_ONCE)]
        assert min(costs[-4:]) < 20 * max(costs[:4])
        first, last = range(AT_ONCE), range(TOO_MANY - AT_ONCE, TOO_MANY)
        assert answer(engine, asker, asked, last, 2) == 0  # they were too many
        assert answer(engine, asker, asked, first, 2) == AT_ONCE
        assert answer(engine, asker, asked, first, 2) == 0  # each once
        again = range(TOO_MANY, TOO_MANY + AT_ONCE)
        ask(engine, asker, asked, again, LIFETIME_S + 3)
        assert answer(engine, asker, asked, again, LIFETIME_S + 3) == AT_ONCE
