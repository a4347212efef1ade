"""Brokers for the tests of Pulsar."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import START_SECONDS, STOP_SECONDS, children, comm_of, free_port, wait_until
from tests.starting import NOTHING, Process, begin


@dataclass
class PulsarServer:
    port: int
    process: Process
    stderr: Path
    other_port: int  # of NSQ
    http_port: int
    beanstalk_port: int

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    def pid_of(self, comm: str) -> int:
        """The process that calls itself so, as mq-worker-0."""
        return next(pid for pid in children(self.process.pid) if comm_of(pid) == comm)

    def names(self) -> set[str]:
        """Of the processes that there are now."""
        return {comm_of(pid) for pid in children(self.process.pid)}

    def kill(self) -> None:
        """All of its processes at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(
    *,
    workers: int = 1,
    acceptors: int = 1,
    shards: int | None = None,
    data_dir: Path | None = None,
    settings: Sequence[str] = (),
    listen: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    sync: str = "interval",
) -> Iterator[PulsarServer]:
    port, other_port, http_port, beanstalk_port = (free_port() for _ in range(4))
    command = ["--workers", str(workers), "--sync", sync]
    command += ["--acceptors", str(acceptors), "--listen", f"pulsar://127.0.0.1:{port}"]
    command += ["--listen", f"nsq://127.0.0.1:{other_port}", "--listen", f"pulsar-http://127.0.0.1:{http_port}"]
    command += ["--listen", f"beanstalk://127.0.0.1:{beanstalk_port}"]
    # Where tokens guard Pulsar the other doors are meant to be open.
    command += ["--insecure", "nsq", "--insecure", "beanstalk"]
    command += [] if shards is None else ["--shards", str(shards)]
    command += ["--memory"] if data_dir is None else ["--data-dir", str(data_dir)]
    command += [word for one in listen for word in ("--listen", one)]
    command += [word for setting in settings for word in ("--set", setting)]
    stderr = Path(tempfile.mkdtemp(prefix="pulsar-")) / "stderr"
    with stderr.open("wb") as sink:
        process = begin(command, sink, env=env)
    server = PulsarServer(port, process, stderr, other_port, http_port, beanstalk_port)
    try:
        # One after the other, as they are given.
        more = [int(one.rpartition(":")[2]) for one in listen if "127.0.0.1:" in one]
        for one in (port, other_port, http_port, beanstalk_port, *more):
            wait_until(lambda one=one: process.poll() is not None or _answers(one), "the broker listens", START_SECONDS)
        assert process.poll() is None, stderr.read_text()
        yield server
    finally:
        if process.poll() is None:
            server.stop()
        shutil.rmtree(stderr.parent)
