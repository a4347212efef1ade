"""Whatever well-formed commands clients of all protocols say, in any order and about the same names: no process ends of
it, and all are served afterwards."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.nats.wire import Wire as NatsWire
from tests.nsq.api import call
from tests.nsq.frames import OK
from tests.nsq.wire import Wire as NsqWire
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire as PulsarWire
from tests.pulsar.wire import payload_of
from tests.servers import NOTHING, children, comm_of, free_port, wait_until
from tests.strangers.odd_commands import KINDS, TOPICS, Odd
from tests.test_toy_protocol import added

KILL_EVERY_S: Final = 4
PROCESSES: Final = ("mq-acceptor", "mq-gateway", "mq-worker", "mq-worker")
CALLS: Final = (
    ("POST", "nsq-http", "/pub?topic={}"), ("POST", "nsq-http", "/channel/empty?topic={}&channel=s1"),
    ("POST", "nsq-http", "/channel/delete?topic={}&channel=s1"), ("POST", "nsq-http", "/topic/empty?topic={}"),
    ("POST", "nsq-http", "/topic/delete?topic={}"), ("POST", "nsq-http", "/topic/pause?topic={}"),
    ("POST", "nsq-http", "/topic/unpause?topic={}"), ("GET", "nsq-http", "/stats?format=json"),
    ("GET", "http", "/v1/topics/{}"), ("DELETE", "http", "/v1/topics/{}"),
    ("GET", "pulsar-http", "/admin/v2/persistent/public/default/{}/stats"),
    ("POST", "pulsar-http", "/admin/v2/persistent/public/default/{}/subscription/s1/skip_all"),
    ("PUT", "pulsar-http", "/admin/v2/persistent/public/default/{}/compaction"),
    ("DELETE", "pulsar-http", "/admin/v2/persistent/public/default/{}?force=true"),
)  # fmt: skip
# What every kind of client is told now and then in a long test: otherwise it tries nothing.
HEARD: Final = (
    "beanstalk RESERVED", "beanstalk DELETED", "nsq message", "nsq OK", "nats MSG", "nats-route RMSG", "nats-leaf LMSG",
    "pulsar message", "pulsar send_receipt", "pulsar ackResponse", "pulsar endTxnResponse",
)  # fmt: skip


Kinds = tuple[type[Odd[Any]], ...]


class Play:
    def __init__(self, server: PulsarServer, ports: dict[str, int], kinds: Kinds = KINDS) -> None:
        self.server, self.kinds = server, kinds
        self.ports = {
            "pulsar": server.port, "nsq": server.other_port, "beanstalk": server.beanstalk_port,
            "pulsar-http": server.http_port, **ports,
        }  # fmt: skip
        self.heard: Counter[str] = Counter()
        self.killed_s = 0.0

    def new(self, draw: random.Random) -> Odd[Any]:
        kind = draw.choice(self.kinds)
        return kind(self.ports[kind.at], draw, self.heard)

    def round(self, seed: int, *, kills: bool) -> None:
        draw = random.Random(seed)
        clients = [self.new(draw) for _ in range(draw.choice([4, 8, 11]))]
        for _ in range(draw.choice([30, 90])):
            n = draw.randrange(len(clients))
            if clients[n].is_closed or draw.random() < 0.02:
                clients[n].end()
                clients[n] = self.new(draw)
            client = clients[n]
            client.say(b"".join(client.command() for _ in range(draw.choice([1, 2, 5, 15]))))
            if draw.random() < 0.7:
                client.hear(draw.choice([0, 0.002, 0.01]))
            if draw.random() < 0.03:
                method, scheme, target = draw.choice(CALLS)
                call(self.ports[scheme], method, target.format(draw.choice(TOPICS)), b"h")
        if kills and draw.random() < 0.3:
            self.kill_one(draw)
        for client in clients:
            client.hear(0.03)
            client.end()

    def kill_one(self, draw: random.Random) -> None:
        """A process that dies six times within 20 s ends the broker."""
        name = draw.choice(PROCESSES)
        if time.monotonic() < self.killed_s + KILL_EVERY_S:
            return
        self.killed_s = time.monotonic()
        found = [pid for pid in children(self.server.process.pid) if comm_of(pid).startswith(name)]
        if found:
            os.kill(draw.choice(found), signal.SIGKILL)

    def _channel(self, topic: str) -> NsqWire:
        """A SUB is refused of which two workers were killed before they had answered it."""
        while True:
            channel = NsqWire(self.ports["nsq"])
            if channel.ask(f"SUB {topic} c\n") == OK:
                return channel
            channel.close()

    def all_are_served(self, number: int) -> None:
        """By one topic of all protocols, which is new."""
        name = f"w.served{number}"
        with self._channel(name) as channel, BeanstalkWire(self.ports["beanstalk"]) as tube:
            channel.send(b"RDY 1\n")
            subscriber = NatsWire(self.ports["nats"])
            subscriber.send(b"CONNECT {}\r\nSUB %s 1\r\n" % name.encode())
            subscriber.barrier()
            with PulsarWire(self.ports["pulsar"]).connect() as wire:
                wire.subscribe(name, "s", 1)
                wire.flow(1)
                tube.use(name)
                tube.put(b"hi")
                assert payload_of(wire.message()) == b"hi"
            assert channel.frame().data.endswith(b"hi")
            subscriber.barrier()
            wait_until(lambda: subscriber.receive_what_is_there() or b"\r\nhi\r\n" in subscriber.heard.data, "it hears")
            tube.watch_only(name)
            assert tube.reserve()[1] == b"hi"


def play(
    data: Path,
    seeds: range,
    *,
    kills: bool = False,
    env: dict[str, str] | None = None,
    kinds: Kinds = KINDS,
    schemes: Sequence[str] = (),
    more: Sequence[str] = (),
) -> Counter[str]:
    """`schemes`, `more`: what the broker listens to and is told besides."""
    ports = {scheme: free_port() for scheme in ("nats", "nats-route", "nats-leaf", "nsq-http", "http", *schemes)}
    settings = ["nats.cluster-name=c", 'nats.topics=["a", "b", "w.>"]', *more]
    listen = [f"{scheme}://127.0.0.1:{port}" for scheme, port in ports.items()]
    with running(
        workers=2, acceptors=2, data_dir=data, settings=settings, listen=listen, env=NOTHING if env is None else env
    ) as server:
        it = Play(server, ports, kinds)
        for seed in seeds:
            it.round(seed, kills=kills)
            if seed % 10 == 9:
                it.all_are_served(seed)
        said = server.stderr.read_text()
        assert "Traceback" not in said, said
        assert kills or "was killed" not in said, said
        server.stop()
        assert server.process.returncode == 0
    return it.heard


def test_all_are_served_afterwards(tmp_path: Path) -> None:
    assert play(tmp_path, range(10))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_with_sanitizers(tmp_path: Path) -> None:
    heard = play(tmp_path, range(1000, 1200), env=added().environment)
    assert not [what for what in HEARD if not heard[what]], heard


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_while_processes_are_killed(tmp_path: Path) -> None:
    heard = play(tmp_path, range(2000, 2300), kills=True)
    assert not [what for what in HEARD if not heard[what]], heard
