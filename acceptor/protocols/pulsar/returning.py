"""Consumers that a SEEK of theirs has closed, and that are on their way back.

A SEEK has all consumers of its subscription closed, and their clients subscribe again by themselves. A real broker
takes some milliseconds between CLOSE_CONSUMER and its answer to the SEEK. Here both leave at once, so that the next
SEEK of an application may come before the consumer is back. It is obeyed as if the consumer were there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from mq_shards.acceptor.protocols.pulsar.clients import Client, Consumer, Request

AWAY_NS: Final = 1_000_000_000  # so long
MOST: Final = 1000  # of all clients; beyond that the oldest are forgotten
MOST_SEEKS: Final = 16  # of one consumer; applications send one


@dataclass(slots=True, eq=False)
class _Away:
    client: Client
    consumer: Consumer
    until_ns: int
    seeks: list[Request] = field(default_factory=list)  # wait for the answer to its SUBSCRIBE


class Returning:
    def __init__(self) -> None:
        self._away: Final[dict[tuple[int, int], _Away]] = {}  # by connection and consumer id; oldest first

    def left(self, client: Client, consumer: Consumer) -> None:
        self._away.pop((client.conn, consumer.id), None)
        if len(self._away) == MOST:
            del self._away[next(iter(self._away))]
        self._away[client.conn, consumer.id] = _Away(client, consumer, time.monotonic_ns() + AWAY_NS)

    def _find(self, client: Client, consumer_id: int) -> _Away | None:
        away = self._away.get((client.conn, consumer_id))
        return away if away is not None and away.client is client else None

    def consumer(self, client: Client, consumer_id: int) -> Consumer | None:
        """The consumer with this id that is not there now, as it was."""
        away = self._find(client, consumer_id)
        return away.consumer if away is not None and time.monotonic_ns() < away.until_ns else None

    def waits(self, request: Request) -> bool:
        """Whether a SEEK waits for its consumer, whose SUBSCRIBE is not answered yet."""
        away = self._find(request.client, request.body.consumer_id)
        if away is None or len(away.seeks) == MOST_SEEKS:
            return False
        away.seeks.append(request)
        return True

    def take(self, client: Client, consumer_id: int) -> list[Request]:
        """The SEEKs that wait for a consumer. It is back, or will never be."""
        away = self._find(client, consumer_id)
        if away is None:
            return []
        del self._away[client.conn, consumer_id]
        return away.seeks
