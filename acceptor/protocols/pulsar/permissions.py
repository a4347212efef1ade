"""Closes producers and consumers whose roles have lost the permission. When permissions have changed, the catalog is
asked about all that may be concerned. A client whose producer or consumer is closed comes back and is told why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson
from mq_shards.acceptor.access.rights import CONSUME as RECEIVE
from mq_shards.acceptor.access.rights import PUBLISH, User, Users
from mq_shards.acceptor.protocols.pulsar.catalog import Catalog, Fields
from mq_shards.acceptor.protocols.pulsar.clients import Client, Consumer, Desk, Producer, PulsarError
from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.acceptor.protocols.pulsar.topics import CONSUME, PRODUCE, who
from mq_shards.ringbuf.calls import Calls

MAX_ASKED: Final = 500  # producers and consumers in one question


class Permissions:
    def __init__(self, desk: Desk, catalog: Catalog, calls: Calls | None, *, authorizes: Callable[[], bool]) -> None:
        self._desk = desk
        self._catalog = catalog
        self._authorizes = authorizes
        if calls is not None:
            calls.hear("pulsar.permissions", self._changed)
            calls.on_lost(lambda: self._look_at(None))

    def users_changed(self, users: Users) -> None:
        """Checks users that all protocols share, whose rights are known here."""
        for client in list(self._desk.clients.values()):
            user = users.by_name.get(client.role)
            both: list[Producer | Consumer] = [*client.producers.values(), *client.consumers.values()]
            for one in both if user is not None and client.login is not None else ():
                if not may(user, PUBLISH if isinstance(one, Producer) else RECEIVE, one.topic):
                    self._dismiss(client, one)

    def _changed(self, body: bytes) -> None:
        self._look_at(orjson.loads(body)["tenant"])

    def _look_at(self, tenant: str | None) -> None:
        """Asks about the producers and consumers of a tenant's topics; None: about all."""
        if not self._authorizes():
            return
        found: list[tuple[Client, Producer | Consumer]] = []
        for client in self._desk.clients.values():
            both: list[Producer | Consumer] = [*client.producers.values(), *client.consumers.values()]
            found += [(client, one) for one in both if tenant in (None, one.topic.tenant)]
        for begin in range(0, len(found), MAX_ASKED):
            self._ask(found[begin : begin + MAX_ASKED])

    def _ask(self, found: list[tuple[Client, Producer | Consumer]]) -> None:
        def heard(answer: Fields | PulsarError) -> None:
            if isinstance(answer, PulsarError):
                return  # when the gateway is back, on_lost has all checked again
            for (client, one), may in zip(found, answer["may"], strict=True):
                if not may:
                    self._dismiss(client, one)

        self._catalog.ask("may", heard, asked=[_fields(client, one) for client, one in found])

    def _dismiss(self, client: Client, one: Producer | Consumer) -> None:
        if isinstance(one, Producer):
            if client.producers.get(one.id) is one:
                self._desk.engine.call(client.conn, "lose-producer", one.id)
        elif client.consumers.get(one.id) is one:
            self._desk.engine.call(client.conn, "lose-consumer", one.id)


def may(user: User | None, right: str, topic: TopicName) -> bool:
    """Whether a user has a right to a topic. A right to a partitioned topic is one to its partitions."""
    return user is not None and (user.may(right, topic.core) or user.may(right, topic.base.core))


def _fields(client: Client, one: Producer | Consumer) -> Fields:
    if isinstance(one, Producer):
        return {"topic": str(one.topic), "action": PRODUCE, **who(client)}
    return {"topic": str(one.topic), "action": CONSUME, "subscription": one.subscription, **who(client)}
