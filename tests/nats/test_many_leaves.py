"""What very many leaf nodes are told and sent, and one that reads slowly for ever: others do not wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import Engine

from tests.nats import test_many_wanting
from tests.nats.test_many_wanting import HANDED_PER_TURN, LEAF, Client

LEAVES = 1000
engine = test_many_wanting.engine


def leaf_of(engine: Engine, number: int) -> Client:
    leaf = Client(engine, LEAF)
    leaf.say(b"CONNECT {}\r\n")
    leaf.turn()
    leaf.turn()
    assert engine.call(leaf.conn, "join", 0, b"$LDS.%d edge%d $G" % (number, number))
    return leaf


@pytest.fixture
def leaves(engine: Engine) -> Iterator[list[Client]]:
    yield [leaf_of(engine, number) for number in range(LEAVES)]


def hear(leaves: list[Client]) -> None:
    for leaf in leaves:
        leaf.hear()


def until_heard(leaves: list[Client], what: bytes, count: int) -> None:
    for _ in range(1000):
        hear(leaves)
        if all(leaf.heard.count(what) == count for leaf in leaves):
            return
        leaves[0].turn()
    raise AssertionError(f"{what!r} did not come to all {count} times")


def test_what_a_client_wants_is_told_to_very_many_in_pieces(engine: Engine, leaves: list[Client]) -> None:
    client, other = Client(engine), Client(engine)
    count = 400
    least = count * LEAVES // HANDED_PER_TURN
    for line, told in ((b"SUB s.%d %d\r\n", b"LS+ s."), (b"UNSUB %d\r\n", b"LS- s.")):
        client.say(b"".join(line % ((n, n) if told == b"LS+ s." else n) for n in range(count)))
        assert client.turns_until_pong() >= least - 1
        assert other.turns_until_pong() <= 2
        until_heard(leaves, told, count)


def test_what_a_leaf_node_wants_is_told_to_the_others_in_pieces(engine: Engine, leaves: list[Client]) -> None:
    count = 400
    leaves[0].say(b"".join(b"LS+ w.%d\r\n" % n for n in range(count)))
    assert leaves[0].turns_until_pong() >= count * LEAVES // HANDED_PER_TURN - 1
    until_heard(leaves[1:], b"LS+ w.", count)


def test_what_a_client_wanted_that_has_gone_is_told_to_very_many_in_pieces(
    engine: Engine, leaves: list[Client]
) -> None:
    client, other = Client(engine), Client(engine)
    count = 150
    client.say(b"".join(b"SUB s.%d %d\r\n" % (n, n) for n in range(count)))
    client.turns_until_pong()
    until_heard(leaves, b"LS+ s.", count)
    client.socket.close()
    turns = 0
    while engine.counters(test_many_wanting.NATS)["subscriptions"]:
        other.turn()
        hear(leaves)
        turns += 1
    assert turns >= count * LEAVES // HANDED_PER_TURN - 1
    until_heard(leaves, b"LS- s.", count)


def test_a_message_for_very_many_leaf_nodes_is_a_part_of_a_turn(engine: Engine, leaves: list[Client]) -> None:
    publisher, other = Client(engine), Client(engine)
    for leaf in leaves:
        leaf.say(b"LS+ m\r\n")
    leaves[0].turns_until_pong()
    lines = 400
    publisher.say(b"PUB m 1\r\nx\r\n" * lines)
    assert publisher.turns_until_pong() >= lines * LEAVES // HANDED_PER_TURN - 1
    assert other.turns_until_pong() <= 2
    until_heard(leaves, b"LMSG m 1\r\nx\r\n", lines)
