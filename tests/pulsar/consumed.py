"""The official client's producers and consumers of all four types, and a ledger of what was promised and what was had.

A round has topics of its own. It ends with every consumer closed: only then it is known that whatever was on its way to
one of them, or waited in its queue, belongs to whoever comes next.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pulsar

from tests.pulsar.servers import PulsarServer

Theirs: TypeAlias = Any  # the client library says nothing of its types

SUBSCRIPTION: Final = "s"
TYPES: Final = ("Exclusive", "Shared", "Failover", "KeyShared")
KEYS: Final = 16
PERIOD_MS: Final = 200
QUIET_S: Final = 3.0  # nothing more came for so long
TIMEOUT_S: Final = 90.0


def client_of(server: PulsarServer) -> Theirs:
    return pulsar.Client(
        server.url, operation_timeout_seconds=60, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )


class Producer:
    """Numbers its messages and notes which of them have a receipt."""

    def __init__(self, client: Theirs, topic: str, *, batches: bool, pause_s: float) -> None:
        self.topic, self._pause_s = topic, pause_s
        self.receipts: dict[int, str] = {}
        self._client, self._batches = client, batches
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = self._client.create_producer(
            self.topic, send_timeout_millis=0, batching_enabled=self._batches, batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
        )  # fmt: skip
        number = 0
        while not self._stopping.is_set():
            key = f"k{number % KEYS}"
            producer.send_async(str(number).encode(), self._heard(number), partition_key=key)
            number += 1
            if number % 20 == 0:
                time.sleep(self._pause_s)
        producer.flush()

    def _heard(self, number: int) -> Theirs:
        def heard(result: Theirs, place: Theirs) -> None:
            if result == pulsar.Result.Ok:
                self.receipts[number] = str(place)

        return heard

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"the producer of {self.topic} has no receipts for what it sent"


class Consumer:
    """Takes and acknowledges; now and then it asks for a message again."""

    def __init__(self, server: PulsarServer, topic: str, kind: str, seed: int, *, careful: bool = False) -> None:
        self.client = client_of(server)  # a connection of its own
        self.topic, self.kind = topic, kind
        self.had: list[int] = []
        self.failure: BaseException | None = None
        self._random = random.Random(seed)
        self._careful = careful
        self._stopping = threading.Event()
        self._heard_at: float | None = None  # it is not subscribed yet
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            consumer = self.client.subscribe(
                self.topic, SUBSCRIPTION, consumer_type=getattr(pulsar.ConsumerType, self.kind),
                initial_position=pulsar.InitialPosition.Earliest, negative_ack_redelivery_delay_ms=100,
                receiver_queue_size=self._random.choice([10, 1000]), batch_index_ack_enabled=True,
            )  # fmt: skip
            self._heard_at = time.monotonic()
            while not self._stopping.is_set():
                with contextlib.suppress(pulsar.Timeout):
                    self._take(consumer, consumer.receive(PERIOD_MS))
        except BaseException as error:
            self.failure = error

    def _take(self, consumer: Theirs, message: Theirs) -> None:
        self._heard_at = time.monotonic()
        chance = 1.0 if self._careful else self._random.random()
        in_order = self.kind in ("Exclusive", "Failover")
        if chance < 0.01 and not in_order:  # there a later cumulative acknowledgement would take it along
            consumer.negative_acknowledge(message)
            return
        # Had is what the application was given, whatever becomes of the acknowledgement.
        self.had.append(int(message.data()))
        with contextlib.suppress(pulsar.PulsarException):  # a connection that was lost: it comes again
            if in_order and chance < 0.5:
                consumer.acknowledge_cumulative(message)
            else:
                consumer.acknowledge(message)

    def quiet_s(self) -> float:
        """Since it was given something last, or subscribed: a subscribe may have to wait for a gateway."""
        return 0.0 if self._heard_at is None else time.monotonic() - self._heard_at

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"a consumer of {self.topic} does not come back"
        if self.failure is not None:
            raise self.failure
        self.client.close()


@dataclass
class Verdict:
    """What has become of one topic."""

    topic: str
    receipts: int
    had: int
    again: int  # came to who was there at the end, though it had been had
    last: int  # came only to who was there at the end
    missing: list[dict[str, object]] = field(default_factory=list)


class Round:
    """Topics of all four types with their clients."""

    def __init__(self, server: PulsarServer, name: str, seed: int) -> None:
        choice = random.Random(seed)
        self._server, self._seed = server, seed
        self._client = client_of(server)
        self._topics = {f"{name}-{kind}-{i}": kind for kind in TYPES for i in range(2)}
        self._consumers = {
            topic: [Consumer(server, topic, kind, choice.randrange(1 << 30)) for _ in range(1 + (kind != "Exclusive"))]
            for topic, kind in self._topics.items()
        }
        self._producers = {
            topic: Producer(self._client, topic, batches=topic.endswith("1"), pause_s=choice.choice([0.01, 0.05]))
            for topic in self._topics
        }

    def end_producers(self) -> None:
        """At different moments, so that the ends of topics lie before, in and after whatever is killed meanwhile."""
        for producer in self._producers.values():
            producer.stop()
            time.sleep(0.1)

    def close(self) -> None:
        for producer in self._producers.values():
            producer.join()
        self._client.close()
        for consumers in self._consumers.values():
            for consumer in consumers:
                consumer.close()

    def verdicts(self) -> list[Verdict]:
        fresh = {topic: Consumer(self._server, topic, kind, 0, careful=True) for topic, kind in self._topics.items()}
        until = time.monotonic() + TIMEOUT_S
        while min(one.quiet_s() for one in fresh.values() if one.failure is None) < QUIET_S:
            assert time.monotonic() < until, "those who were there at the end come to no end"
            time.sleep(PERIOD_MS / 1000)
        for one in fresh.values():
            one.close()
        return [self._verdict(topic, fresh[topic]) for topic in self._topics]

    def _verdict(self, topic: str, fresh: Consumer) -> Verdict:
        receipts = self._producers[topic].receipts
        had = {number for consumer in self._consumers[topic] for number in consumer.had}
        last = set(fresh.had)
        log = read_log(self._server, topic)
        found = Verdict(topic, len(receipts), len(had), len(last & had), len(last - had))
        for number in sorted(receipts.keys() - (had | last) | (receipts.keys() - log.keys())):
            found.missing.append(
                {
                    "number": number, "receipt": receipts[number], "had": number in had, "at the end": number in last,
                    "in the log at": log.get(number), "of": max(receipts),
                    "subscription": stand_of(self._server, topic),
                }
            )  # fmt: skip
        return found


def read_log(server: PulsarServer, topic: str) -> dict[int, list[str]]:
    """By a reader from the earliest on: where each number is."""
    found: dict[int, list[str]] = {}
    client = client_of(server)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(int(TIMEOUT_S * 1000))
            found.setdefault(int(message.data()), []).append(str(message.message_id()))
        return found
    finally:
        client.close()


def stand_of(server: PulsarServer, topic: str) -> object:
    """What the subscription says it has not acknowledged."""
    connection = http.client.HTTPConnection(server.http, timeout=TIMEOUT_S)
    path = f"/admin/v2/persistent/public/default/{topic}/internalStats"
    with contextlib.closing(connection):
        connection.request("GET", path)
        found = json.loads(connection.getresponse().read())
    cursor = found["cursors"][SUBSCRIPTION]
    return {name: cursor.get(name) for name in ("markDeletePosition", "readPosition", "individuallyDeletedMessages")}
