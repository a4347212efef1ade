"""One message for very many is handed out over several turns, and nobody can tell but by others' answers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import Engine

from tests.nats.engine_client import NATS, Client, opened
from tests.nats.servers import NatsServer
from tests.nats.wire import Wire

AT_ONCE = 1 << 16  # HANDED_PER_TURN of csrc/acceptor/acceptor_state.h
FRESH = 1024  # FRESH_PER_TURN of csrc/acceptor/protocols/nats/nats_fanout.c
CHUNK = 64
MESSAGE = re.compile(rb"MSG a (\d+) (\d+)\r\n(\w+)\r\n")


@pytest.fixture
def engine() -> Iterator[Engine]:
    with opened() as engine:
        yield engine


def given(engine: Engine) -> int:
    return engine.counters(NATS)["out-messages"]


def test_one_message_for_very_many_is_handed_out_in_pieces(engine: Engine) -> None:
    """The publisher's PONG comes behind it; another client is answered in each turn."""
    listener, publisher, other = Client(engine), Client(engine), Client(engine)
    wanting = 3 * AT_ONCE
    listener.say(b"".join(b"SUB a %d\r\n" % n for n in range(wanting)))
    listener.turns_until_pong()
    listener.heard = b""
    publisher.say(b"PUB a 1\r\nx\r\nPING\r\n")
    turns = most = 0
    while given(engine) < wanting:
        before = given(engine)
        assert other.turns_until_pong() <= 2
        assert publisher.hear().count(b"PONG\r\n") == 0 or given(engine) == wanting
        listener.hear()
        most = max(most, given(engine) - before)
        turns += 1
        assert turns < 1000
    assert 0 < most <= 2 * (AT_ONCE + CHUNK)
    while listener.heard.count(b"\r\nx\r\n") < wanting:
        listener.turn()
        listener.hear()
    assert [int(sid) for sid in re.findall(rb"MSG a (\d+) 1\r\nx\r\n", listener.heard)] == list(range(wanting))
    publisher.turn()
    assert publisher.hear() == b"PONG\r\n"


@pytest.mark.parametrize("size", [16, 100_000])
def test_very_many_connections_are_given_it_some_in_each_turn(engine: Engine, size: int) -> None:
    wanting, payload = 2 * FRESH + 500, b"x" * size
    listeners, publisher = [Client(engine) for _ in range(wanting)], Client(engine)
    for listener in listeners:
        listener.say(b"SUB a 1\r\n")
        listener.turn()
    publisher.turns_until_pong()
    publisher.say(b"PUB a %d\r\n%s\r\nPUB a 1\r\nz\r\n" % (size, payload))
    for turns in range(100_000):
        before = given(engine)
        publisher.turn()
        # The second one is mostly for connections that have something to send already.
        assert given(engine) - before <= FRESH + CHUNK or given(engine) > wanting
        if turns % 8 == 0 and given(engine) == 2 * wanting:
            break
        if turns % 8 == 0:
            for listener in listeners:
                listener.hear()
    for listener in listeners:
        while not listener.hear().endswith(b"z\r\n"):
            listener.turn()
        assert listener.heard == b"MSG a 1 %d\r\n%s\r\nMSG a 1 1\r\nz\r\n" % (size, payload)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_whoever_stays_has_all_in_order_while_others_come_and_go(engine: Engine, seed: int) -> None:
    """Several publish; between turns subscriptions are made and removed, with and without a limit, and one leaves."""
    chance = random.Random(seed)
    listeners, publishers, numbers = [Client(engine) for _ in range(3)], [Client(engine) for _ in range(3)], 0
    each = AT_ONCE // 4
    for listener in listeners:
        listener.say(b"".join(b"SUB a %d\r\n" % n for n in range(each)))
        listener.turns_until_pong()
    fresh, gone = each, [set[int]() for _ in listeners]
    born = [dict[int, int]() for _ in listeners]  # what had been published when a subscription was confirmed
    limited = dict[int, int]()
    left = chance.randrange(3)
    for step in range(9):
        for publisher in chance.sample(publishers, 2):
            publisher.say(b"PUB a 6\r\n%d%05d\r\n" % (publishers.index(publisher), numbers))
            numbers += 1
        for _ in range(chance.randrange(3)):
            publishers[0].turn()
        at = chance.randrange(3)
        if at == left and step > 4:
            continue
        victims = chance.sample(range(each), 20)
        gone[at] |= set(victims)
        listeners[at].say(b"".join(b"UNSUB %d\r\n" % n for n in victims) + b"SUB a %d\r\n" % fresh)
        if at == 0:
            few = chance.randrange(each)
            limited[few] = 1 + chance.randrange(3)
            listeners[at].say(b"UNSUB %d %d\r\n" % (few, limited[few]))
        if step % 3 == 2:
            listeners[at].turns_until_pong()
            born[at][fresh] = numbers
        fresh += 1
        if step == 4:
            listeners[left].socket.close()
    for _ in range(200):
        publishers[0].turn()
        for client in (*publishers, *listeners[:left], *listeners[left + 1 :]):
            client.hear()
    for at, listener in enumerate(listeners):
        if at != left:
            check(listener, at, gone[at], born[at], limited if at == 0 else {}, each, numbers)


def check(
    listener: Client, at: int, gone: set[int], born: dict[int, int], limited: dict[int, int], each: int, numbers: int
) -> None:
    """`each` first subscriptions have all messages but those in `gone`, which have some; a later one has all that were
    published after it was confirmed."""
    heard = dict[int, list[bytes]]()
    for sid, _, payload in MESSAGE.findall(listener.hear()):
        heard.setdefault(int(sid), []).append(payload)
    for payloads in {tuple(payloads) for payloads in heard.values()}:  # most have the same
        for publisher in b"012":
            own = [p for p in payloads if p[0] == publisher]
            assert own == sorted(set(own)), (at, payloads)
    for sid in range(each):
        payloads = heard.get(sid, [])
        if sid in limited and sid not in gone:
            assert len(payloads) <= numbers
        elif sid not in gone:
            assert len(payloads) == numbers, (at, sid)
    for sid, before in born.items():
        assert {int(p[1:]) for p in heard.get(sid, [])} >= set(range(before, numbers)), (at, sid)


def test_very_many_on_any_acceptor_have_one_publishers_messages_in_order(server: NatsServer) -> None:
    """Whose PONG comes behind all of them, as far as those are concerned who ask afterwards."""
    if server.is_real:
        pytest.skip("it may cut who reads so slowly")
    wanting, count, subject = 70_000, 3, b"many"
    listeners, publisher = [Wire(server.port) for _ in range(2)], Wire(server.port)
    for wire in (*listeners, publisher):
        wire.send(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
    for listener in listeners:
        listener.send(b"".join(b"SUB %s %d\r\n" % (subject, n) for n in range(wanting)))
        listener.barrier()
    publisher.send(b"".join(b"PUB %s 1\r\n%d\r\n" % (subject, n) for n in range(count)))
    publisher.barrier()
    for listener in listeners:
        listener.barrier()
        found = re.findall(rb"MSG \S+ (\d+) 1\r\n(\d)\r\n", listener.heard.data)
        assert len(found) == wanting * count
        per_sid = dict[bytes, bytes]()
        for sid, number in found:
            per_sid[sid] = per_sid.get(sid, b"") + number
        assert set(per_sid.values()) == {b"012"}
    for wire in (*listeners, publisher):
        wire.socket.close()
