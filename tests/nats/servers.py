"""Servers for the tests of NATS: mq-shards, and a real nats-server where there is one."""

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import ROOT, START_SECONDS, STOP_SECONDS, free_port

BUILT = ROOT / "build" / "nats" / "nats-server"


def nats_server() -> str | None:
    """The real one: named by the environment, built by make, or installed."""
    for program in (os.environ.get("NATS_SERVER_BIN"), str(BUILT), "nats-server"):
        if program and (found := shutil.which(program)):
            return found
    return None


@dataclass
class NatsServer:
    port: int
    process: subprocess.Popen[bytes]
    is_real: bool
    acceptors: int
    directory: Path

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def said(self) -> str:
        return (self.directory / "stderr").read_text(errors="replace")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def _command(port: int, acceptors: int, settings: Sequence[str]) -> list[str]:
    if acceptors == 0:
        program = nats_server()
        assert program is not None
        return [program, "-a", "127.0.0.1", "-p", str(port), *settings]
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "--memory", "--acceptors", str(acceptors)]
    command += ["--workers", "1", "--listen", f"nats://127.0.0.1:{port}"]
    return [*command, *(word for setting in settings for word in ("--set", setting))]


@contextlib.contextmanager
def running(acceptors: int, settings: Sequence[str] = ()) -> Iterator[NatsServer]:
    """`acceptors` 0: a real nats-server. `settings` are --set's of mq-shards, or arguments of nats-server."""
    directory = Path(tempfile.mkdtemp(prefix="nats-"))
    port = free_port()
    with (directory / "stderr").open("wb") as sink:
        process = subprocess.Popen(
            _command(port, acceptors, settings), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
    server = NatsServer(port, process, acceptors == 0, acceptors, directory)
    try:
        _wait(server)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait(server: NatsServer) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        if server.process.poll() is not None:
            raise RuntimeError(f"it ended with {server.process.returncode}:\n{server.said()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1) as s:
            if s.recv(64):
                return
        if time.monotonic() > until:
            raise TimeoutError(f"it does not answer:\n{server.said()}")
        time.sleep(0.02)
