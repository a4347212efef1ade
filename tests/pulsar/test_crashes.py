"""Processes killed while clients work: what had a receipt is there, what was acknowledged stays so."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.pulsar.clients import INCOMPATIBLE_SCHEMA, TOPIC_NOT_FOUND

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Frame, Wire

pulsar = pytest.importorskip("pulsar")

LONG_MS = 10_000
STRING = 1  # Schema.Type


class Ledger:
    """Sends until told to stop, and knows what has a receipt."""

    def __init__(self, server: PulsarServer, topics: list[str]) -> None:
        self.client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self.producers = {topic: self.client.create_producer(topic, send_timeout_millis=0) for topic in topics}
        self.received: dict[str, set[int]] = {topic: set() for topic in topics}
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._send, args=(topic,)) for topic in topics]
        for thread in self.threads:
            thread.start()

    def _send(self, topic: str) -> None:
        number = 0
        while not self.stopping.is_set():
            self.producers[topic].send_async(str(number).encode(), self._heard(topic, number))
            number += 1
            if number % 50 == 0:
                time.sleep(0.01)

    def _heard(self, topic: str, number: int) -> object:
        def heard(result: object, _id: object) -> None:
            if result == pulsar.Result.Ok:
                self.received[topic].add(number)

        return heard

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        for producer in self.producers.values():
            producer.flush()
        self.client.close()


def read_all(server: PulsarServer, topic: str, name: str) -> list[int]:
    """What a subscription has, all of it acknowledged."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found: list[int] = []
    try:
        consumer = client.subscribe(topic, name, initial_position=pulsar.InitialPosition.Earliest)
        while True:
            try:
                message = consumer.receive(LONG_MS if not found else 1500)
            except pulsar.Timeout:
                return found
            found.append(int(message.data()))
            consumer.acknowledge_cumulative(message)
    finally:
        client.close()


@pytest.mark.long
def test_a_worker_that_is_killed_loses_nothing_that_has_a_receipt(tmp_path: Path) -> None:
    topics = [f"ledger-{i}" for i in range(4)]
    with running(workers=2, data_dir=tmp_path) as server:
        ledger = Ledger(server, topics)
        for worker in (0, 1):
            time.sleep(0.7)
            os.kill(server.pid_of(f"mq-worker-{worker}"), signal.SIGKILL)
        time.sleep(1.5)
        ledger.stop()
        for topic in topics:
            found = read_all(server, topic, "s")
            assert ledger.received[topic] and ledger.received[topic] <= set(found)
            first_of = sorted({number: at for at, number in reversed(list(enumerate(found)))}.items())
            assert [at for _, at in first_of] == sorted(at for _, at in first_of)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mq-acceptor-0", "mq-gateway"])
def test_an_acceptor_or_a_gateway_that_is_killed_loses_nothing(tmp_path: Path, name: str) -> None:
    with running(data_dir=tmp_path) as server:
        ledger = Ledger(server, ["t"])
        time.sleep(0.5)
        os.kill(server.pid_of(name), signal.SIGKILL)
        time.sleep(1.5)
        ledger.stop()
        assert ledger.received["t"] <= set(read_all(server, "t", "s"))


def test_what_was_acknowledged_stays_so_over_a_killed_worker(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire:
        wire.connect().producer("t")
        wire.subscribe("t", kind=1)
        wire.flow(1000)
        for sequence in range(100):
            wire.send(b"m", sequence=sequence)
        ids = [frame.body.message_id for frame in wire.messages(100)]
        wire.ack(*({"ledgerId": each.ledgerId, "entryId": each.entryId} for each in ids[::2]))
        os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        assert wire.expect("close_producer").producer_id == 1 and wire.expect("close_consumer").consumer_id == 1
        wire.send(b"let fall: its producer is closed")
        wire.subscribe("t", kind=1)
        wire.flow(1000)
        again = [frame.body.message_id for frame in wire.messages(50)]
        # A message has one id.
        assert [(each.ledgerId, each.entryId) for each in again] == [(e.ledgerId, e.entryId) for e in ids[1::2]]
        wire.producer("t")
        wire.send(b"last", sequence=100)
        assert wire.message().body.message_id.entryId == 100


def answers(wire: Wire, name: str, requests: list[int]) -> dict[int, Frame]:
    """Of each its own, whatever it is."""
    found: dict[int, Frame] = {}
    while len(found) < len(requests):
        frame = wire.until(lambda one: getattr(one.body, "request_id", None) in requests)
        found[frame.body.request_id] = frame
    assert {frame.name for frame in found.values()} == {name}, [str(f) for f in found.values() if f.name != name]
    return found


def test_a_subscribe_is_not_refused_because_its_worker_dies_and_begins_where_it_should(tmp_path: Path) -> None:
    """The client in C++ does not come again for a consumer whose first SUBSCRIBE was refused. A reader that begins at
    the end has missed what it was to begin with."""
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire:
        wire.connect().producer("t")
        wire.send(b"first")
        first = wire.expect("send_receipt").message_id
        start = {"ledgerId": first.ledgerId, "entryId": first.entryId}
        requests = list(range(1000, 1060))
        with Wire(server.port) as other:
            other.connect()
            for number in requests:
                fields = {"durable": False, "start_message_id": start} if number % 2 else {"initialPosition": 1}
                other.say(
                    "subscribe", request_id=number, topic="t", subscription=f"s{number}", subType=0,
                    consumer_id=number, **fields,
                )  # fmt: skip
                if number == 1030:
                    os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
            answers(other, "success", requests)
            other.quiet()
            closed = {frame.body.consumer_id for frame in other.pending("close_consumer")}
            for number in requests:
                if number not in closed:
                    other.flow(1, consumer=number)
                    assert other.message(number).body.message_id.entryId == first.entryId
        assert len(closed) < len(requests), "some were asked when it had died"


def test_a_producer_is_not_refused_because_its_worker_dies(tmp_path: Path) -> None:
    """The client in Go gives up a producer whose first PRODUCER is refused."""
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire, Wire(server.port) as other:
        wire.connect().producer("t", producer_name="there")
        requests = list(range(1000, 1060))
        other.connect()
        for number in requests:
            other.say("producer", request_id=number, topic="t", producer_id=number)
            if number == 1030:
                os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        answers(other, "producer_success", requests)


def test_a_consumers_schema_is_not_that_of_a_topic_in_use_because_its_worker_dies(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire, Wire(server.port) as other:
        wire.connect().producer("t")
        wire.send(b"without any schema")
        wire.expect("send_receipt")
        requests = list(range(1000, 1060))
        other.connect()
        for number in requests:
            other.say(
                "subscribe", request_id=number, topic="t", subscription=f"s{number}", subType=0, consumer_id=number,
                schema={"name": "", "type": STRING, "schema_data": b"", "properties": []},
            )  # fmt: skip
            if number == 1030:
                os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        found = answers(other, "error", requests)
        assert {frame.body.error for frame in found.values()} == {INCOMPATIBLE_SCHEMA}
        assert wire.ask("getSchema", "getSchemaResponse", topic="t").error_code == TOPIC_NOT_FOUND


@pytest.mark.parametrize("durable", [True, False])
def test_a_seek_is_done_though_its_worker_dies(tmp_path: Path, durable: bool) -> None:
    with running(data_dir=tmp_path) as server, Wire(server.port) as wire:
        wire.connect().producer("t")
        wire.subscribe("t", durable=durable)
        wire.flow(10)
        for sequence in range(4):
            wire.send(b"m", sequence=sequence)
        places = [frame.body.message_id for frame in wire.messages(4)]
        wire.ack({"ledgerId": places[3].ledgerId, "entryId": places[3].entryId}, cumulative=True)
        pid = server.pid_of("mq-worker-0")
        os.kill(pid, signal.SIGSTOP)
        second = {"ledgerId": places[1].ledgerId, "entryId": places[1].entryId}
        wire.say("seek", request_id=50, consumer_id=1, message_id=second)
        wire.say("ping")
        wire.expect("pong")  # it is on its way
        os.kill(pid, signal.SIGKILL)
        answers(wire, "success", [50])
        wire.expect("close_consumer")
        wire.subscribe("t", durable=durable, consumer=2)
        wire.flow(10, consumer=2)
        assert [frame.body.message_id.entryId for frame in wire.messages(3, consumer=2)] == [1, 2, 3]


def test_who_is_opened_when_the_worker_or_the_gateway_dies_hears_of_its_next_life() -> None:
    """Each holds the question when it is killed."""
    with running() as server, Wire(server.port) as wire:
        wire.connect()
        for name in ("mq-worker-0", "mq-gateway"):
            pid = server.pid_of(name)
            os.kill(pid, signal.SIGSTOP)
            wire.say("subscribe", request_id=50, topic=name, subscription="s", subType=0, consumer_id=pid)
            wire.say("producer", request_id=51, topic=name + "-too", producer_id=pid)
            wire.say("ping")
            wire.expect("pong")
            time.sleep(0.2)  # on its way from the acceptor, perhaps by way of the gateway
            os.kill(pid, signal.SIGKILL)
            frames = [wire.until(lambda one, n=n: getattr(one.body, "request_id", None) == n) for n in (50, 51)]
            assert [frame.name for frame in frames] == ["success", "producer_success"], frames


def test_a_schema_is_put_though_the_gateway_dies() -> None:
    """Clients give up a producer or a consumer whose first command was refused."""
    with running() as server, Wire(server.port) as wire:
        wire.connect().producer("t")
        pid = server.pid_of("mq-gateway")
        os.kill(pid, signal.SIGSTOP)
        wire.say("getOrCreateSchema", request_id=50, topic="t", schema={"name": "", "type": STRING, "schema_data": b""})
        wire.say("ping")
        wire.expect("pong")  # it is on its way
        os.kill(pid, signal.SIGKILL)
        found = wire.expect("getOrCreateSchemaResponse")
        assert (found.HasField("error_code"), found.schema_version) == (False, bytes(8)), found
