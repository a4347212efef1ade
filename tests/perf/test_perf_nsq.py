"""The NSQ load generator counts what the real nsqd counts, and says so when a server answers wrongly."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perf import brokers, load
from perf.brokers import DISK, MEMORY, Broker, this_mq_shards
from perf.figures import RATIO, Name
from perf.nsq import generator, http_generator, peer, scenarios
from perf.nsq.peer import Nsqd
from perf.nsq.wire import HTTP, WIRE
from tests.perf.short import short_report

NSQD = peer.installed()
needs_nsqd = pytest.mark.skipif(NSQD is None, reason="nsqd is not installed")
OK = b"\0\0\0\6\0\0\0\0OK"
HELLO = b"\0\0\0\6\0\0\0\0{}"  # what IDENTIFY is answered, at least


@pytest.fixture
def nsqd() -> Iterator[Broker]:
    with Broker(NSQD or Nsqd(), DISK) as broker:
        yield broker


def topic_of(broker: Broker, name: str = "load") -> dict[str, object]:
    """What nsqd itself says of a topic."""
    listening = re.search(r"HTTP: listening on ([0-9.:]+)", broker.output())
    assert listening is not None
    with urllib.request.urlopen(f"http://{listening[1]}/stats?format=json&topic={name}") as answer:
        (topic,) = json.load(answer)["topics"]
    found: dict[str, object] = topic
    return found


def counted(broker: Broker, name: str = "load") -> tuple[object, list[object]]:
    """Messages of a topic, and of each channel: those that came, wait, are in flight, came back."""
    topic = topic_of(broker, name)
    channels = topic["channels"]
    assert isinstance(channels, list)
    fields = ("message_count", "depth", "in_flight_count", "requeue_count", "timeout_count")
    return topic["message_count"], [tuple(channel[field] for field in fields) for channel in channels]


def eventually(what: Callable[[], object], expected: object) -> None:
    """nsqd moves messages from topics to channels, and back when a consumer goes, in its own time."""
    deadline = time.monotonic() + 60
    while (found := what()) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == expected


@needs_nsqd
@pytest.mark.parametrize(
    ("arguments", "channels"),
    [
        (("--producers", "5", "--consumers", "4", "--depth", "32"), 1),
        (("--producers", "3", "--consumers", "3", "--depth", "1"), 1),
        (("--producers", "1", "--consumers", "1", "--depth", "1", "--max-ready", "1", "--rdy", "1"), 1),
        (("--producers", "3", "--consumers", "2", "--batch", "20", "--depth", "3", "--topic", "mail"), 1),
        (("--producers", "3", "--consumers", "8", "--channels", "4", "--batch", "7", "--max-ready", "100"), 4),
        (("--producers", "2", "--consumers", "2", "--body", "1"), 1),
        (("--producers", "2", "--consumers", "2", "--body", "65535", "--output-buffer", "-1"), 1),
        (("--producers", "2", "--consumers", "2", "--output-timeout", "25"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_every_message_of_a_run_by_number_is_published_and_finished_once(
    nsqd: Broker, arguments: tuple[str, ...], channels: int
) -> None:
    result = generator.run(nsqd.port, (*arguments, "--messages", "2100"))
    assert (result.published, result.finished, result.redelivered) == (2100, 2100 * channels, 0)
    name = "mail" if "mail" in arguments else "load"
    assert counted(nsqd, name) == (2100, [(2100, 0, 0, 0, 0)] * channels)


@needs_nsqd
def test_what_publish_leaves_consume_takes(nsqd: Broker) -> None:
    arguments = ("--mode", "publish", "--channels", "1", "--batch", "10", "--messages", "1000")
    published = generator.run(nsqd.port, arguments)
    assert (published.published, published.finished, published.messages) == (1000, 0, 1000)
    eventually(lambda: counted(nsqd), (1000, [(1000, 1000, 0, 0, 0)]))
    consumed = generator.run(nsqd.port, ("--mode", "consume", "--consumers", "2", "--messages", "1000"))
    assert (consumed.published, consumed.finished, consumed.messages) == (0, 1000, 1000)
    assert counted(nsqd) == (1000, [(1000, 0, 0, 0, 0)])


@needs_nsqd
def test_without_channels_there_is_none(nsqd: Broker) -> None:
    generator.run(nsqd.port, ("--mode", "publish", "--messages", "100"))
    assert counted(nsqd) == (100, [])


@needs_nsqd
def test_a_timed_run_counts_no_more_than_the_server_did(nsqd: Broker) -> None:
    arguments = ("--producers", "4", "--depth", "8", "--seconds", "0.3", "--warmup", "0", "--max-ready", "500")
    result = generator.run(nsqd.port, arguments, nsqd.pids())
    ((came, *_),) = counted(nsqd)[1]  # type: ignore[misc]
    # The answers to what was sent at the end of the window were not waited for.
    assert 0 < result.finished <= came <= result.published + 4 * 8
    assert result.rate == pytest.approx(result.finished / result.seconds, rel=0.01)


@needs_nsqd
def test_an_open_loop_keeps_its_rate_and_times_every_message(nsqd: Broker) -> None:
    arguments = ("--rate", "4000", "--depth", "1000", "--seconds", "0.5", "--warmup", "0.2", "--output-buffer", "-1")
    result = generator.run(nsqd.port, arguments, nsqd.pids())
    assert 2000 < result.rate < 4800  # below 4,000 where the machine stood still for a part of so short a run
    assert result.message is not None and result.publish is not None
    assert result.message.samples == pytest.approx(result.finished, abs=1)
    for latency in (result.message, result.publish):
        assert 1 < latency.p50 <= latency.p99 <= latency.p999 <= latency.max * 1.02 < 500_000


@needs_nsqd
def test_cpu_times_are_possible_ones(nsqd: Broker) -> None:
    before = brokers.cpu_ns(nsqd.pids())
    result = generator.run(nsqd.port, ("--messages", "3000"), nsqd.pids())
    used_us = (brokers.cpu_ns(nsqd.pids()) - before) / 1000
    assert result.server_cpu_us_per_message is not None
    assert 0 < result.server_cpu_us_per_message * 3000 <= used_us * 1.001
    assert 0 < result.own_share <= 1.05  # it has one thread


@needs_nsqd
def test_messages_in_memory_need_no_file() -> None:
    with Broker(NSQD or Nsqd(), MEMORY) as broker:
        generator.run(broker.port, ("--mode", "publish", "--batch", "200", "--messages", "30000"))
        assert not list((broker.directory / "data").glob("load.diskqueue.*.dat"))
    with Broker(NSQD or Nsqd(), DISK) as broker:
        generator.run(broker.port, ("--mode", "publish", "--batch", "200", "--messages", "30000"))
        assert list((broker.directory / "data").glob("load.diskqueue.*.dat"))


@needs_nsqd
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--topic", "a*b"), "a connection was answered E_BAD_TOPIC"),
        (("--mode", "publish", "--topic", "a*b", "--depth", "1"), "unexpected error to a producer: E_BAD_TOPIC"),
        (("--rdy", "10001"), "unexpected error to a consumer: E_INVALID"),
        (("--output-buffer", "1"), "a connection was answered E_BAD_BODY"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_answer_that_is_an_error_ends_the_run(nsqd: Broker, arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(load.LoadError, match=re.escape(complaint)):
        generator.run(nsqd.port, (*arguments, "--messages", "100"))


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">II", len(data) + 4, kind) + data


def message(body: bytes) -> bytes:
    return frame(2, bytes(8) + b"\0\1" + b"0123456789abcdef" + body)


class FakeServer:
    """Accepts one consumer, greets it, sends `reply` when it is ready, and keeps what it says from then on."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection:
            for expected, answer in ((b"IDENTIFY", HELLO), (b"SUB", OK), (b"RDY", self._reply)):
                assert expected in connection.recv(1000)
                connection.sendall(answer)
            while said := connection.recv(1000):
                self.heard += said
                if said.endswith(b"CLS\n"):
                    connection.sendall(frame(0, b"CLOSE_WAIT"))

    def finish(self) -> bytes:
        self._thread.join(timeout=10)
        return self.heard


CONSUME_ONE = ("--mode", "consume", "--consumers", "1", "--body", "8", "--messages", "1")


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (frame(0, b"WHAT"), "unexpected response to a consumer: WHAT"),
        (frame(1, b"E_FIN_FAILED FIN x failed"), "unexpected error to a consumer: E_FIN_FAILED FIN x failed"),
        (message(b"seven b"), "unexpected frame of type 2 and 33 bytes to a consumer"),
        (frame(7, b""), "unexpected frame of type 7 and 0 bytes"),
        (b"\0\0\0\3xxxx", "a frame of 7 bytes"),
        (b"\x7f\0\0\0xxxx", "a frame of "),
    ],
)
def test_wrong_frames_end_the_run(reply: bytes, complaint: str) -> None:
    with pytest.raises(load.LoadError, match=complaint):
        generator.run(FakeServer(reply).port, CONSUME_ONE)


def test_a_body_that_was_not_published_ends_the_run() -> None:
    server = FakeServer(message(b"y" * 200))
    with pytest.raises(load.LoadError, match="a body that was not put"):
        generator.run(server.port, ("--mode", "consume", "--consumers", "1", "--messages", "1"))


def test_a_heartbeat_is_answered_and_a_message_finished() -> None:
    server = FakeServer(frame(0, b"_heartbeat_") + message(b"x" * 8))
    assert generator.run(server.port, CONSUME_ONE).finished == 1
    assert server.finish() in (b"NOP\nFIN 0123456789abcdef\nCLS\n", b"FIN 0123456789abcdef\nNOP\nCLS\n")


def test_a_message_that_comes_again_is_counted() -> None:
    again = frame(2, bytes(8) + b"\0\2" + b"0123456789abcdef" + b"x" * 8)
    assert generator.run(FakeServer(again).port, CONSUME_ONE).redelivered == 1


# One of each kind; of those of a kind only the arguments differ.
FEW = ("nsq-mpub", "nsq-http-pub", "nsq-consume-one", "nsq-latency", "nsq-spread-pub")
ALL = tuple(scenarios.SCENARIOS)


@pytest.mark.parametrize("only", [pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.long)])
def test_a_short_benchmark_has_figures_of_every_load(tmp_path: Path, only: tuple[str, ...]) -> None:
    report = short_report("nsq", only, tmp_path)
    whos = (this_mq_shards(WIRE).name, *((NSQD.name, RATIO) if NSQD is not None else ()))
    for each in (each for each in scenarios.LOADS if each.name in only):
        # More of our own processes beside fewer: no peer takes part.
        spread = (this_mq_shards(WIRE).name, "8-and-4", RATIO)
        for who in spread if isinstance(each, scenarios.Spread) else whos:
            figure = report.figures[Name(each.name, each.variant, who, "rate")]
            assert len(figure.rounds) == 1 and figure.median > 0
    assert {name.scenario for name in report.figures} == set(only)


def test_the_few_are_of_every_kind() -> None:
    kinds = {each.name: type(each) for each in scenarios.LOADS}
    assert {kinds[name] for name in FEW} == set(kinds.values())


@pytest.mark.parametrize("batch", [1, 20])
def test_what_is_posted_over_http_is_counted(batch: int) -> None:
    with Broker(this_mq_shards(HTTP), MEMORY) as broker:
        result = http_generator.run(
            broker.port,
            ("--connections", "3", "--batch", str(batch), "--warmup", "0", "--seconds", "0.2"),
            broker.pids(),
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.port}/stats?format=json&topic=load") as answer:
            (topic,) = json.load(answer)["topics"]
    assert result.messages > 0 and result.messages % batch == 0
    # Each connection has one request more under way at the end.
    assert result.messages <= topic["message_count"] <= result.messages + 3 * batch
    assert result.server_cpu_us_per_message is not None and result.publish is not None
