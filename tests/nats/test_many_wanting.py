"""What very many want: it is handed out in time that grows with them and no faster, and not in one turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import Engine, protocol_number

from tests.nats.engine_client import NATS, Client, opened
from tests.nats.servers import NatsServer
from tests.nats.wire import Wire

LEAF = protocol_number("nats-leaf")
HANDED_PER_TURN = 1 << 16  # csrc/acceptor/acceptor_state.h
GROUPS = 20_000
ROUNDS = 10
CONNECT = b'CONNECT {"verbose":false}\r\n'


@pytest.fixture
def engine() -> Iterator[Engine]:
    with opened() as engine:
        yield engine


def published(engine: Engine) -> int:
    return engine.counters(NATS)["in-messages"]


def test_a_turn_hands_out_so_much_and_others_are_answered_meanwhile(engine: Engine) -> None:
    """Who subscribes is the publisher itself, who wants no echo, so that nothing has to be read."""
    publisher, other = Client(engine), Client(engine)
    lines, wanting = 3000, 2000
    publisher.say(b"".join(b"SUB a %d\r\n" % n for n in range(wanting)))
    publisher.turns_until_pong()
    publisher.say(b"PUB a 0\r\n\r\n" * lines)
    most = 0
    for _ in range(40):
        before = published(engine)
        other.say(b"PING\r\n")
        publisher.turn()
        publisher.hear()
        most = max(most, published(engine) - before)
    assert 0 < most <= HANDED_PER_TURN // wanting + 2
    assert other.hear().count(b"PONG\r\n") >= 39
    for _ in range(1000):
        if published(engine) == lines:
            break
        publisher.turn()
        publisher.hear()
    assert published(engine) == lines


def test_what_a_leaf_node_sends_for_very_many_is_not_one_turn_either(engine: Engine) -> None:
    listener, leaf, other = Client(engine), Client(engine, LEAF), Client(engine)
    lines, wanting = 300, 2000  # less than may wait for who listens
    leaf.say(b"CONNECT {}\r\n")
    leaf.turn()
    leaf.turn()
    assert engine.call(leaf.conn, "join", 0, b"$LDS.X edge $G")
    listener.say(b"".join(b"SUB a %d\r\n" % n for n in range(wanting)))
    listener.turns_until_pong()
    leaf.say(b"LMSG a 0\r\n\r\n" * lines)
    most = had = 0
    for _ in range(10_000):
        before = engine.counters(LEAF)["in-messages"]
        other.say(b"PING\r\n")
        leaf.turn()
        for each in (leaf, listener):
            each.hear()
            each.heard = b""
        had = engine.counters(LEAF)["in-messages"]
        most = max(most, had - before)
        if had == lines:
            break
    assert had == lines
    assert 0 < most <= HANDED_PER_TURN // wanting + 2
    assert other.hear().count(b"PONG\r\n") >= lines // most - 2


def test_publishers_who_wait_take_turns(engine: Engine) -> None:
    listener, publishers = Client(engine), [Client(engine) for _ in range(5)]
    wanting, lines = 4000, 400
    listener.say(b"SUB p.* 1\r\n")
    for number, publisher in enumerate(publishers):
        publisher.say(b"".join(b"SUB p.%d %d\r\n" % (number, n) for n in range(wanting)))
        publisher.turns_until_pong()
    for number, publisher in enumerate(publishers):
        publisher.say(b"PUB p.%d 0\r\n\r\n" % number * lines)
    for _ in range(2 * len(publishers) + 2):
        listener.turn()
    heard = Counter(line for line in listener.hear().split(b"\r\n") if line)
    assert all(0 < heard[b"MSG p.%d 1 0" % number] < lines for number in range(len(publishers)))


def test_a_message_for_many_groups_of_several_patterns_is_handed_out_in_time(server: NatsServer) -> None:
    """Where groups are compared with each other this takes minutes."""
    if server.acceptors == 0:
        pytest.skip("a real one compares them")
    client, publisher = Wire(server.port), Wire(server.port)
    client.socket.settimeout(60)
    for pattern in (b"many.*", b"many.>"):
        lines = (b"SUB %b q%d %b%d\r\n" % (pattern, n, pattern[-1:], n) for n in range(GROUPS))
        client.send(CONNECT + b"".join(lines))
    client.barrier()
    publisher.send(CONNECT)
    publisher.barrier()
    publisher.socket.settimeout(60)
    for _ in range(ROUNDS):
        client.heard.data = b""
        client.asked = 0
        publisher.send(b"PUB many.a 0\r\n\r\n")
        publisher.barrier()
        client.barrier()
        assert client.heard.data.count(b"MSG many.a ") == GROUPS
    client.close()
    publisher.close()
