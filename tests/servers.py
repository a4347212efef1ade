"""Starting and stopping brokers for the tests: mq-shards in several shapes, and the real beanstalkd beside it.

The same tests run against both, so that a test that demands what beanstalkd does not do shows itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perf.ports import free_port as free_port
from tests.starting import NOTHING, Process, begin
from tests.starting import ROOT as ROOT

START_SECONDS = 60.0
STOP_SECONDS = 20.0
NAMED_SECONDS = 5.0  # a process that has begun has its supervisor's name at first


@dataclass(frozen=True)
class Shape:
    """A kind of server and how many processes it has."""

    name: str
    program: str
    options: tuple[str, ...] = ()

    @property
    def is_shards(self) -> bool:
        return self.program == "mq-shards"

    @property
    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if self.is_shards:
            return None  # if the core does not load, that is a failure
        return None if shutil.which(self.program) else f"{self.program} is not installed"


BEANSTALKD = Shape("beanstalkd", os.environ.get("BEANSTALKD", "beanstalkd"))
SINGLE = Shape("shards-1", "mq-shards", ("--workers", "1"))
MANY = Shape("shards-3x2", "mq-shards", ("--workers", "3", "--acceptors", "2"))
SHAPES = (BEANSTALKD, SINGLE, MANY)


def shapes(*wanted: Shape) -> list[object]:
    """Parameters for a test that runs on each; those that cannot run here are skipped, and say why."""
    return [
        pytest.param(s, id=s.name, marks=[pytest.mark.skipif(s.missing is not None, reason=s.missing or "")])
        for s in wanted
    ]


@dataclass
class Server:
    """A running broker. `stderr` is a file that what it says goes to."""

    shape: Shape
    port: int
    process: Process
    stderr: Path
    owned: list[Path] = field(default_factory=list)

    def said(self) -> str:
        return self.stderr.read_text(errors="replace")

    def pids(self) -> list[int]:
        """The broker's first process and all its descendants."""
        found = [self.process.pid]
        for pid in found:
            found += children(pid)
        return found

    def pid_of(self, comm: str) -> int:
        """The process that calls itself so, as mq-worker-0."""
        until = time.monotonic() + NAMED_SECONDS
        while True:
            for pid in self.pids():
                if comm_of(pid) == comm:
                    return pid
            if time.monotonic() > until:
                break
            time.sleep(0.002)
        raise LookupError(f"no process {comm} among {[(p, comm_of(p)) for p in self.pids()]}")

    def replace(self, comm: str) -> None:
        """kill -9 of one process, until there is another in its place."""
        before = self.pid_of(comm)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: any(comm_of(pid) == comm and pid != before for pid in self.pids()), f"{comm} is back")

    def kill(self) -> None:
        """kill -9 of all its processes at once: stopped first, so that none sees another die."""
        pids = self.pids()
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sig)
        self.process.wait(STOP_SECONDS)
        wait_until(lambda: not any(is_alive(pid) for pid in pids), "the processes have ended")

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def dispose(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for path in self.owned:
            shutil.rmtree(path, ignore_errors=True)


def children(pid: int) -> list[int]:
    """Those at least that are not followed by one that ends meanwhile: proc(5)."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def is_alive(pid: int) -> bool:
    """Zombies are dead: whoever inherited them may take its time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def comm_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def wait_until(condition: object, what: str, seconds: float = 60.0, pause: float = 0.002) -> None:
    """Looks more and more seldom: to ask takes a processor that the broker may need. `pause`: between two looks at
    first, in seconds."""
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds} s in vain until {what}"
        time.sleep(pause)
        pause = max(pause, min(pause * 1.3, 0.03))


def start(
    shape: Shape,
    *,
    data_dir: Path | None = None,
    max_job_bytes: int | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    as_program: bool = False,
) -> Server:
    """Starts a broker and waits until it answers. Without `data_dir` it keeps everything in memory."""
    port = free_port()
    if shape.is_shards:
        command = ["--listen", f"beanstalk://127.0.0.1:{port}", *shape.options]
        command += ["--memory"] if data_dir is None else ["--data-dir", str(data_dir)]
        command += [] if max_job_bytes is None else ["--set", f"beanstalk.max-job-size={max_job_bytes}"]
    else:
        command = [shape.program, "-l", "127.0.0.1", "-p", str(port)]
        command += [] if data_dir is None else ["-b", str(data_dir)]
        command += [] if max_job_bytes is None else ["-z", str(max_job_bytes)]
    own = Path(tempfile.mkdtemp(prefix="broker-"))
    stderr = own / "stderr"
    with stderr.open("wb") as sink:
        process = begin([*command, *options], sink, env=env, is_ours=shape.is_shards, as_program=as_program)
    server = Server(shape, port, process, stderr, [own])
    try:
        wait_for_answer(server, b"peek-ready\r\n")
    except BaseException:
        server.dispose()
        raise
    return server


def wait_for_answer(server: Server, command: bytes) -> None:
    """Until the command is answered: a listening socket alone does not mean that the workers are there."""
    until = time.monotonic() + START_SECONDS
    while True:
        if server.process.poll() is not None:
            raise RuntimeError(f"{server.shape.name} ended with {server.process.returncode}:\n{server.said()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1) as s:
            s.sendall(command)
            if s.recv(64):
                return
        if time.monotonic() > until:
            raise TimeoutError(f"{server.shape.name} does not answer:\n{server.said()}")
        time.sleep(0.02)


@contextlib.contextmanager
def running(
    shape: Shape,
    *,
    data_dir: Path | None = None,
    max_job_bytes: int | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    as_program: bool = False,
) -> Iterator[Server]:
    server = start(
        shape, data_dir=data_dir, max_job_bytes=max_job_bytes, options=options, env=env, as_program=as_program
    )
    try:
        yield server
    finally:
        server.dispose()
