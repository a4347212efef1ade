"""Answers the gateway's questions about Pulsar clients, and closes them for it; see docs/pulsar-catalog.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import orjson
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import FOREVER, Answer
from mq_shards.acceptor.protocols.pulsar.clients import Client, Consumer, Desk, Producer, Request
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.acceptor.protocols.pulsar.position import position_of
from mq_shards.acceptor.protocols.pulsar.subscribe import KEY_SHARED, SHARED
from mq_shards.acceptor.protocols.pulsar.topics import KINDS
from mq_shards.csrc._core import lib
from mq_shards.ringbuf.calls import Asked, Calls
from mq_shards.ringbuf.time_units import SECOND_NS

ACCESS_MODES: Final = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
# How often consumers of terminated topics are checked for having reached the end.
LOOK_NS: Final = 500_000_000
MAX_TOLD: Final = 10_000  # ended subscriptions that are remembered
INDIVIDUAL: Final = (SHARED, KEY_SHARED)  # kinds whose messages are acknowledged one by one
ACTIVE: Final = 2  # PULSAR_IS_ACTIVE, csrc/acceptor/protocols/pulsar/pulsar.h

Fields: TypeAlias = dict[str, Any]


def counts_of(desk: Desk, client: Client, what: str, id: int, many: int) -> list[int]:
    """The `many` figures that the codec has of a producer or consumer; zeros if it has already ended there."""
    halves = desk.engine.call_for_list(client.conn, what, id)
    found = [low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    return found if len(found) == many else [0] * many


def rates_of(now: tuple[int, ...], before: list[int]) -> list[float]:
    """How much `now` has grown per second. `before`: a number of ns, and the figures that long ago."""
    since_ns, *then = before
    return [(count - was) * SECOND_NS / since_ns if since_ns else 0.0 for count, was in zip(now, then, strict=True)]


def permits_of(count: int) -> int:
    """The signed number that is meant by an unsigned one."""
    return count - (1 << 64) if count >> 63 else count


def instant(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Answers:
    def __init__(self, desk: Desk, calls: Calls | None, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._desk = desk
        self._now_ns = now_ns
        self._ending: dict[Consumer, Client] = {}  # of terminated topics, not yet at the end
        self._new: set[Consumer] = set()  # those of them whose place has not been seen yet
        self._told: dict[tuple[str, int, str], None] = {}  # ended subscriptions: topic, incarnation, name; oldest first
        self._look_ns = 0
        if calls is None:
            return
        calls.serve("pulsar.clients", self._clients)
        calls.serve("pulsar.close", self._close)
        calls.serve("pulsar.terminated", self._terminated)

    def _producers(self, cores: Set[str]) -> Iterator[tuple[Client, Producer]]:
        """Those of the topics that the core calls so."""
        for client in list(self._desk.clients.values()) if cores else ():
            for producer in list(client.producers.values()):
                if producer.topic.core in cores:
                    yield client, producer

    def _consumers(self, cores: Set[str]) -> Iterator[tuple[Client, Consumer]]:
        for client in list(self._desk.clients.values()) if cores else ():
            for consumer in list(client.consumers.values()):
                if consumer.topic.core in cores and consumer.open:
                    yield client, consumer

    # --- questions about clients ------------------------------------------------------------------------------------

    def _clients(self, asked: Asked) -> None:
        wanted = orjson.loads(asked.body)["topics"]
        used = [name for name in wanted if self._desk.used[topic_name(name).core]]
        found: dict[str, dict[str, list[Fields]]] = {name: {"producers": [], "consumers": []} for name in used}
        # Of each client here: a connection may have thousands, and whole names take ten times as long to compare.
        some = {topic_name(name).local for name in used}
        for client in self._desk.clients.values() if found else ():
            for producer in client.producers.values():
                if producer.topic.local in some and str(producer.topic) in found:
                    found[str(producer.topic)]["producers"].append(self._producer_fields(client, producer))
            for consumer in client.consumers.values():
                if consumer.topic.local in some and str(consumer.topic) in found and consumer.open:
                    found[str(consumer.topic)]["consumers"].append(self._consumer_fields(client, consumer))
        asked.answer(orjson.dumps({"topics": found}))

    def _client_fields(self, client: Client) -> Fields:
        return {
            "address": self._desk.engine.remote(client.conn),
            "connected_since": instant(client.since_s),
            "client_version": client.version,
        }

    def _producer_fields(self, client: Client, producer: Producer) -> Fields:
        messages, count, *before = counts_of(self._desk, client, "count-producer", producer.id, 5)
        return {
            "id": producer.id, "name": producer.name, "access_mode": ACCESS_MODES[producer.mode],
            "messages": messages, "bytes": count, "rates": rates_of((messages, count), before),
            "waits": not producer.ready, "metadata": producer.metadata, **self._client_fields(client),
        }  # fmt: skip

    def _consumer_fields(self, client: Client, consumer: Consumer) -> Fields:
        counts = counts_of(self._desk, client, "count-consumer", consumer.id, 16)
        messages, count, permits, entries, again, acked, flowed_ms, consumed_ms, acked_ms, active, *before = counts
        del before[3]  # the former number of entries is not needed
        return {
            "rates": rates_of((messages, count, again, acked), before),
            "per_entry": messages / entries if entries else 1,
            "flowed_ms": flowed_ms, "consumed_ms": consumed_ms, "acked_ms": acked_ms, "active": active == ACTIVE,
            "metadata": consumer.metadata, "ranges": consumer.ranges, "conn": client.conn, "number": consumer.number,
            "properties": consumer.properties, "any_order": consumer.any_order,
            "id": consumer.id, "name": consumer.name, "subscription": consumer.subscription,
            "type": KINDS[consumer.kind], "durable": consumer.durable, "messages": messages, "bytes": count,
            "permits": permits_of(permits), **self._client_fields(client),
        }  # fmt: skip

    def stats(self, request: Request) -> None:
        """CONSUMER_STATS. A client that asks about a consumer it does not have is disconnected."""
        client, consumer = request.client, request.client.consumers.get(request.body.consumer_id)
        if consumer is None or not consumer.open:
            self._desk.hang_up(client)
            return
        fields = self._consumer_fields(client, consumer)

        def heard(answer: Answer) -> None:
            where = position_of(answer.body) if answer.status == engine.OK else None
            # Only consumers that acknowledge messages one by one have a count of their own.
            counts = where is not None and consumer.kind in INDIVIDUAL
            unacked = where.consumer_in_flight if where and counts else 0
            request.reply(
                "consumerStatsResponse", consumerName=consumer.name, availablePermits=max(fields["permits"], 0),
                address=fields["address"], connectedSince=fields["connected_since"], type=fields["type"],
                msgBacklog=where and where.depth + where.in_flight,
                msgRateOut=fields["rates"][0], msgThroughputOut=fields["rates"][1],
                msgRateRedeliver=fields["rates"][2], messageAckRate=fields["rates"][3],
                unackedMessages=unacked, blockedConsumerOnUnackedMsgs=bool(where and where.consumer_blocked),
            )  # fmt: skip

        request.ask(
            lib.MSG_POSITION, consumer.topic, heard, body=consumer.subscription.encode(),
            topic=self._desk.engine.bind(consumer.topic.core.encode()), pri=consumer.number,
        )  # fmt: skip

    # --- closing them -----------------------------------------------------------------------------------------------

    def _close(self, asked: Asked) -> None:
        body = orjson.loads(asked.body)
        cores = {core for name in body["topics"] if self._desk.used[core := topic_name(name).core]}
        closed = 0
        for client, consumer in () if body.get("producers_only") else self._consumers(cores):
            if body["subscription"] in (None, consumer.subscription):
                self._desk.engine.call(client.conn, "lose-consumer", consumer.id)
                closed += 1
        closed += self._close_producers(cores) if body["subscription"] is None else 0
        asked.answer(orjson.dumps({"closed": closed}))

    def _close_producers(self, cores: Set[str]) -> int:
        there = list(self._producers(cores))
        for client, producer in there:
            self._desk.engine.call(client.conn, "lose-producer", producer.id)
        return len(there)

    def _terminated(self, asked: Asked) -> None:
        cores = {topic_name(orjson.loads(asked.body)["topic"]).core}
        self._close_producers(cores)
        for client, consumer in self._consumers(cores):
            self.ends(client, consumer)
        asked.answer(b"{}")

    # --- the end of a terminated topic ------------------------------------------------------------------------------

    def ends(self, client: Client, consumer: Consumer) -> None:
        """The consumer's topic is terminated: the client is told when all messages are acknowledged.

        One that finds all acknowledged when it comes is told only if none of its subscription has been told before, as
        at a real broker. Clients in C++ do not know the command: they close their connection, and come again.
        """
        self._ending[consumer] = client
        self._new.add(consumer)
        self._look_ns = 0

    def wait_ns(self) -> int:
        return max(self._look_ns - self._now_ns(), 0) if self._ending else FOREVER

    def expire(self) -> None:
        if not self._ending or self._now_ns() < self._look_ns:
            return
        self._look_ns = self._now_ns() + LOOK_NS
        self._ending = {c: client for c, client in self._ending.items() if client.consumers.get(c.id) is c}
        self._new &= self._ending.keys()
        for consumer, client in list(self._ending.items()):
            number = self._desk.engine.bind(consumer.topic.core.encode())
            name = consumer.subscription.encode()
            self._desk.ask(client, lib.MSG_POSITION, consumer.topic, self._looked(consumer), topic=number, body=name)

    def _looked(self, consumer: Consumer) -> Callable[[Answer], None]:
        def heard(answer: Answer) -> None:
            client = self._ending.get(consumer)
            if answer.status != engine.OK or client is None:
                return
            is_new = consumer in self._new
            self._new.discard(consumer)
            if not position_of(answer.body).is_at_end:
                return
            del self._ending[consumer]
            ended = consumer.topic.core, consumer.ledger, consumer.subscription
            if client.consumers.get(consumer.id) is consumer and not (is_new and ended in self._told):
                self._told[ended] = None
                if len(self._told) > MAX_TOLD:
                    del self._told[next(iter(self._told))]
                self._desk.say(client, "reachedEndOfTopic", consumer_id=consumer.id)

        return heard
