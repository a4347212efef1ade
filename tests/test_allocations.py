"""Nothing on a message's way asks for memory, in a whole broker under the loads that it is measured with.

Pages that hold many messages come and go: a tube's are let go of when it is empty.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
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
from tests.servers import Server, Shape, comm_of, free_port, start

SOURCE: Final = Path(__file__).with_name("allocations.c")
SLOT: Final = struct.Struct("<QQQ")
PAGE: Final = 8  # messages: fewer have no page to themselves
MESSAGES: Final = 6000
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

    def asked(self) -> Asked:
        found: Asked = Counter()
        for pid in self.server.pids():
            for _, count, offset in SLOT.iter_unpack((self.folder / str(pid)).read_bytes()):
                if offset:
                    found[comm_of(pid), offset] += count
        return found


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    target = tmp_path_factory.mktemp("counting") / "allocations.so"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.name)
def broker(
    request: pytest.FixtureRequest, counting: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Counted]:
    folder = tmp_path_factory.mktemp("asked")
    ports = {scheme: free_port() for scheme in ("nsq", "nats", "pulsar")}
    options = [word for scheme, port in ports.items() for word in ("--listen", f"{scheme}://127.0.0.1:{port}")]
    server = start(
        request.param, data_dir=tmp_path_factory.mktemp("data"), options=options,
        env={"LD_PRELOAD": str(counting), "ALLOCATIONS": str(folder)},
    )  # fmt: skip
    yield Counted(server, folder, {**ports, "beanstalk": server.port})
    server.dispose()


def beanstalk(port: int, depth: int, count: int) -> None:
    beanstalk_generator.run(port, ("--depth", str(depth), "--jobs", str(count)))


def nsq(port: int, batch: int, count: int) -> None:
    nsq_generator.run(port, ("--topic", f"t{batch}", "--batch", str(batch), "--messages", str(count)))


def nats(port: int, mode: str, count: int) -> None:
    shape = ("--publishers", "2", "--subscribers", "4")  # so that some are of another acceptor
    nats_generator.run(port, ("--mode", mode, *shape, "--messages", str(count)))


def pulsar(port: int, kind: str, body_bytes: int, count: int) -> None:
    shape = ("--type", kind, "--keys", "50", "--body", str(body_bytes), "--depth", "20")
    pulsar_generator.run(port, ("--topic", f"{kind}-{body_bytes}", *shape, "--messages", str(count)))


@pytest.mark.parametrize(
    ("protocol", "messages", "play"),
    [
        pytest.param(
            "beanstalk", MESSAGES, lambda port, count: beanstalk(port, 64, count), id="jobs, many outstanding"
        ),
        pytest.param("beanstalk", MESSAGES, lambda port, count: beanstalk(port, 1, count), id="jobs, one outstanding"),
        pytest.param("nsq", MESSAGES, lambda port, count: nsq(port, 1, count), id="PUB"),
        pytest.param("nsq", MESSAGES, lambda port, count: nsq(port, 100, count), id="MPUB"),
        pytest.param("nats", MESSAGES, lambda port, count: nats(port, "deliver", count), id="NATS"),
        pytest.param("nats", MESSAGES, lambda port, count: nats(port, "request", count), id="NATS, requests"),
        pytest.param(
            "pulsar", MESSAGES, lambda port, count: pulsar(port, "exclusive", 1024, count), id="Pulsar, exclusive"
        ),
        pytest.param("pulsar", MESSAGES, lambda port, count: pulsar(port, "shared", 1024, count), id="Pulsar, shared"),
        pytest.param(
            "pulsar", MESSAGES, lambda port, count: pulsar(port, "key-shared", 1024, count), id="Pulsar, by key"
        ),
        pytest.param("pulsar", 1000, lambda port, count: pulsar(port, "shared", 50_000, count), id="Pulsar, large"),
    ],
)
def test_no_message_asks_for_memory(
    broker: Counted, protocol: str, messages: int, play: Callable[[int, int], None]
) -> None:
    port = broker.ports[protocol]
    play(port, messages)
    began = broker.asked()
    play(port, messages)
    middle = broker.asked()
    play(port, 4 * messages)  # by as many connections, which cost what they cost
    more = {at: count - middle[at] - (middle[at] - began[at]) for at, count in broker.asked().items()}
    often = {f"{comm} {offset:#x}": count for (comm, offset), count in more.items() if count > 3 * messages / PAGE}
    assert not often, f"of {3 * messages} messages; addr2line -fie {_core.__file__}"
