"""Clusters for the tests: servers of several kinds, each with routes to those before it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal as signals
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.nats.servers import nats_server
from tests.nats.wire import TIMEOUT_S, Wire
from tests.servers import ROOT, START_SECONDS, STOP_SECONDS, children, free_port, is_alive, wait_until
from tests.starting import Process, begin

OLD = ROOT / "build" / "nats" / "2.9.25" / "nats-server"
# The kinds: ours with so many acceptors, and real ones.
OURS, OURS_3, NEW_REAL, OLD_REAL = "ours", "ours-3", "2.15", "2.9"
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
ACCEPTORS = {OURS: 1, OURS_3: 3}


def program(kind: str) -> str | None:
    """A real server's."""
    if kind == NEW_REAL:
        return nats_server()
    return shutil.which(os.environ.get("NATS_SERVER_OLD_BIN", str(OLD)))


def installed(kind: str) -> str:
    return program(kind) or pytest.skip(f"nats-server {kind} is not installed")


def mixtures(*wanted: Sequence[str], long: bool = False) -> list[Any]:
    """Parameters for a test; those with a server that cannot be had are skipped. `long`: not played every time."""
    return [
        pytest.param(
            tuple(kinds),
            id="+".join(kinds),
            marks=[
                pytest.mark.skipif(
                    any(kind not in ACCEPTORS and program(kind) is None for kind in kinds), reason="no nats-server"
                ),
                *([pytest.mark.long] if long else []),
            ],
        )
        for kinds in wanted
    ]


@dataclass
class Member:
    """A server of a cluster. It can be stopped, killed and started again on its ports."""

    kind: str
    directory: Path
    routes: Sequence[str] = ()
    cluster: str = "xyz"
    extra: Sequence[str] = ()
    conf: str = ""  # nats-server's configuration, in place of all these
    options: Sequence[str] = ()  # of ours, on the command line
    port: int = field(default_factory=free_port)
    route_port: int = field(default_factory=free_port)
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def route_url(self) -> str:
        return f"nats-route://127.0.0.1:{self.route_port}"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.kind}-{self.port}"

    @property
    def conf_path(self) -> Path:
        return self.directory / f"{self.log.name}.conf"

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def _command(self) -> list[str]:
        if self.conf:
            return self._command_of_conf()
        if self.kind not in ACCEPTORS:
            command = [installed(self.kind), "-a", "127.0.0.1", "-p", str(self.port), "--cluster", self.route_url]
            command += ["--cluster_name", self.cluster] if self.cluster else []
            return [*command, *(["--routes", ",".join(self.routes)] if self.routes else []), *self.extra]
        command = [*self._ours(), "--listen", self.route_url, *self.options]
        settings = [f"nats.cluster-name={self.cluster}"] if self.cluster else []
        settings += [f"nats.routes={url}" for url in self.routes]
        return [*command, *(word for setting in (*settings, *self.extra) for word in ("--set", setting))]

    def _command_of_conf(self) -> list[str]:
        path = self.conf_path
        path.write_text(self.conf.replace("$ROUTE_PORT", str(self.route_port)).replace("$PORT", str(self.port)))
        if self.kind not in ACCEPTORS:
            return [installed(self.kind), "-c", str(path)]
        return [*self._ours(), "--nats-config", str(path), *self.options]

    def _ours(self) -> list[str]:
        command = ["--workers", "1"]
        command += [] if "--data-dir" in self.options else ["--memory"]
        return [*command, "--acceptors", str(ACCEPTORS[self.kind]), "--listen", self.url]

    def start(self) -> None:
        with self.log.open("ab") as sink:
            self.process = begin(self._command(), sink, is_ours=self.kind in ACCEPTORS)

    def wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        # A real one may listen for servers after it does for clients.
        has_routes = not self.conf or "$ROUTE_PORT" in self.conf
        while True:
            assert self.process is not None and self.process.poll() is None, self.said()
            with contextlib.suppress(OSError):
                Wire(self.port).close()
                if has_routes:
                    socket.create_connection(("127.0.0.1", self.route_port), timeout=START_SECONDS).close()
                return
            assert time.monotonic() < until, self.said()
            time.sleep(0.02)

    def pids(self) -> list[int]:
        assert self.process is not None
        pids = [self.process.pid]
        for pid in pids:
            pids += children(pid)
        return pids

    def kill(self, number: int) -> None:
        """To all its processes."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, number: int = signals.SIGTERM) -> None:
        if self.process is None:
            return
        pids = self.pids()
        with contextlib.suppress(ProcessLookupError):
            if number == signals.SIGTERM:
                self.process.terminate()
            else:
                self.kill(number)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill(signals.SIGKILL)
            self.process.wait()
        self.process = None
        wait_until(lambda: not any(is_alive(pid) for pid in pids), "its ports are free")

    def client(self, said: bytes = b"") -> Wire:
        wire = Wire(self.port)
        wire.send(CONNECT + said)
        wire.barrier()
        return wire


M = TypeVar("M", bound=Member)


@contextlib.contextmanager
def started(makes: Iterable[Callable[[Path, list[M]], M]]) -> Iterator[list[M]]:
    """Servers that are started one after the other: each is made in a directory, and knows those before it."""
    directory = Path(tempfile.mkdtemp(prefix="nats-cluster-"))
    members: list[M] = []
    try:
        for make in makes:
            members.append(make(directory, members))
            members[-1].start()
        for member in members:
            member.wait()
        yield members
    finally:
        for member in members:
            member.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def configured(kind: str, conf: str, options: Sequence[str] = ()) -> Iterator[Member]:
    """One, by a configuration file in which $PORT and $ROUTE_PORT are its ports; `options` are of ours."""
    with started([lambda directory, _: Member(kind, directory, conf=conf, options=options)]) as (member,):
        yield member


@contextlib.contextmanager
def cluster(
    kinds: Sequence[str], settings: Sequence[str] = (), arguments: Sequence[str] = (), name: str = "xyz"
) -> Iterator[list[Member]]:
    """All of them, connected to each other. `settings` are for ours, `arguments` for real ones."""

    def make(kind: str, directory: Path, before: list[Member]) -> Member:
        if len(before) == 1:
            before[0].wait()
        routes = [member.route_url for member in before[:1]]
        return Member(kind, directory, routes, name, settings if kind in ACCEPTORS else arguments)

    with started([partial(make, kind) for kind in kinds]) as members:
        meshed(members)
        yield members


def meshed(members: Sequence[Member]) -> None:
    """Waits until what is published at any of them is heard at all: with 3 acceptors, at each of those."""
    listeners = [member.client(b"SUB probe 1\r\n") for member in members]
    talkers = [member.client() for member in members]
    until = time.monotonic() + START_SECONDS
    wanted = {b"%d" % i for i in range(len(members))}
    for wire in listeners:
        wire.socket.settimeout(0.05)
    while True:
        for number, talker in enumerate(talkers):
            talker.send(b"PUB probe 1\r\n%d\r\n" % number)
        for wire in listeners:
            with contextlib.suppress(TimeoutError):
                wire.receive()
        if all(wanted <= set(bodies(wire)) for wire in listeners):
            break
        assert time.monotonic() < until, [member.said() for member in members]
    for wire in (*listeners, *talkers):
        wire.close()


def bodies(wire: Wire) -> list[bytes]:
    """Of MSG and HMSG of one line."""
    found: list[bytes] = []
    data = wire.heard.data
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        words = data[at:end].split()
        at = end + 2
        if words and words[0] in (b"MSG", b"HMSG"):
            size = int(words[-1])
            headers = int(words[-2]) if words[0] == b"HMSG" else 0
            if at + size > len(data):
                break
            found.append(data[at + headers : at + size])
            at += size + 2
    return found


def settled(members: Sequence[Member], wires: Sequence[Wire], count: int) -> None:
    """Until so many messages have come over all of them, and for a moment longer, in which one too many would."""
    until = time.monotonic() + START_SECONDS
    for wire in wires:
        wire.socket.settimeout(0.02)
    idle = 0
    while idle < 3:
        before = sum(len(wire.heard.data) for wire in wires)
        for wire in wires:
            with contextlib.suppress(TimeoutError):
                wire.receive()
        complete = sum(len(bodies(wire)) for wire in wires) >= count
        idle = idle + 1 if complete and before == sum(len(wire.heard.data) for wire in wires) else 0
        assert time.monotonic() < until, [member.said() for member in members]
    for wire in wires:
        wire.socket.settimeout(TIMEOUT_S)
