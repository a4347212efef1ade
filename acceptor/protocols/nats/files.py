"""The pid file, the ports file, and lines in the journal that programs which start a nats-server wait for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

# By scheme: its name in a ports file, and the scheme that clients use.
PORTS: Final[Mapping[str, tuple[str, str]]] = {
    "nats": ("nats", "nats"),
    "nats-ws": ("websocket", "ws"),
    "nats-http": ("monitoring", "http"),
    "nats-https": ("monitoring", "https"),
    "nats-route": ("cluster", "nats"),
    "nats-leaf": ("leafnodes", "nats"),
}

log = logging.getLogger(__name__)


def write(settings: Mapping[str, Any], listening: Sequence[tuple[str, str]]) -> list[str]:
    """Writes the files and returns their paths. `listening`: schemes and HOST:PORT. Raises OSError if the pid file
    cannot be written, with which a nats-server does not start; it does without its ports file."""
    pid_file, ports_dir = settings["pid-file"], settings["ports-file-dir"]
    pid, written = os.getpid(), []
    if pid_file:
        try:
            Path(pid_file).write_bytes(str(pid).encode())
        except OSError as error:
            raise OSError(f"Could not write pidfile: open {pid_file}: {(error.strerror or '').lower()}") from None
        written.append(pid_file)
    if ports_dir:
        program = Path(sys.argv[0]).stem or "mq-shards"
        path = Path(ports_dir) / f"{program}_{pid}.ports"
        try:
            path.write_bytes(orjson.dumps(ports_of(listening)))
            written.append(str(path))
        except OSError as error:
            log.error("cannot write %s: %s", path, error.strerror)
    say_ready(listening, "wss" if settings["websocket-tls-cert-file"] else "ws")
    return written


def say_ready(listening: Sequence[tuple[str, str]], websocket: str) -> None:
    """Says, in nats-server's words, where clients are listened for, and then that it is ready."""
    for scheme, address in listening:
        if scheme == "nats":
            log.info("Listening for client connections on %s", address)
        elif scheme == "nats-ws":
            log.info("Listening for websocket clients on %s://%s", websocket, address)
    if any(scheme == "nats" for scheme, _ in listening):
        log.info("Server is ready")


def ports_of(listening: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for scheme, address in listening:
        if scheme in PORTS:
            kind, written = PORTS[scheme]
            found.setdefault(kind, []).append(f"{written}://{address}")
    return found
