"""What clients of each protocol have had, and given back, leaves nothing in any process of a broker.

Names are the same in each round: of names that are gone some are remembered, up to limits (docs/limits.md).
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.nats.wire import Wire as NatsWire
from tests.nsq.api import call
from tests.nsq.wire import Wire as NsqWire
from tests.preload import compiled
from tests.pulsar.consuming import EARLIEST, SHARED, place, publish
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire as PulsarWire
from tests.reader.broker import section
from tests.servers import children, comm_of, free_port, wait_until

HERE = Path(__file__).parent
WARM, ROUNDS = 2, 6
LONG_WARM, LONG_ROUNDS = 200, 200
# Pulsar's transactions that are over are remembered for 10 s; what a log's files have, for as long as they are there.
REMEMBERED = ("mq_shards.gateway.pulsar.catalog.Transaction", "mq_shards.gateway.pulsar.transactions._Over",
              "mq_shards.shards.reader.", "mq_shards.shards.erased.")  # fmt: skip
Holdings = dict[str, dict[str, int]]  # of each process


@dataclass
class Broker:
    server: PulsarServer
    ports: dict[str, int]
    inside: Path

    def rest(self, method: str, path: str, said: object = None, wanted: int = 204) -> None:
        body = b"" if said is None else json.dumps(said).encode()
        reply = call(self.server.http_port, method, f"/admin/v2/{path}", body, {"Content-Type": "application/json"})
        assert reply.status == wanted, (path, reply)

    def get(self, scheme: str, *targets: str) -> None:
        for target in targets:
            reply = call(self.ports[scheme], "GET", target)
            assert reply.status == 200, (target, reply)

    def ask(self, scheme: str, method: str, target: str, body: bytes = b"") -> bytes:
        reply = call(self.ports[scheme], method, target, body)
        assert reply.status in (200, 201, 202, 204), (target, reply)
        return reply.body

    def holdings(self) -> Holdings:
        pids = [self.server.process.pid, *children(self.server.process.pid)]
        return {comm_of(pid): self._of(pid) for pid in pids}

    def _of(self, pid: int) -> dict[str, int]:
        path = self.inside / str(pid)
        wait_until(path.exists, f"{comm_of(pid)} can be asked")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            said = sock.makefile("rb").read()
        assert said, self.server.stderr.read_text()
        found: dict[str, int] = json.loads(said)
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("inside")
    holdings = compiled(HERE / "holdings.c", tmp_path_factory.mktemp("holdings"), "-I", str(HERE.parent / "csrc"))
    ports = {scheme: free_port() for scheme in ("nats", "nats-http", "nsq-http", "http")}
    env = {"PYTHONPATH": str(HERE / "inside"), "INSIDE": str(folder), "HOLDINGS": str(holdings)}
    with running(
        shards=1, data_dir=tmp_path_factory.mktemp("data"), env=env, settings=["nats.max-closed-clients=2"],
        listen=[f"{scheme}://127.0.0.1:{port}" for scheme, port in ports.items()],
    ) as server:  # fmt: skip
        found = Broker(server, ports, folder)
        for play in PLAYS:  # what is made once is made
            play(found)
        yield found


def beanstalk(broker: Broker) -> None:
    with BeanstalkWire(broker.server.beanstalk_port) as wire:
        wire.use("tube")
        wire.watch_only("tube", "other")
        job = wire.put(b"x")
        for end in (f"release {job} 0 0", f"bury {job} 0", f"touch {job}", f"delete {job}"):
            if not end.startswith("delete"):
                assert wire.reserve() == (job, b"x")
            wire.ask(end)
            wire.ask("kick 1")
            if end.startswith("touch"):
                wire.ask(f"release {job} 0 0")
        delayed = wire.put(b"y", delay=1000)
        wire.ask("pause-tube tube 1")
        assert wire.ask(f"delete {delayed}") == b"DELETED"
        left = wire.put(b"z")
        wire.watch_only("default")
    with BeanstalkWire(broker.server.beanstalk_port) as wire:
        assert wire.ask(f"delete {left}") == b"DELETED"


def nsq(broker: Broker) -> None:
    with NsqWire(broker.server.other_port) as consumer, NsqWire(broker.server.other_port) as producer:
        consumer.identify(client_id="me", hostname="here")
        consumer.subscribe("nsq", "ch", rdy=10)
        producer.publish("nsq", b"1", b"2")
        producer.publish_many("nsq", [b"3", b"4"])
        producer.publish_deferred("nsq", 10, b"5")
        again, *others = consumer.messages(4)
        consumer.req(again)
        consumer.fin(*others, *consumer.messages(2))
    for target in ("/channel/create?topic=nsq&channel=x", "/pub?topic=nsq", "/channel/pause?topic=nsq&channel=x",
                   "/channel/empty?topic=nsq&channel=x", "/channel/delete?topic=nsq&channel=x"):  # fmt: skip
        broker.ask("nsq-http", "POST", target, b"x" if "pub" in target else b"")
    broker.get("nsq-http", "/stats?format=json&topic=nsq")
    broker.ask("nsq-http", "POST", "/topic/delete?topic=nsq")
    with NsqWire(broker.server.other_port) as wire:
        wire.subscribe("short#ephemeral", "ch#ephemeral", rdy=1)


def nats(broker: Broker) -> None:
    wire = NatsWire(broker.ports["nats"])
    wire.send(
        b'CONNECT {"verbose":false,"name":"me"}\r\nSUB s.> q 1\r\nSUB inbox 2\r\nSUB *.t 3\r\nPUB s.a inbox 1\r\nx\r\n'
        b"PUB inbox 1\r\ny\r\nUNSUB 2 5\r\n"
    )
    wire.barrier()
    wire.close()
    broker.get("nats-http", "/connz?subs=1", "/varz", "/subsz")


def pulsar(broker: Broker) -> None:
    topic = "persistent://public/default/p"
    with PulsarWire(broker.server.port) as wire:
        wire.connect()
        wire.subscribe("p", kind=SHARED, initialPosition=EARLIEST)
        wire.flow(10)
        publish(wire, "p", 3)
        for message in wire.messages(3):
            wire.ack(place(message))
        txn = {"txnid_most_bits": 0}
        begun = wire.ask("newTxn", "newTxnResponse", txn_ttl_seconds=60_000, tc_id=0)
        txn["txnid_least_bits"] = int(begun.txnid_least_bits)
        wire.ask("addPartitionToTxn", "addPartitionToTxnResponse", partitions=[topic], **txn)
        wire.ask("endTxn", "endTxnResponse", txn_action=0, **txn)
        wire.ask("unsubscribe", consumer_id=1)
    broker.rest("DELETE", "persistent/public/default/p?force=true")
    broker.rest("PUT", "persistent/public/default/parts/partitions", 2)
    broker.rest("POST", "schemas/public/default/parts/schema", {"type": "STRING", "schema": "", "properties": {}}, 200)
    broker.rest("DELETE", "persistent/public/default/parts/partitions?force=true")
    broker.rest("PUT", "namespaces/public/mine")
    with PulsarWire(broker.server.port) as wire:
        wire.connect().producer("persistent://public/mine/x")
        wire.send(b"a")
        wire.expect("send_receipt")
    broker.rest("DELETE", "persistent/public/mine/x?force=true")
    broker.rest("DELETE", "namespaces/public/mine")


def pipeline(broker: Broker) -> None:
    broker.ask("http", "POST", "/v1/publish", section("h", b"a", b"b"))
    broker.ask("http", "PUT", "/v1/readers/r", json.dumps({"h": 0}).encode())
    broker.get("http", "/v1/records?topic=h&from=0", "/v1/peek?topic=h", "/v1/topics", "/metrics", "/v1/overview", "/")
    broker.ask("http", "DELETE", "/v1/readers/r")
    staged = section("h", b"c")
    broker.ask("http", "POST", "/v1/staged/s?at=0", staged)
    decision = {"batch": 1, "staged": [{"name": "s", "bytes": len(staged)}]}
    broker.ask("http", "PUT", "/v1/writers/w", json.dumps(decision).encode())
    wait_until(lambda: b'"published"' in broker.ask("http", "GET", "/v1/writers/w"), "the batch is published")
    broker.ask("http", "DELETE", "/v1/writers/w")
    broker.ask("nsq-http", "POST", "/topic/delete?topic=h")


PLAYS = [beanstalk, nsq, nats, pulsar, pipeline]


def grown(before: Holdings, after: Holdings, by: int, *, blocks: bool) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (process, name): (before[process].get(name, 0), count)
        for process, all_of in after.items()
        for name, count in all_of.items()
        if count - before[process].get(name, 0) >= by and (blocks or name != "blocks")
        if not name.startswith(REMEMBERED)
    }  # fmt: skip


@pytest.mark.parametrize("play", PLAYS)
def test_what_was_made_and_given_back_is_nowhere(broker: Broker, play: Callable[[Broker], None]) -> None:
    for _ in range(WARM):
        play(broker)
    before = broker.holdings()
    for _ in range(ROUNDS):
        play(broker)
    # What clients do not wait for may be under way.
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not grown(before, broker.holdings(), ROUNDS, blocks=False), "it is as before", 5)
    assert not grown(before, broker.holdings(), ROUNDS, blocks=False)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("play", PLAYS)
def test_nor_is_a_block_of_memory_that_python_has_asked_for(broker: Broker, play: Callable[[Broker], None]) -> None:
    for _ in range(LONG_WARM):
        play(broker)
    before = broker.holdings()
    for _ in range(LONG_ROUNDS):
        play(broker)
    assert not grown(before, broker.holdings(), LONG_ROUNDS * 3 // 4, blocks=True)
