"""Clients of all protocols at the same topics, while all fails that may: processes die and hang, the disk is full,
the clock is set, the broker comes back with another number of workers.

What was kept comes to each queue, and what was finished does not come again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.crash.every_protocol import (
    CONSUMERS,
    TIMEOUT_S,
    TOPICS,
    BeanstalkPublisher,
    Client,
    Consumer,
    Ledger,
    NatsPublisher,
    NsqPublisher,
    Publisher,
    PulsarPublisher,
)
from tests.crash.test_clock import HOUR_S, Clock
from tests.crash.test_clock import clock as clock
from tests.crash.test_clock import shim as shim
from tests.nsq.wire import Wire as NsqWire
from tests.pulsar.campaign import SHARED, Line
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_campaign import EVERYTHING, Victim
from tests.reader.small_disk import fill, small_disk
from tests.servers import free_port, wait_until

TROUBLES = (
    "mq-worker-0", "mq-acceptor-0", "mq-acceptor-1", "mq-gateway", EVERYTHING, "full disk", "full disk", "clock",
    "hangs", "ends",
)  # fmt: skip


class Broker(Victim):
    def __init__(self, disk: Path, clock: Clock, sync: str) -> None:
        self._disk, self._clock, self._sync = disk, clock, sync
        super().__init__(disk / "data", (3, 1, 2, 4))

    def _start(self) -> PulsarServer:
        self.nats_port = free_port()
        return self._stack.enter_context(
            running(
                workers=next(self._workers), acceptors=2, shards=8, data_dir=self._data_dir, env=self._clock.env,
                listen=[f"nats://127.0.0.1:{self.nats_port}"],
                settings=["nats.topics=*", "log.retention-hours=0"],
                sync=self._sync,
            )
        )  # fmt: skip

    def suffer(self, trouble: str, draw: random.Random) -> None:
        match trouble:
            case "full disk":
                filler = fill(self._disk)
                time.sleep(draw.uniform(0.2, 1))
                if draw.random() < 0.5:
                    self.kill("mq-worker-0")
                filler.unlink()
            case "clock":
                self._clock.set(draw.choice([-HOUR_S, -60, 0, 60, HOUR_S]))
            case "hangs":
                pid = self._pid("mq-worker-0")
                assert pid is not None
                os.kill(pid, signal.SIGSTOP)
                time.sleep(3)
                os.kill(pid, signal.SIGCONT)
            case "ends":
                self.current.stop()
                assert self.current.process.returncode == 0
                self._stack.close()
                self.current = self._start()
            case _:
                self.kill(trouble)


def make_queues(broker: Broker) -> None:
    with Line(broker.current.port) as line:
        for number, topic in enumerate(TOPICS):
            line.subscribe(topic, "shared", SHARED, initialPosition=1, consumer=number)
            with NsqWire(broker.current.other_port) as wire, BeanstalkWire(broker.current.beanstalk_port) as tubes:
                wire.subscribe(topic, "channel")
                tubes.ask(f"use {topic}")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_what_is_kept_comes_to_each_queue_and_what_is_finished_does_not_come_again(
    tmp_path: Path, clock: Clock, sync: str
) -> None:
    draw, ledger = random.Random(sync + os.environ.get("SEED", "")), Ledger()
    with small_disk(tmp_path / "disk", "500m"):
        broker = Broker(tmp_path / "disk", clock, sync)
        try:
            make_queues(broker)
            at = lambda: broker.current  # noqa: E731
            consumers = consumers_of(broker, ledger)
            publishers: list[Client] = [
                made(at, ledger, 1) for made in (BeanstalkPublisher, NsqPublisher, PulsarPublisher)
            ]
            publishers.append(NatsPublisher(at, lambda: broker.nats_port, ledger, 1))
            for trouble in draw.sample(TROUBLES, len(TROUBLES)):
                wait_for_more(ledger, 200, [*publishers, *consumers])
                broker.suffer(trouble, draw)
            wait_for_more(ledger, 200, [*publishers, *consumers])
            for one in publishers:
                one.finish()
            clock.set(0)
            wait_for(lambda: ledger.left() == 0, consumers)
            for consuming in consumers:
                consuming.finish()
            # What comes behind all of that says that none of it comes before.
            broker.kill(EVERYTHING)
            last = NsqPublisher(at, ledger, 2)
            wait_for_more(ledger, 50, [last])
            last.finish()
            consumers = consumers_of(broker, ledger)
            wait_for(lambda: ledger.left() == 0, consumers)
            for consuming in consumers:
                consuming.finish()
        finally:
            broker.close()


def consumers_of(broker: Broker, ledger: Ledger) -> list[Consumer]:
    return [
        CONSUMERS[queue.name](lambda: broker.current, ledger, n, queue)
        for n, queue in enumerate(ledger.queues.values())
    ]


def wait_for_more(ledger: Ledger, count: int, clients: Sequence[Client]) -> None:
    """All publishers get on."""
    before = ledger.kept()
    each = {one: one.kept for one in clients if isinstance(one, Publisher)}
    wait_for(lambda: ledger.kept() > before + count and all(one.kept > had for one, had in each.items()), clients)


def wait_for(condition: object, clients: Sequence[Client]) -> None:
    """Or until a client has failed."""
    assert callable(condition)
    wait_until(lambda: condition() or any(one.failure for one in clients), "clients get on", TIMEOUT_S)
    for one in clients:
        if one.failure is not None:
            raise one.failure
