"""The load generator of NATS counts what a server did, and takes nothing but what it expects."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf import brokers, load
from perf.bare import Bare
from perf.brokers import MEMORY, Broker, Product, this_mq_shards
from perf.figures import LIMIT_RATIO, RATIO, Name
from perf.nats import generator, peer, scenarios
from perf.nats.peer import NatsServer
from perf.nats.wire import WIRE
from tests.nats.wire import Wire
from tests.perf.short import short_report

REAL = peer.installed()
needs_real = pytest.mark.skipif(REAL is None, reason="nats-server is not installed")
PRODUCTS = [
    pytest.param(Bare(WIRE), id="bare"),
    pytest.param(REAL or NatsServer(), id="nats-server", marks=needs_real),
]


@pytest.fixture(scope="module", params=PRODUCTS)
def server(request: pytest.FixtureRequest) -> Iterator[Broker]:
    product: Product = request.param
    with Broker(product, MEMORY) as broker:
        yield broker


@pytest.mark.parametrize(
    ("arguments", "copies"),
    [
        (("--publishers", "3", "--subscribers", "2"), 2),
        (("--subscribers", "8"), 8),
        (("--subscribers", "8", "--queue"), 1),
        (("--subjects", "700", "--subscribers", "2"), 2),
        (("--window", "1", "--body", "16"), 1),
        (("--window", "5", "--publishers", "2", "--body", "1"), 1),
        (("--body", "0"), 1),
        (("--body", "300000", "--subject", "mail.to.you"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_every_message_of_a_run_by_number_is_delivered_to_all_who_want_it(
    server: Broker, arguments: tuple[str, ...], copies: int
) -> None:
    count = 211 if "300000" in arguments else 2101
    result = generator.run(server.port, (*arguments, "--messages", str(count)), server.pids())
    assert (result.published, result.delivered, result.messages) == (count, count * copies, count * copies)
    if "--body" not in arguments:
        assert result.latency is not None and result.latency.samples >= count * copies // 16 - copies


@pytest.mark.parametrize("product", [pytest.param(this_mq_shards(WIRE), id="mq-shards"), PRODUCTS[1]])
def test_over_a_route_every_message_is_delivered_too(product: Product) -> None:
    port = brokers.free_port()
    with (
        Broker(scenarios.in_cluster(product, port), MEMORY) as first,
        Broker(scenarios.in_cluster(product, brokers.free_port(), [port]), MEMORY) as second,
    ):
        scenarios.wait_for_route(first.port, second.port)
        arguments = ("--subscribe-port", str(second.port), "--subscribers", "3", "--messages", "2101")
        result = generator.run(first.port, arguments, first.pids() + second.pids())
    assert (result.published, result.delivered) == (2101, 3 * 2101)


@pytest.mark.parametrize("arguments", [(), ("--publishers", "5", "--subscribers", "3", "--depth", "4", "--body", "0")])
def test_every_request_is_answered_once(server: Broker, arguments: tuple[str, ...]) -> None:
    result = generator.run(server.port, ("--mode", "request", *arguments, "--messages", "1003"))
    assert (result.published, result.delivered) == (1003, 1003)
    if not arguments:
        assert result.latency is not None and result.latency.samples == 1003


@pytest.mark.parametrize("subjects", ["1", "300"])
def test_what_nobody_wants_is_published_nevertheless(server: Broker, subjects: str) -> None:
    arguments = ("--mode", "publish", "--publishers", "3", "--subjects", subjects, "--messages", "10007")
    result = generator.run(server.port, arguments)
    assert (result.published, result.delivered, result.messages, result.latency) == (10007, 0, 10007, None)


@needs_real
@pytest.mark.parametrize("mode", ["deliver", "publish"])
def test_another_subscriber_hears_as_many_messages_of_as_many_subjects(mode: str) -> None:
    with Broker(REAL or NatsServer(), MEMORY) as broker:
        spy = Wire(broker.port)
        spy.send(b'CONNECT {"verbose":false}\r\nSUB load.> 1\r\n')
        spy.barrier()
        generator.run(broker.port, ("--mode", mode, "--subjects", "100", "--body", "3", "--messages", "1950"))
        spy.barrier()
        heard = re.findall(rb"MSG load\.(\d{7}) 1 3\r\nxxx\r\n", spy.heard.data)
        assert [int(number) for number in heard] == [n % 100 for n in range(1950)]
        spy.close()


def test_a_timed_run_counts_its_window_only(server: Broker) -> None:
    arguments = ("--subscribers", "2", "--seconds", "0.2", "--warmup", "0.1", "--window", "100")
    begun = time.monotonic()
    result = generator.run(server.port, arguments, server.pids())
    all_of_it = time.monotonic() - begun
    assert 0.1 < result.seconds < all_of_it - 0.09  # without its warm-up; how late its ends come, the machine decides
    assert abs(result.delivered - 2 * result.published) <= 2 * 100
    assert result.rate == pytest.approx(result.delivered / result.seconds, rel=0.01)


def test_an_open_loop_keeps_its_rate_and_times_every_message(server: Broker) -> None:
    arguments = ("--rate", "4000", "--publishers", "3", "--seconds", "0.3", "--warmup", "0.1", "--window", "4000")
    result = generator.run(server.port, arguments, server.pids())
    assert 2000 < result.rate < 4800  # below 4,000 where the machine stood still for a part of so short a run
    assert result.latency is not None
    assert result.latency.samples == pytest.approx(result.delivered, abs=1)
    assert 1 < result.latency.p50 <= result.latency.p99 <= result.latency.max * 1.02 < 500_000


def test_cpu_times_are_possible_ones(server: Broker) -> None:
    before = brokers.cpu_ns(server.pids())
    result = generator.run(server.port, ("--messages", "30000"), server.pids())
    used_us = (brokers.cpu_ns(server.pids()) - before) / 1000
    assert result.server_cpu_us_per_message is not None
    assert 0 < result.server_cpu_us_per_message * 30000 <= used_us * 1.001
    assert 0 < result.own_share <= 1.05  # it has one thread


@needs_real
def test_idle_connections_are_there_with_all_their_subscriptions() -> None:
    with Broker(REAL or NatsServer(), MEMORY) as broker, generator.idle_connections(broker.port, 3, 1000):
        publisher = Wire(broker.port)
        publisher.send(b'CONNECT {"headers":true,"no_responders":true}\r\nSUB in 1\r\n')
        publisher.send(b"".join(b"PUB load.%07d in 1\r\nx\r\n" % n for n in range(1002)))
        publisher.barrier()
        unheard = re.findall(rb"Nats-Subject: load\.(\d+)", publisher.heard.data)
        assert unheard == [b"0001000", b"0001001"]  # all the others are wanted
        publisher.close()


@needs_real
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--subject", "a..b"), "a connection was answered -ERR 'Invalid Subject'"),
        (("--mode", "publish", "--subject", "_GR_.x"), "unexpected: -ERR 'Permissions Violation for Publish to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_answer_that_is_an_error_ends_the_run(arguments: tuple[str, ...], complaint: str) -> None:
    with Broker(REAL or NatsServer(), MEMORY) as broker, pytest.raises(load.LoadError, match=re.escape(complaint)):
        generator.run(broker.port, (*arguments, "--messages", "100"))


class FakeServer:
    """Accepts a subscriber and a publisher, and says `reply` to the subscriber when the publisher has begun."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _accept(self) -> socket.socket:
        connection, _ = self._listener.accept()
        connection.sendall(b'INFO {"max_payload":1}\r\n')
        said = b""
        while not said.endswith(b"PING\r\n"):
            said += connection.recv(1000)
        connection.sendall(b"PONG\r\nINFO {}\r\n")
        return connection

    def _serve(self) -> None:
        with self._listener, self._accept() as subscriber, self._accept() as publisher:
            publisher.recv(1000)
            subscriber.sendall(self._reply)
            self.heard = subscriber.recv(1000)

    def finish(self) -> bytes:
        self._thread.join(timeout=10)
        return self.heard


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"-ERR 'Slow Consumer'\r\n", "unexpected: -ERR 'Slow Consumer'"),
        (b"MSG other 1 8\r\nxxxxxxxx\r\n", "unexpected: MSG other 1 8"),
        (b"MSG load 2 8\r\nxxxxxxxx\r\n", "unexpected: MSG load 2 8"),
        (b"MSG load 1 9\r\nxxxxxxxxx\r\n", "unexpected: MSG load 1 9"),
        (b"MSG load 1 8\r\nxxxxxxxxxx\r\n", "a payload that does not end where it should"),
        (b"PONG\r\n", "unexpected: PONG"),
    ],
)
def test_wrong_lines_end_the_run(reply: bytes, complaint: str) -> None:
    with pytest.raises(load.LoadError, match=re.escape(complaint)):
        generator.run(FakeServer(reply).port, ("--body", "8", "--messages", "1"))


def test_a_body_that_was_not_published_ends_the_run() -> None:
    with pytest.raises(load.LoadError, match="a body that was not put"):
        generator.run(FakeServer(b"MSG load 1 16\r\n" + b"y" * 16 + b"\r\n").port, ("--body", "16", "--messages", "1"))


def test_a_ping_is_answered_and_a_message_in_pieces_counted() -> None:
    server = FakeServer(b"PING\r\nMSG load 1 8\r\nxxx")
    arguments = ("--body", "8", "--messages", "1", "--seconds", "0.2", "--warmup", "0")
    with pytest.raises(load.LoadError, match="closed a connection"):
        generator.run(server.port, arguments)
    assert server.finish() == b"PONG\r\n"


FEW = ("nats-fan-out", "nats-request", "nats-latency", "nats-subscriptions")
ALL = tuple(scenarios.SCENARIOS)


@pytest.mark.parametrize("only", [pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.long)])
def test_a_short_benchmark_has_figures_of_every_load(tmp_path: Path, only: tuple[str, ...]) -> None:
    report = short_report("nats", only, tmp_path)
    whos = (this_mq_shards(WIRE).name, "bare", LIMIT_RATIO, *((REAL.name, RATIO) if REAL is not None else ()))
    for each in (each for each in scenarios.LOADS if each.name in only):
        for who in whos:
            figure = report.figures[Name(each.name, each.variant, who, "rate")]
            assert len(figure.rounds) == 1 and figure.median > 0
    assert {name.scenario for name in report.figures} == set(only)
