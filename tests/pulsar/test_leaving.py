"""A connection that ends may have had thousands of producers and consumers: an acceptor forgets them in pieces."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import FOREVER, Engine, protocol_number
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.pulsar.clients import Client, Consumer, Producer
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.acceptor.protocols.pulsar.serving import PulsarServing
from mq_shards.csrc._core import lib
from mq_shards.csrc.structs import packed
from mq_shards.supervisor.options.options import default_settings

MANY = 5000
AT_ONCE = 1024  # REMOVED_AT_ONCE, csrc/acceptor/protocols/pulsar/pulsar_leaving.c
FEW = 2  # topics that are known though nobody uses them


@pytest.fixture
def engine() -> Iterator[Engine]:
    board, wake = os.memfd_create("board"), os.eventfd(0, os.EFD_NONBLOCK)
    assert lib.board_format(board)
    engine = Engine(0, 1, 8, board, wake)
    engine.set("idle-topics", 1)  # so that a topic that nobody uses any more is forgotten
    yield engine
    engine.close()
    os.close(board)
    os.close(wake)


def connection(engine: Engine) -> int:
    """With a producer of each of MANY topics, and a consumer of each of MANY others."""
    ours, theirs = socket.socketpair()
    conn = engine.adopt(theirs.detach(), protocol_number("pulsar"))
    engine.call(conn, "connected")
    for n in range(MANY):
        assert engine.call(conn, "add-producer", n, b"p%d" % n)
        assert engine.call(conn, "add-consumer", n, packed("consumer_wish") + b"c%d" % n)
    ours.close()
    return conn


def used_topics(engine: Engine) -> int:
    return sum(1 for number in range(1, 2 * MANY + 2) if engine.topic_name(number))


def test_the_topics_of_a_connection_are_let_go_of_in_pieces(engine: Engine) -> None:
    connection(engine)
    left = [used_topics(engine)]
    assert left[0] > 2 * MANY  # and one of beanstalkd's
    while left[-1] > FEW and len(left) < MANY:
        engine.turn(0)
        left.append(used_topics(engine))
    assert left[-1] <= FEW
    assert all(0 <= before - after <= AT_ONCE + 1 for before, after in itertools.pairwise(left))


def test_an_acceptor_may_end_while_a_connection_is_being_forgotten(engine: Engine) -> None:
    connection(engine)
    for _ in range(3):
        engine.turn(0)
    assert 1 < used_topics(engine) < 2 * MANY


def test_python_forgets_a_client_in_pieces(engine: Engine) -> None:
    pulsar = PulsarServing(engine, default_settings()["pulsar"], Broker("0123456789abcdef", 0))
    topic, client = topic_name("t"), Client(7)
    for n in range(MANY):
        client.producers[n] = Producer(n, f"p{n}", topic, 0, n + 1)
        client.consumers[n] = Consumer(n, n + 1, topic, "s", 0, f"c{n}", durable=True, open=True)
    pulsar._desk.clients[7] = client
    pulsar._desk.use(topic, 2 * MANY)
    pulsar.closed(7)
    turns = 1
    while client.producers or client.consumers:
        assert pulsar.wait_ns() == 0
        pulsar.expire()
        turns += 1
    assert turns == 2 * MANY // 512 + 1
    assert not pulsar._desk.used and pulsar.wait_ns() == FOREVER
