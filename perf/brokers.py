"""Starts brokers to be measured, on free ports and in directories of their own, and reads what they use from /proc.

Every broker runs in a session of its own, and leaving the context kills the whole of it: nothing is left running or on
disk, whatever went wrong in between.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from perf.ports import free_port as free_port

START_LIMIT_S: Final = 20.0
STOP_LIMIT_S: Final = 10.0
POLL_S: Final = 0.002
QUIET_S: Final = 0.1  # a broker that uses at most QUIET_SHARE of a core for so long has nothing to do
QUIET_SHARE: Final = 0.1
CLOCK_SCHED: Final = 2  # from the kernel's clock id layout: (~pid << 3) | 2 is the CPU time of a process, in ns


class BrokerError(Exception):
    """A broker that did not start, ended on its own, or did not answer as it should."""


Greet: TypeAlias = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class Wire:
    """A protocol that brokers speak."""

    name: str  # the scheme of --listen
    greet: Greet  # asks the server at a port something; raises OSError if it does not answer as it should in the time
    options: tuple[str, ...] = ()  # what else mq-shards is started with


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a broker keeps its messages: only in memory, or in a directory with each write synced or not."""

    name: str
    on_disk: bool
    sync_always: bool = False


MEMORY: Final = Keeping("memory", on_disk=False)
DISK: Final = Keeping("disk", on_disk=True)
SYNCED: Final = Keeping("synced", on_disk=True, sync_always=True)


class Product(Protocol):
    """A program that speaks a protocol to be measured."""

    @property
    def name(self) -> str: ...

    @property
    def protocol(self) -> Wire: ...

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]: ...

    def version(self) -> str: ...

    @property
    def start_limit_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class MqShards:
    program: tuple[str, ...]
    protocol: Wire
    workers: int = 1
    name: str = "mq-shards"
    more: tuple[str, ...] = ()  # options
    start_limit_s: float = START_LIMIT_S

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        listener = f"{self.protocol.name}://127.0.0.1:{port}"
        command = [*self.program, "--workers", str(self.workers), "--listen", listener]
        command += self.more
        command += ["--data-dir", str(directory)] if keeping.on_disk else ["--memory"]
        command += self.protocol.options
        if keeping.sync_always:
            command += ["--sync", "always"]
        return command

    def version(self) -> str:
        return first_line([*self.program, "--version"])


def this_mq_shards(protocol: Wire, workers: int = 1) -> MqShards:
    """Returns the mq-shards of the environment that this runs in."""
    script = Path(sys.executable).with_name("mq-shards")
    program = (str(script),) if script.exists() else (sys.executable, "-m", "mq_shards.supervisor.command")
    return MqShards(program, protocol, workers)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `held` cannot be reclaimed: anonymous memory, and shared memory whether mapped or not, each page once.
    `file` is the mapped page cache, which the kernel may drop."""

    held: int
    file: int


class Broker:
    """One running broker. Use it with `with`, or with start() and stop() when its start is part of what is measured."""

    def __init__(self, product: Product, keeping: Keeping, base: Path | None = None) -> None:
        self.product = product
        self.keeping = keeping
        self.port = 0
        self._base = base
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        try:
            self.start()
            self.wait_until_served()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def directory(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="mq-perf-", dir=self._base))
        return self._directory

    def start(self) -> None:
        """Executes the program, on the same directory as before if there was one; does not wait for it."""
        assert self._process is None
        self.port = free_port()
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self.product.command(self.port, self.keeping, data),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.directory, start_new_session=True,
            )  # fmt: skip

    def wait_until_served(self, greet: Greet | None = None, limit_s: float | None = None) -> None:
        """Returns when the broker answers as `greet` wants it: its protocol's, if none is given."""
        greet = greet or self.product.protocol.greet
        limit_s = self.product.start_limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        found: object = "no answer"
        while (left := deadline - time.monotonic()) > 0:
            self._check_running()
            try:
                greet(self.port, left)
                return
            except OSError as error:
                found = error
                time.sleep(POLL_S)
        raise BrokerError(f"{self.product.name} does not answer as it should after {limit_s:g} s: {found}")

    def wait_until_quiet(self, limit_s: float = START_LIMIT_S) -> None:
        """Returns when the broker has done what it does after its answers, such as moving messages to channels."""
        deadline = time.monotonic() + limit_s
        pids = self.pids()
        while time.monotonic() < deadline:
            self._check_running()
            before = cpu_ns(pids)
            time.sleep(QUIET_S)
            if cpu_ns(pids) - before < QUIET_S * QUIET_SHARE * 1e9:
                return
        raise BrokerError(f"{self.product.name} is still busy after {limit_s:g} s without load")

    def kill(self) -> None:
        """Sends SIGKILL to all its processes at once, to the parent first so that it cannot start others anew."""
        process = self._process
        if process is None:
            return
        pids = self.pids()
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None
        deadline = time.monotonic() + STOP_LIMIT_S
        while any(Path(f"/proc/{pid}/cwd").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Ends the broker and removes its directory."""
        try:
            self.kill()
        finally:
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def pids(self) -> list[int]:
        """Returns the broker's processes, the first one first."""
        return process_tree(self._process.pid) if self._process is not None else []

    def output(self) -> str:
        return (self.directory / "output").read_text(errors="replace")

    def memory(self) -> Memory:
        return memory_of(self.pids())

    def _check_running(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise BrokerError(
                f"{self.product.name} ended with status {self._process.returncode}: {self.output()[-2000:].strip()}"
            )


def process_tree(root: int) -> list[int]:
    """Returns `root` and all processes that descend from it, parents first."""
    tree = [root]
    for pid in tree:
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                tree += sorted(map(int, (thread / "children").read_text().split()))
    return tree


def cpu_ns(pids: Sequence[int]) -> int:
    """Returns the CPU time used so far by all threads of these processes, ended threads too."""
    return sum(time.clock_gettime_ns((~pid << 3) | CLOCK_SCHED) for pid in pids)


def memory_of(pids: Sequence[int]) -> Memory:
    """Returns what these processes use: see Memory. Counts shared memory by descriptor: unmapped pages have no PSS."""
    anonymous = file = 0
    shared: dict[tuple[int, int], int] = {}
    for pid in pids:
        fields = _smaps_rollup(pid)
        anonymous += fields["Pss_Anon"]
        file += fields["Pss_File"]
        shared |= _shared_memory(pid)
    return Memory(anonymous + sum(shared.values()), file)


def _smaps_rollup(pid: int) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines}


def _shared_memory(pid: int) -> dict[tuple[int, int], int]:
    """Returns the bytes of each memfd or /dev/shm file that a process has open, by (device, inode)."""
    found: dict[tuple[int, int], int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = str(entry.readlink())
            if name.startswith(("/memfd:", "/dev/shm/")):
                status = entry.stat()
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue  # the file was closed meanwhile
    return found


def connect(port: int, timeout_s: float) -> socket.socket:
    """Connects to a broker, for a greeting. Raises OSError."""
    return socket.create_connection(("127.0.0.1", port), timeout=max(timeout_s, 0.01))


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def first_line(command: list[str]) -> str:
    """Returns the first line of what a program prints, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return next(iter((done.stdout + done.stderr).splitlines()), "unknown")
