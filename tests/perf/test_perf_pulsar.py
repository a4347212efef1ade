"""The load generator of Pulsar sends what a broker takes, counts what it did, and takes nothing but what it expects."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.pulsar.messages import encode

from perf import brokers, load
from perf.bare import Bare
from perf.brokers import MEMORY, Broker, Product, this_mq_shards
from perf.figures import LIMIT_RATIO, RATIO, Name
from perf.pulsar import generator, peer, scenarios
from perf.pulsar.wire import WIRE
from tests.perf.short import short_report
from tests.pulsar.wire import Wire, entry_of, metadata, metadata_of, payload_of

PRODUCTS = [
    pytest.param(Bare(WIRE), id="bare"),
    pytest.param(this_mq_shards(WIRE), id="mq-shards"),
]


@pytest.fixture(scope="module", params=PRODUCTS)
def server(request: pytest.FixtureRequest) -> Iterator[Broker]:
    product: Product = request.param
    with Broker(product, MEMORY) as broker:
        yield broker


@pytest.mark.parametrize("keys", [0, 7])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_it_sends_is_what_a_client_would(server: Broker, batch: int, keys: int) -> None:
    """As another consumer reads it: checksums, sequence ids, keys and sizes."""
    name = f"sent-{batch}-{keys}"
    shape = ("--batch", str(batch), "--keys", str(keys), "--body", "40")
    generator.run(server.port, ("--mode", "fill", "--topic", name, "--depth", "5", *shape, "--messages", "303"))
    with Wire(server.port).connect() as reader:
        reader.subscribe(f"persistent://public/default/{name}-0", "load", initialPosition=1)
        reader.flow(1000)
        entries = reader.messages(303 // batch)
    first = metadata_of(entries[0]).sequence_id
    for n, frame in enumerate(entries):
        head, payload = metadata_of(frame), payload_of(frame)  # which compares the checksum
        assert head.sequence_id == first + n
        assert head.partition_key == (f"{head.sequence_id % keys:06}" if keys else "")
        assert head.num_messages_in_batch == (batch if batch > 1 else 0)
        assert len(payload) == (40 if batch == 1 else batch * (40 + 4 + 2)) and payload.endswith(b"x" * 24)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--producers", "3", "--consumers", "2", "--depth", "100", "--topics", "3"),
        ("--type", "exclusive", "--consumers", "2", "--topics", "5", "--batch", "7"),
        ("--type", "key-shared", "--keys", "50", "--consumers", "3", "--depth", "9", "--max-ready", "10"),
        ("--type", "failover", "--body", "0", "--queue", "1"),
        ("--body", "300000", "--depth", "3"),
    ],
    ids=lambda value: " ".join(value),
)
def test_every_message_of_a_run_by_number_is_delivered_once(
    server: Broker, request: pytest.FixtureRequest, arguments: tuple[str, ...]
) -> None:
    topic = re.sub(r"\W+", "-", request.node.name)[:60]
    count = 210 if "300000" in arguments else 2100
    result = generator.run(server.port, (*arguments, "--topic", topic, "--messages", str(count)), server.pids())
    assert (result.published, result.consumed, result.messages, result.redelivered) == (count, count, count, 0)
    if "--body" not in arguments:
        assert result.message is not None and result.message.samples > 0


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key-shared", "failover"])
def test_a_backlog_is_taken_once_and_stays_taken(server: Broker, kind: str) -> None:
    names = ("--topic", f"backlog-{kind}", "--topics", "2", "--keys", "10")
    generator.run(server.port, ("--mode", "fill", *names, "--producers", "2", "--depth", "50", "--messages", "1003"))
    consume = ("--mode", "consume", "--type", kind, "--consumers", "2", *names)
    first = generator.run(server.port, (*consume, "--messages", "1003"))
    assert (first.published, first.consumed, first.redelivered) == (0, 1003, 0)
    with pytest.raises(load.LoadError, match="no end"):
        generator.run(server.port, (*consume, "--messages", "1"), limit_s=0.5)


def test_an_open_loop_keeps_its_rate_and_times_every_message(server: Broker) -> None:
    arguments = ("--topic", "paced", "--rate", "4000", "--producers", "3", "--depth", "4000", "--consumers", "2")
    result = generator.run(server.port, (*arguments, "--seconds", "0.5", "--warmup", "0.2"), server.pids())
    assert 2000 < result.rate < 4800  # below 4,000 where the machine stood still for a part of so short a run
    assert result.message is not None
    assert result.message.samples == pytest.approx(result.consumed, abs=1)
    assert 1 < result.message.p50 <= result.message.p99 <= result.message.max * 1.02 < 500_000


def test_cpu_times_are_possible_ones(server: Broker) -> None:
    before = brokers.cpu_ns(server.pids())
    arguments = ("--mode", "publish", "--topic", "cpu", "--depth", "100", "--messages", "30000")
    result = generator.run(server.port, arguments, server.pids())
    used_us = (brokers.cpu_ns(server.pids()) - before) / 1000
    assert result.server_cpu_us_per_message is not None
    assert 0 < result.server_cpu_us_per_message * 30000 <= used_us * 1.001
    assert 0 < result.own_share <= 1.05  # it has one thread


def test_idle_connections_are_there_with_producers_and_consumers(server: Broker) -> None:
    with generator.idle_connections(server.port, 3, topics=4), Wire(server.port).connect() as client:
        topic = "persistent://public/default/load-11"  # the last of them
        client.producer(topic)
        if server.product.name != "bare":  # its consumer is there: an exclusive one has no place
            client.ask("subscribe", "error", topic=topic, subscription="load", subType=0, consumer_id=1)


class FakeServer:
    """Admits a consumer and a producer, and says `reply` to the consumer when it has permits."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @staticmethod
    def _admit(connection: socket.socket, last: bytes) -> None:
        for answer in (
            encode("connected", server_version="fake"), encode("lookupTopicResponse", response=1, request_id=0), last,
        ):  # fmt: skip
            connection.recv(1 << 16)
            connection.sendall(answer)

    def _serve(self) -> None:
        with self._listener:
            consumer, _ = self._listener.accept()
            self._admit(consumer, encode("success", request_id=0))
            producer, _ = self._listener.accept()
            self._admit(producer, encode("producer_success", request_id=0, producer_name="fake"))
            consumer.recv(1 << 16)
            consumer.sendall(self._reply)
            producer.recv(1 << 16)


def message(body: bytes, consumer: int = 0) -> bytes:
    frame = encode("message", consumer_id=consumer, message_id={"ledgerId": 1, "entryId": 1})
    entry = entry_of(metadata(producer_name="load", sequence_id=1 << 28), body)
    return struct.pack(">I", len(frame) - 4 + len(entry)) + frame[4:] + entry


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (message(b"x" * 9), "an entry of"),
        (message(b"x" * 8, consumer=3), "no such message"),
        (encode("send_error", producer_id=0, sequence_id=1, error=2, message="full"), "unexpected command 8:"),
        (encode("send_receipt", producer_id=0, sequence_id=1), "unexpected command 7"),
        (b"\x7f" * 12, "a frame of"),
        (struct.pack(">II", 8, 4) + b"\x08\x89\x80\x80", "a varint that does not end"),
    ],
    ids=["size", "consumer", "error", "receipt", "length", "varint"],
)
def test_wrong_frames_end_the_run(reply: bytes, complaint: str) -> None:
    with pytest.raises(load.LoadError, match=re.escape(complaint)):
        generator.run(FakeServer(reply).port, ("--body", "8", "--messages", "1"))


def test_a_body_that_was_not_sent_ends_the_run() -> None:
    with pytest.raises(load.LoadError, match="a body that was not put"):
        generator.run(FakeServer(message(b"y" * 16)).port, ("--body", "16", "--messages", "1"))


FEW = ("pulsar-batch-100", "pulsar-consume-shared", "pulsar-latency")
ALL = tuple(scenarios.SCENARIOS)


def test_a_short_benchmark_has_figures_of_every_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the real broker, which takes a minute for each."""
    measure(tmp_path, FEW, {"PULSAR_CLASSPATHS": str(tmp_path)})


@pytest.mark.long
def test_a_short_benchmark_has_figures_of_every_load_beside_the_real_broker(tmp_path: Path) -> None:
    measure(tmp_path, ALL, {})


def measure(tmp_path: Path, only: tuple[str, ...], environment: dict[str, str]) -> None:
    report = short_report("pulsar", only, tmp_path, environment)
    real = peer.installed() if not environment else None
    whos = (this_mq_shards(WIRE).name, "bare", LIMIT_RATIO, *((real.name, RATIO) if real is not None else ()))
    for each in (each for each in scenarios.LOADS if each.name in only):
        for who in whos:
            figure = report.figures[Name(each.name, each.variant, who, "rate")]
            assert len(figure.rounds) == 1 and figure.median > 0
    assert {name.scenario for name in report.figures} == set(only)
