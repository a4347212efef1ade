"""Processes killed while clients work: what had a receipt is there, what was acknowledged stays so."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire

pulsar = pytest.importorskip("pulsar")

LONG_MS = 10_000


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
