"""Starting nsqd and mq-shards alike: the same options under nsqd's names, ports of their own, nothing left behind."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perf.nsq.peer import nsq_program
from tests import servers
from tests.servers import Server, Shape, free_port, wait_until

Options = Mapping[str, str | Sequence[str]]  # a list: given several times
HOST = "127.0.0.1"

# The real nsqd looks only at a random 20 channels every 100 ms for what has timed out; here there are more.
NSQD_OPTIONS = ("-log-level=warn", "-https-address=", f"-broadcast-address={HOST}", "-queue-scan-selection-count=2000")
# And it takes new channels into that search only every 5 s.
NSQD_SCAN_REFRESH_SECONDS = 5.2


NSQD = Shape("nsqd", nsq_program("nsqd") or "nsqd")
SHARDS = Shape("shards-2", "mq-shards", ("--workers", "2"))
SHAPES = (NSQD, SHARDS)


@dataclass
class NsqServer(Server):
    """A running nsqd or mq-shards; `port` is the one of the TCP protocol."""

    http_port: int = 0
    beanstalk_port: int = 0  # mq-shards only
    was_killed: bool = False
    # Topics whose channel "ch" the real nsqd looks for time-outs in, from when on (scenes.py).
    prepared: list[str] = field(default_factory=list)
    prepared_at: float = 0.0

    def kill(self) -> None:
        self.was_killed = True
        super().kill()


def start(
    shape: Shape, options: Options | None = None, *, data_dir: Path | None = None, arguments: Sequence[str] = ()
) -> NsqServer:
    """Starts a broker and waits until both its ports answer. Without `data_dir` mq-shards keeps all in memory."""
    start_product = start_shards if shape.is_shards else start_nsqd
    server = start_product(shape, options or {}, data_dir, arguments)
    try:
        wait_for_magic(server)
    except BaseException:
        server.dispose()
        raise
    return server


def start_nsqd(shape: Shape, options: Options, data_dir: Path | None, arguments: Sequence[str]) -> NsqServer:
    port, http_port = two_free_ports()
    own = Path(tempfile.mkdtemp(prefix="broker-"))
    data = data_dir or own / "data"
    data.mkdir(exist_ok=True)
    command = [
        shape.program, f"-tcp-address={HOST}:{port}", f"-http-address={HOST}:{http_port}", f"-data-path={data}",
        *NSQD_OPTIONS, *(f"-{name}={value}" for name, value in pairs(options)), *arguments,
    ]  # fmt: skip
    stderr = own / "stderr"
    with stderr.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=own, start_new_session=True
        )
    return NsqServer(shape, port, process, stderr, [own], http_port)


def start_shards(shape: Shape, options: Options, data_dir: Path | None, arguments: Sequence[str]) -> NsqServer:
    given = [f"--listen=nsq://{HOST}:0", f"--listen=nsq-http://{HOST}:0", *arguments]
    # As nsqd, which asks nobody there.
    given += ["--insecure", "nsq-http", "--insecure", "beanstalk"]
    for name, value in pairs(options):
        given += ["--set", f"nsq.{name}={value}"]
    server = servers.start(shape, data_dir=data_dir, options=given)
    found = NsqServer(shape, 0, server.process, server.stderr, server.owned, beanstalk_port=server.port)
    try:
        wait_until(lambda: "nsq-http" in listening(found), "it has said where it listens")
    except BaseException:
        found.dispose()
        raise
    found.port, found.http_port = listening(found)["nsq"], listening(found)["nsq-http"]
    return found


def listening(server: NsqServer) -> dict[str, int]:
    """The ports that mq-shards has said it listens on, by protocol."""
    said = re.findall(r"listening on ([a-z-]+)://127\.0\.0\.1:([0-9]+)$", server.said(), re.MULTILINE)
    return {protocol: int(port) for protocol, port in said}


def two_free_ports() -> tuple[int, int]:
    one, other = free_port(), free_port()
    return (one, other) if one != other else two_free_ports()


def pairs(options: Options) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        for each in [value] if isinstance(value, str) else value:
            yield name, each


def wait_for_magic(server: NsqServer) -> None:
    servers.wait_for_answer(server, b"  V2IDENTIFY\n\0\0\0\2{}")


@contextlib.contextmanager
def running(
    shape: Shape, options: Options | None = None, *, data_dir: Path | None = None, arguments: Sequence[str] = ()
) -> Iterator[NsqServer]:
    server = start(shape, options, data_dir=data_dir, arguments=arguments)
    try:
        yield server
        assert server.was_killed or server.process.poll() is None, f"the server died:\n{server.said()}"
    finally:
        server.dispose()
