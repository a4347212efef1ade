"""Nothing on a message's way asks for memory, in a whole broker under the loads that it is measured with.

Pages that hold many messages come and go: a tube's are let go of when it is empty. What a full ring has no room for
waits in memory that is asked for; so what is outstanding here fits the rings.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from mq_shards.csrc import _core

from perf.beanstalk import generator as beanstalk_generator
from perf.nats import generator as nats_generator
from perf.nsq import generator as nsq_generator
from perf.pulsar import generator as pulsar_generator
from tests.nsq import frames
from tests.nsq.certificates import Certificates
from tests.nsq.certificates import make as make_certificates
from tests.nsq.frames import OK
from tests.nsq.wire import Wire
from tests.preload import compiled
from tests.servers import Server, Shape, comm_of, free_port, start

SOURCE: Final = Path(__file__).with_name("allocations.c")
SLOT: Final = struct.Struct("<QQQ")
PAGE: Final = 8  # messages: fewer have no page to themselves
MESSAGES: Final = 800
BURST: Final = 40
FILTERED_BURST: Final = 200
TUBES: Final = 8
SHAPES: Final = (
    Shape("one", "mq-shards", ("--workers", "1")),
    Shape("several", "mq-shards", ("--workers", "2", "--acceptors", "2")),
)

# What asks, in which process: so often.
Asked = Counter[tuple[str, int]]


@dataclass(frozen=True)
class Counted:
    server: Server
    folder: Path
    ports: dict[str, int]
    certificates: Certificates

    def asked(self) -> Asked:
        found: Asked = Counter()
        for pid in self.server.pids():
            for _, count, offset in SLOT.iter_unpack((self.folder / str(pid)).read_bytes()):
                if offset:
                    found[comm_of(pid), offset] += count
        return found


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("counting"))


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.name)
def broker(
    request: pytest.FixtureRequest, counting: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Counted]:
    yield from started(request.param, counting, tmp_path_factory)


@pytest.fixture(scope="module")
def narrow(counting: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """With rings that are often full."""
    yield from started(SHAPES[0], counting, tmp_path_factory, "--set", "broker.ring-bytes=65536")


def started(shape: Shape, counting: Path, tmp_path_factory: pytest.TempPathFactory, *more: str) -> Iterator[Counted]:
    folder = tmp_path_factory.mktemp("asked")
    ports = {scheme: free_port() for scheme in ("nsq", "nats", "pulsar")}
    options = [word for scheme, port in ports.items() for word in ("--listen", f"{scheme}://127.0.0.1:{port}")]
    options += more
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    options += ["--set", f"nsq.tls-cert={certificates.server.cert}", "--set", f"nsq.tls-key={certificates.server.key}"]
    server = start(
        shape, data_dir=tmp_path_factory.mktemp("data"), options=options,
        env={"LD_PRELOAD": str(counting), "ALLOCATIONS": str(folder)},
    )  # fmt: skip
    yield Counted(server, folder, {**ports, "beanstalk": server.port}, certificates)
    server.dispose()


def beanstalk(broker: Counted, depth: int, count: int, *shape: str) -> None:
    beanstalk_generator.run(broker.ports["beanstalk"], ("--depth", str(depth), "--jobs", str(count), *shape))


def nsq(broker: Counted, topic: str, count: int, *shape: str) -> None:
    nsq_generator.run(broker.ports["nsq"], ("--topic", topic, *shape, "--messages", str(count)))


def nats(broker: Counted, mode: str, count: int) -> None:
    shape = ("--publishers", "2", "--subscribers", "4")  # so that some are of another acceptor
    nats_generator.run(broker.ports["nats"], ("--mode", mode, *shape, "--messages", str(count)))


def pulsar(broker: Counted, kind: str, body_bytes: int, count: int, topic: str = "", *more: str) -> None:
    shape = ("--type", kind, "--keys", "50", "--body", str(body_bytes), "--depth", "20", *more)
    topic = topic or f"{kind}-{body_bytes}"
    pulsar_generator.run(broker.ports["pulsar"], ("--topic", topic, *shape, "--messages", str(count)))


def backlog(broker: Counted, count: int) -> None:
    nsq(broker, "backlog", count, "--mode", "publish")
    nsq(broker, "backlog", count, "--mode", "consume", "--consumers", "1")


def batches_for_nsq(broker: Counted, count: int) -> None:
    with Wire(broker.ports["nsq"]) as wire:
        wire.subscribe("packed-0", "0")  # Pulsar keeps nothing for nobody
    pulsar(broker, "shared", 100, count, "packed", "--batch", "4", "--mode", "publish")
    nsq(broker, "packed-0", count, "--mode", "consume", "--consumers", "1", "--body", "100")


def out_of_turn(broker: Counted, body_bytes: int, count: int) -> None:
    """One connection whose commands go to shards in turn, so that answers come before such as are due earlier."""
    body = b"x" * body_bytes
    with socket.create_connection(("127.0.0.1", broker.ports["beanstalk"]), timeout=20) as sock:
        replies = sock.makefile("rb")
        for _ in range(count // BURST):
            puts = (b"use t%d\r\nput 0 0 60 %d\r\n%s\r\n" % (i % TUBES, body_bytes, body) for i in range(BURST))
            sock.sendall(b"".join(puts))
            lines = [(replies.readline(), replies.readline())[1] for _ in range(BURST)]
            ids = [line.split()[1] for line in lines]
            sock.sendall(b"".join(b"reserve-job %s\r\n" % id_ for id_ in ids))
            for id_ in ids:
                assert replies.readline() == b"RESERVED %s %d\r\n" % (id_, body_bytes)
                replies.read(body_bytes + 2)
            sock.sendall(b"".join(b"delete %s\r\n" % id_ for id_ in ids))
            for _ in ids:
                assert replies.readline() == b"DELETED\r\n"


def filtered(broker: Counted, count: int, *, tls: bool = False, deflate: bool = False, snappy: bool = False) -> None:
    """Python gets a copy of each piece that comes or goes: four for a burst, and more if it takes several turns."""
    with contextlib.ExitStack() as stack:
        producer, consumer = (stack.enter_context(Wire(broker.ports["nsq"])) for _ in range(2))
        for wire in (producer, consumer):
            wire.identify(tls_v1=tls, deflate=deflate, snappy=snappy, output_buffer_timeout=25)
            if tls:
                wire.start_tls(broker.certificates.context())
                assert wire.frame() == OK
            if deflate or snappy:
                wire.start_deflate() if deflate else wire.start_snappy()
                assert wire.frame() == OK
        consumer.subscribe("filtered", "ch", rdy=FILTERED_BURST)
        for _ in range(count // FILTERED_BURST):
            producer.send(frames.pub("filtered", b"x" * 100) * FILTERED_BURST)
            assert producer.frames(FILTERED_BURST) == [OK] * FILTERED_BURST
            consumer.fin(*consumer.messages(FILTERED_BURST))


@pytest.mark.parametrize(
    ("messages", "play"),
    [
        pytest.param(MESSAGES, lambda broker, count: beanstalk(broker, 64, count), id="jobs, many outstanding"),
        pytest.param(MESSAGES, lambda broker, count: beanstalk(broker, 1, count), id="jobs, one outstanding"),
        pytest.param(240, lambda broker, count: beanstalk(broker, 2, count, "--body", "60000"), id="jobs, large"),
        pytest.param(800, lambda broker, count: out_of_turn(broker, 20, count), id="jobs, out of turn"),
        pytest.param(400, lambda broker, count: out_of_turn(broker, 5000, count), id="jobs, out of turn, 5 KB"),
        pytest.param(160, lambda broker, count: out_of_turn(broker, 60_000, count), id="jobs, out of turn, large"),
        pytest.param(MESSAGES, lambda broker, count: nsq(broker, "t1", count, "--batch", "1"), id="PUB"),
        pytest.param(MESSAGES, lambda broker, count: nsq(broker, "t100", count, "--batch", "100"), id="MPUB"),
        pytest.param(MESSAGES, lambda broker, count: nsq(broker, "ch", count, "--channels", "3"), id="PUB, 3 channels"),
        pytest.param(240, lambda broker, count: nsq(broker, "large", count, "--body", "100000"), id="PUB, large"),
        pytest.param(MESSAGES, backlog, id="PUB, backlog"),
        pytest.param(MESSAGES, batches_for_nsq, id="NSQ out of Pulsar's batches"),
        pytest.param(1000, lambda broker, count: filtered(broker, count, tls=True), id="PUB, TLS"),
        pytest.param(1000, lambda broker, count: filtered(broker, count, deflate=True), id="PUB, deflate"),
        pytest.param(1000, lambda broker, count: filtered(broker, count, snappy=True, tls=True), id="PUB, TLS, snappy"),
        pytest.param(MESSAGES, lambda broker, count: nats(broker, "deliver", count), id="NATS"),
        pytest.param(MESSAGES, lambda broker, count: nats(broker, "request", count), id="NATS, requests"),
        pytest.param(MESSAGES, lambda broker, count: pulsar(broker, "exclusive", 1024, count), id="Pulsar, exclusive"),
        pytest.param(MESSAGES, lambda broker, count: pulsar(broker, "shared", 1024, count), id="Pulsar, shared"),
        pytest.param(MESSAGES, lambda broker, count: pulsar(broker, "key-shared", 1024, count), id="Pulsar, by key"),
        pytest.param(240, lambda broker, count: pulsar(broker, "shared", 50_000, count), id="Pulsar, large"),
    ],
)
def test_no_message_asks_for_memory(broker: Counted, messages: int, play: Callable[[Counted, int], None]) -> None:
    check(broker, messages, play)


@pytest.mark.parametrize("depth", [16, 128])
def test_nor_does_one_that_finds_no_room_in_a_ring(narrow: Counted, depth: int) -> None:
    """What has no room waits in chunks of 64 KiB, so at most one in eight messages could ask for one. On a
    machine that is busy with other things some wait in the worker too, each by itself, for a segment that is late."""
    check(narrow, 2000, lambda broker, count: beanstalk(broker, depth, count, "--body", "8000"), one_in=20)


def check(broker: Counted, messages: int, play: Callable[[Counted, int], None], one_in: int = PAGE) -> None:
    play(broker, messages)
    began = broker.asked()
    play(broker, messages)
    middle = broker.asked()
    play(broker, 4 * messages)  # by as many connections, which cost what they cost
    more = {at: count - middle[at] - (middle[at] - began[at]) for at, count in broker.asked().items()}
    often = {f"{comm} {offset:#x}": count for (comm, offset), count in more.items() if count > 3 * messages / one_in}
    assert not often, f"of {3 * messages} messages; addr2line -fie {_core.__file__}"
