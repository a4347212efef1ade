"""Consumers that come back from a SEEK: what waits for them has a limit, so that a client cannot pile it up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mq_shards.acceptor.protocols.pulsar.returning import MOST, MOST_SEEKS, Returning


def test_no_more_than_some_seeks_wait_for_a_consumer() -> None:
    returning = Returning()
    client: Any = SimpleNamespace(conn=1)
    consumer: Any = SimpleNamespace(id=7)
    returning.left(client, consumer)
    seeks: list[Any] = [SimpleNamespace(client=client, body=SimpleNamespace(consumer_id=7)) for _ in range(100)]
    assert [returning.waits(seek) for seek in seeks] == [True] * MOST_SEEKS + [False] * (100 - MOST_SEEKS)
    assert returning.take(client, 7) == seeks[:MOST_SEEKS]
    assert not returning.waits(seeks[0])


def test_the_oldest_are_forgotten_when_there_are_many() -> None:
    returning = Returning()
    clients: list[Any] = [SimpleNamespace(conn=n) for n in range(MOST + 1)]
    consumer: Any = SimpleNamespace(id=0)
    for client in clients:
        returning.left(client, consumer)
    assert returning.consumer(clients[0], 0) is None
    assert returning.consumer(clients[1], 0) is consumer
