"""Channels beside a model, in random scripts with restarts and compaction: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import OK, SECOND, SHARDS, Answer
from tests.shards.subscriptions import GONE, Channels, drop_oldest, roll


@dataclass
class Message:
    body: bytes
    attempts: int = 0
    due: int = 0  # when it may be delivered


class Model:
    """What channels must hold: by channel and id."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[int, Message]] = {}
        self.channels: dict[tuple[str, str], dict[int, Message]] = {}


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_nothing_comes_twice_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    bench = Channels()
    model = Model()
    consumers: dict[int, tuple[str, str]] = {}
    flying: dict[int, dict[int, int]] = {}  # by conn: id to deadline
    credit: dict[int, int] = {}
    next_conn = 10

    def take(answers: list[Answer]) -> None:
        for a in answers:
            if a.kind != lib.MSG_DELIVER:
                assert a.kind != lib.MSG_REFUSED, a
                continue
            channel = model.channels[consumers[a.conn]]
            message = channel[a.id]  # KeyError: it was finished, or is not this channel's
            message.attempts += 1
            assert (a.pri, a.body) == (message.attempts, message.body)
            assert message.due <= bench.now
            for conn, ids in flying.items():
                if consumers[conn] == consumers[a.conn]:
                    assert a.id not in ids or ids[a.id] <= bench.now
                    ids.pop(a.id, None)
            flying[a.conn][a.id] = bench.now + 60 * SECOND
            assert len(flying[a.conn]) <= credit[a.conn]

    def publish(name: str, id: int, body: bytes, delay: int) -> None:
        channels = [held for (topic, _), held in model.channels.items() if topic == name]
        for held in channels or [model.waiting.setdefault(name, {})]:
            held[id] = Message(body, due=bench.now + delay * SECOND)

    for _ in range(120):
        name = rng.choice("ab")
        action = rng.randrange(14)
        conn = rng.choice(list(consumers)) if consumers else 0
        if action <= 2:
            delay = rng.choice([0, 0, 0, 20, 300])
            now_id = bench.next_id
            body = rng.randbytes(rng.choice([1, 30, 3000]))
            publish(name, now_id, body, delay)
            take(bench.pub(name, body, delay)[1])
        elif action == 3:
            bodies = [rng.randbytes(rng.randrange(1, 50)) for _ in range(rng.randrange(1, 20))]
            for n, body in enumerate(bodies):
                publish(name, bench.next_id + n * SHARDS, body, 0)
            first = bench.next_id
            bench.next_id += SHARDS * len(bodies)
            data = b"".join(struct.pack(">I", len(b)) + b for b in bodies)
            bench.raw(lib.MSG_PUBLISH_MANY, 999, topic=bench.topic(name), id=first, pri=len(bodies), body=data)
            take(bench.turn())
        elif action == 4 and len(consumers) < 6:
            channel = name, rng.choice("xyz")
            if channel not in model.channels:
                others = any(topic == name for topic, _ in model.channels)
                model.channels[channel] = {} if others else model.waiting.pop(name, {})
            next_conn += 1
            consumers[next_conn], flying[next_conn], credit[next_conn] = channel, {}, 0
            assert bench.sub(next_conn, *channel) == OK
        elif action == 5 and conn:
            # Lowering it does not take anything back.
            if (wanted := rng.choice([0, 1, 5, 100])) >= len(flying[conn]):
                credit[conn] = wanted
                take(bench.credit(conn, wanted))
        elif action in (6, 7, 8) and conn and flying[conn]:
            for id in rng.sample(list(flying[conn]), rng.randrange(1, len(flying[conn]) + 1)):
                if flying[conn][id] <= bench.now:
                    continue
                del flying[conn][id], model.channels[consumers[conn]][id]
                bench.raw(lib.MSG_FINISH, conn, id=id)
            take(bench.turn())
        elif action == 9 and conn and flying[conn]:
            id = rng.choice(list(flying[conn]))
            delay = rng.choice([0, 0, 50])
            if flying[conn].pop(id) > bench.now:
                model.channels[consumers[conn]][id].due = bench.now + delay * SECOND
                take(bench.req(conn, id, delay))
        elif action == 10:
            answers = bench.turn(rng.choice([0, 1, 25, 70]))
            for ids in flying.values():
                for id in [i for i, deadline in ids.items() if deadline <= bench.now]:
                    del ids[id]
            take(answers)
        elif action == 11 and conn and rng.random() < 0.5:
            bench.raw(GONE, conn)
            del consumers[conn], flying[conn], credit[conn]
            take(bench.turn())
        elif action == 12 and rng.random() < 0.4:
            take(bench.turn())
            bench.restart()
            consumers, flying, credit = {}, {}, {}
        elif action == 13 and rng.random() < 0.5:
            roll(bench)
            if rng.random() < 0.5:
                drop_oldest(bench)
        topics = bench.catalog()
        for (topic, channel), held in model.channels.items():
            figures = topics[topic].channels[channel]
            assert figures.depth + figures.in_flight + figures.deferred == len(held)
    # In the end everything that is held comes, and finishing it leaves nothing.
    bench.restart()
    bench.turn(400)
    for n, ((name, channel), held) in enumerate(model.channels.items()):
        bench.sub(100 + n, name, channel, credit=100_000)
        got: dict[int, Answer] = {}
        for _ in range(50):
            for a in bench.turn():
                assert a.id not in got
                got[a.id] = a
        assert {id: a.body for id, a in got.items()} == {id: m.body for id, m in held.items()}
        assert {id: a.pri for id, a in got.items()} == {id: m.attempts + 1 for id, m in held.items()}
        bench.fin(100 + n, *got)
    bench.restart()
    for topic in bench.catalog().values():
        assert all(c.depth == c.in_flight == c.deferred == 0 for c in topic.channels.values())
    bench.dispose()
