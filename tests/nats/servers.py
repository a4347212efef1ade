"""Servers for the tests of NATS: mq-shards, and a real nats-server where there is one."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perf.nats.peer import nats_server as nats_server
from tests.servers import START_SECONDS, STOP_SECONDS, free_port
from tests.starting import Process, begin


@dataclass
class NatsServer:
    port: int
    process: Process
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


def settings_of(acceptors: int, directory: Path, **options: str) -> list[str]:
    """What block tls of a configuration file has, or beside it allow_non_tls, for a server of that kind."""
    if acceptors > 0:
        named = {name if name == "allow_non_tls" else f"tls_{name}": value for name, value in options.items()}
        return [f"nats.{name.replace('_', '-')}={value}" for name, value in named.items()]
    outside = {name: value for name, value in options.items() if name == "allow_non_tls"}
    inside = {name: value for name, value in options.items() if name not in outside}
    lists = {"pinned_certs", "cipher_suites"}
    lines = [f"{name}: {value}" for name, value in outside.items()]
    lines += [
        "tls {",
        *(f"  {name}: {f'[{value}]' if name in lists else value}" for name, value in inside.items()),
        "}",
    ]
    path = directory / f"tls-{len(list(directory.iterdir()))}.conf"
    path.write_text("\n".join(lines) + "\n")
    return ["-c", str(path)]


def _command(host: str, port: int, acceptors: int, settings: Sequence[str], arguments: Sequence[str]) -> list[str]:
    if acceptors == 0:
        program = nats_server()
        assert program is not None
        return [program, "-a", host, "-p", str(port), *settings, *arguments]
    command = ["--memory", "--acceptors", str(acceptors), "--workers", "1", "--listen", f"nats://{host}:{port}"]
    return [*command, *arguments, *(word for setting in settings for word in ("--set", setting))]


@contextlib.contextmanager
def running(
    acceptors: int,
    settings: Sequence[str] = (),
    arguments: Sequence[str] = (),
    *,
    host: str = "127.0.0.1",
    is_silent: bool = False,
) -> Iterator[NatsServer]:
    """`acceptors` 0: a real nats-server. `settings` are --set's of mq-shards, or arguments of nats-server;
    `arguments` are either's. `is_silent`: it waits for its clients to speak first."""
    directory = Path(tempfile.mkdtemp(prefix="nats-"))
    port = free_port()
    with (directory / "stderr").open("wb") as sink:
        process = begin(_command(host, port, acceptors, settings, arguments), sink, is_ours=acceptors > 0)
    server = NatsServer(port, process, acceptors == 0, acceptors, directory)
    try:
        _wait(server, is_silent)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait(server: NatsServer, is_silent: bool) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        if server.process.poll() is not None:
            raise RuntimeError(f"it ended with {server.process.returncode}:\n{server.said()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1) as s:
            if is_silent or s.recv(64):
                return
        if time.monotonic() > until:
            raise TimeoutError(f"it does not answer:\n{server.said()}")
        time.sleep(0.02)
