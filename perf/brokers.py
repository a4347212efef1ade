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
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from perf import load, pulsar_standalone
from perf.peers import nats_server, nsq_program
from perf.ports import free_port as free_port

START_LIMIT_S: Final = 20.0
STANDALONE_START_LIMIT_S: Final = 120.0
STOP_LIMIT_S: Final = 10.0
POLL_S: Final = 0.002
QUIET_S: Final = 0.1  # a broker that uses at most QUIET_SHARE of a core for so long has nothing to do
QUIET_SHARE: Final = 0.1
MAX_RDY: Final = 10_000
NSQD_MEMORY_MESSAGES: Final = 4_000_000  # for each of these nsqd takes 8 bytes at once, in each topic and channel
CLOCK_SCHED: Final = 2  # from the kernel's clock id layout: (~pid << 3) | 2 is the CPU time of a process, in ns


class BrokerError(Exception):
    """A broker that did not start, ended on its own, or did not answer as it should."""


Wire: TypeAlias = Literal["beanstalk", "nsq", "nsq-http", "nats", "pulsar"]


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


@dataclass(frozen=True, slots=True)
class Beanstalkd:
    program: str = "beanstalkd"
    name: str = "beanstalkd"
    protocol: Wire = "beanstalk"

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        command = [self.program, "-l", "127.0.0.1", "-p", str(port)]
        if keeping.on_disk:
            command += ["-b", str(directory)]  # beanstalkd syncs every 50 ms unless told otherwise
        if keeping.sync_always:
            command += ["-f0"]
        return command

    def version(self) -> str:
        return _first_line([self.program, "-v"])


@dataclass(frozen=True, slots=True)
class Nsqd:
    """nsqd with its own defaults, but for the largest RDY. Of each topic and channel it keeps up to 10,000 messages in
    memory, and writes any more to its directory, synced every 2,500 messages or 2 s."""

    program: str = "nsqd"
    name: str = "nsqd"
    protocol: Wire = "nsq"

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        tcp, http = (0, port) if self.protocol == "nsq-http" else (port, 0)
        command = [self.program, "-tcp-address", f"127.0.0.1:{tcp}", "-http-address", f"127.0.0.1:{http}"]
        command += ["-data-path", str(directory), "-max-rdy-count", str(MAX_RDY)]
        if not keeping.on_disk:
            command += ["-mem-queue-size", str(NSQD_MEMORY_MESSAGES)]
        if keeping.sync_always:
            command += ["-mem-queue-size", "0", "-sync-every", "1"]
        return command

    def version(self) -> str:
        return _first_line([self.program, "-version"])


@dataclass(frozen=True, slots=True)
class NatsServer:
    """nats-server with its own defaults, and without JetStream: it keeps nothing."""

    program: str = "nats-server"
    name: str = "nats-server"
    protocol: Wire = "nats"
    more: tuple[str, ...] = ()  # options

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        return [self.program, "-a", "127.0.0.1", "-p", str(port), *self.more]

    def version(self) -> str:
        return _first_line([self.program, "--version"])


@dataclass(frozen=True, slots=True)
class PulsarStandalone:
    """Pulsar's standalone broker with a bookie of its own. It syncs its journal only with SYNCED."""

    name: str = "pulsar"
    protocol: Wire = "pulsar"

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        # Its own defaults for this memory and two cores; the tests use smaller values.
        more = {"managedLedgerCacheSizeMB": "200", "numIOThreads": "4"}
        more["journalSyncData"] = "true" if keeping.sync_always else "false"
        return pulsar_standalone.command(port, free_port(), directory, more=more)

    def version(self) -> str:
        return f"Pulsar {pulsar_standalone.VERSION}"


@dataclass(frozen=True, slots=True)
class MqShards:
    program: tuple[str, ...]
    workers: int = 1
    name: str = "mq-shards"
    protocol: Wire = "beanstalk"
    more: tuple[str, ...] = ()  # options

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        command = [*self.program, "--workers", str(self.workers), "--listen", f"{self.protocol}://127.0.0.1:{port}"]
        command += self.more
        command += ["--data-dir", str(directory)] if keeping.on_disk else ["--memory"]
        if self.protocol == "pulsar":  # a client that looks up a topic needs this listener
            command += ["--listen", "pulsar-http://127.0.0.1:0"]
        if self.protocol == "nsq":
            command += ["--set", f"nsq.max-rdy-count={MAX_RDY}"]
        if keeping.sync_always:
            command += ["--sync", "always"]
        return command

    def version(self) -> str:
        return _first_line([*self.program, "--version"])


@dataclass(frozen=True, slots=True)
class Bare:
    """The least that a server can do (bare.c): no broker can be cheaper. It keeps nothing on disk, and nothing of what
    is in flight."""

    protocol: Wire
    name: str = "bare"

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        return [str(load.build("bare")), self.protocol, str(port)]

    def version(self) -> str:
        return "of this checkout"


def installed_beanstalkd() -> Beanstalkd | None:
    program = shutil.which("beanstalkd")
    return Beanstalkd(program) if program else None


def installed_nsqd() -> Nsqd | None:
    program = nsq_program("nsqd")
    return Nsqd(program) if program else None


def installed_nats_server() -> NatsServer | None:
    program = nats_server()
    return NatsServer(program) if program else None


def installed_pulsar() -> PulsarStandalone | None:
    return PulsarStandalone() if pulsar_standalone.missing("broker") is None else None


def this_mq_shards(workers: int = 1, protocol: Wire = "beanstalk") -> MqShards:
    """Returns the mq-shards of the environment that this runs in."""
    script = Path(sys.executable).with_name("mq-shards")
    program = (str(script),) if script.exists() else (sys.executable, "-m", "mq_shards.supervisor.command")
    return MqShards(program, workers, protocol=protocol)


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

    def wait_until_served(self, ready_jobs: int = 0, limit_s: float = START_LIMIT_S) -> None:
        """Returns when the broker answers, and, of beanstalkd's protocol, when it has so many ready jobs."""
        if isinstance(self.product, PulsarStandalone):
            limit_s = STANDALONE_START_LIMIT_S
        deadline = time.monotonic() + limit_s
        found: object = "no answer"
        while time.monotonic() < deadline:
            self._check_running()
            try:
                if self.product.protocol != "beanstalk":
                    GREET[self.product.protocol](self.port, deadline - time.monotonic())
                    return
                found = stats(self.port, deadline - time.monotonic()).get("current-jobs-ready")
            except OSError:
                time.sleep(POLL_S)
                continue
            if found == str(ready_jobs):
                return
            time.sleep(5 * POLL_S)
        raise BrokerError(f"{self.product.name}: {ready_jobs} ready jobs expected after {limit_s:g} s, found {found}")

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


def stats(port: int, timeout_s: float = 5.0) -> dict[str, str]:
    """Returns the reply to `stats`. Raises OSError if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=max(timeout_s, 0.01)) as connection:
        connection.sendall(b"stats\r\n")
        with connection.makefile("rb") as stream:
            head = stream.readline()
            if not head.startswith(b"OK "):
                raise ConnectionError(f"stats was answered {head!r}")
            body = stream.read(int(head[3:]))
    lines = (line.partition(": ") for line in body.decode().splitlines())
    return {name: value.strip('"') for name, colon, value in lines if colon}


def greet_nsq(port: int, timeout_s: float = 5.0) -> None:
    """Sends IDENTIFY to an NSQ server. Raises OSError if the answer is not OK."""
    with socket.create_connection(("127.0.0.1", port), timeout=max(timeout_s, 0.01)) as connection:
        connection.sendall(b"  V2IDENTIFY\n\0\0\0\x02{}")
        with connection.makefile("rb") as stream:
            answer = stream.read(10)
    if answer != b"\0\0\0\x06\0\0\0\0OK":
        raise ConnectionError(f"IDENTIFY was answered {answer!r}")


def greet_http(port: int, timeout_s: float = 5.0) -> None:
    """Sends /ping to nsqd's HTTP API. Raises OSError if the answer is not OK."""
    with socket.create_connection(("127.0.0.1", port), timeout=max(timeout_s, 0.01)) as connection:
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as stream:
            answer = stream.readline()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"/ping was answered {answer!r}")


def greet_nats(port: int, timeout_s: float = 5.0) -> None:
    """Reads a NATS server's first line. Raises OSError if it is not INFO."""
    with socket.create_connection(("127.0.0.1", port), timeout=max(timeout_s, 0.01)) as connection:
        greeting = connection.recv(5, socket.MSG_WAITALL)
    if greeting != b"INFO ":
        raise ConnectionError(f"the first line begins {greeting!r}")


def greet_pulsar(port: int, timeout_s: float = 5.0) -> None:
    """Looks up a topic at a Pulsar broker. Raises OSError if the broker does not know where it is."""
    topic = b"persistent://public/default/greeting"
    look_up = b"\x0a" + bytes([len(topic)]) + topic + b"\x10\x01\x18\x00"
    with socket.create_connection(("127.0.0.1", port), timeout=max(timeout_s, 0.01)) as connection:
        connection.settimeout(max(min(timeout_s, 5.0), 0.01))
        for kind, body in ((2, b"\x0a\x04load\x20\x15"), (23, look_up)):
            command = bytes([8, kind]) + bytes([kind << 3 & 0x7F | 2 | (0x80 if kind > 15 else 0)])
            command += (b"\x01" if kind > 15 else b"") + bytes([len(body)]) + body
            connection.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
            size = struct.unpack(">I", _exactly(connection, 4))[0]
            answer = _exactly(connection, size)
    # In a CommandLookupTopicResponse these bytes say that the response is Connect.
    if b"\x18\x01\x20\x01" not in answer:
        raise ConnectionError(f"a lookup was answered {answer!r}")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) != size:
        raise ConnectionError("the broker closed the connection")
    return data


GREET: Final[Mapping[Wire, Callable[[int, float], None]]] = {
    "nsq": greet_nsq, "nsq-http": greet_http, "nats": greet_nats, "pulsar": greet_pulsar
}  # fmt: skip


def process_tree(root: int) -> list[int]:
    """Returns `root` and all processes that descend from it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += sorted(children.get(pid, ()))
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


def _parent(entry: Path) -> int | None:
    try:
        # The name, in parentheses, may contain anything; the parent is the second field after it.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return next(iter((done.stdout + done.stderr).splitlines()), "unknown")
