"""Subscriptions by the ten thousand: tables grow bucket by bucket, and nothing in them is lost or met twice."""

from __future__ import annotations

import os
import random
import re
from collections import Counter

from mq_shards.acceptor.engine import Engine
from mq_shards.csrc._core import lib
from mq_shards.ringbuf import ring

from tests.nats.engine_client import NATS, Client, opened
from tests.nats.test_gone_accounts import acceptors, turn

SUBJECTS = 20_000
AT_ONCE = 500


def pattern_of(number: int) -> str:
    return f"a.{number}.*" if number % 3 == 0 else f"a.{number}.b"


def test_subscriptions_are_found_while_others_come_and_go() -> None:
    random_ = random.Random(5)
    with opened() as engine:
        client, publisher = Client(engine), Client(engine)
        there: set[int] = set()
        for step in range(0, SUBJECTS, AT_ONCE):
            more = list(range(step, step + AT_ONCE))
            gone = random_.sample(sorted(there), min(len(there), AT_ONCE // 3))
            lines = [f"SUB {pattern_of(one)} {one}\r\n" for one in more] + [f"UNSUB {one}\r\n" for one in gone]
            random_.shuffle(lines)
            client.say("".join(lines).encode())
            there = (there | set(more)) - set(gone)
        client.turns_until_pong()
        assert engine.counters(NATS)["subscriptions"] == len(there)
        for begin in range(0, SUBJECTS, AT_ONCE):
            wanted = range(begin, begin + AT_ONCE)
            publisher.say(b"".join(b"PUB a.%d.b 0\r\n\r\n" % one for one in wanted))
            publisher.turns_until_pong()
            client.turns_until_pong()
        heard = Counter(int(one) for one in re.findall(rb"MSG \S+ (\d+) 0\r\n", client.hear()))
        assert heard == Counter(there)
        client.say(b"".join(b"UNSUB %d\r\n" % one for one in there))
        client.turns_until_pong()
        assert engine.counters(NATS)["subscriptions"] == 0


def test_an_acceptor_that_comes_anew_is_told_all_while_more_are_made() -> None:
    with acceptors(1) as (first,):
        client = Client(first)
        client.say(b"".join(f"SUB {pattern_of(one)} {one}\r\n".encode() for one in range(SUBJECTS)))
        client.turns_until_pong()
        board, wake = os.memfd_create("board"), os.eventfd(0, os.EFD_NONBLOCK)
        assert lib.board_format(board)
        second = Engine(1, 1, 1, board, wake)
        rings = [ring.create(1 << 22, epoch=1) for _ in range(2)]
        first.mesh(1, rings[0], rings[1], wake)
        second.mesh(0, rings[1], rings[0], wake)
        more = 0
        for _ in range(30):  # a piece is told in each of the first of these
            client.say(b"".join(f"SUB {pattern_of(SUBJECTS + more + n)} x{more + n}\r\n".encode() for n in range(200)))
            more += 200
            turn([first, second], 1)
        turn([first, second], 100)
        publisher = Client(second)
        for begin in range(0, SUBJECTS + more, AT_ONCE):
            for one in range(begin, min(begin + AT_ONCE, SUBJECTS + more)):
                publisher.say(b"PUB a.%d.b 0\r\n\r\n" % one)
            turn([second, first], 2)
            client.hear()
        turn([second, first], 6)
        heard = Counter(re.findall(rb"MSG a\.(\d+)\.b ", client.hear()))
        assert heard == Counter(b"%d" % one for one in range(SUBJECTS + more))
        second.close()
        for fd in (board, wake, *rings):
            os.close(fd)
