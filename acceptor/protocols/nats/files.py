"""The pid file, the ports file, and lines in the journal that programs which start a nats-server wait for."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from mq_shards.acceptor.protocols.nats.addresses import reached_at

# Programs that start a nats-server look for the file under this name.
PROGRAM: Final = "nats-server"


class Shown(NamedTuple):
    """How a listener is shown in a ports file."""

    kind: str
    scheme: str
    encrypted: str
    certificate: str = ""  # the option with which it is encrypted


PORTS: Final[Mapping[str, Shown]] = {
    "nats": Shown("nats", "nats", "tls", "tls-cert-file"),
    "nats-ws": Shown("websocket", "ws", "wss", "websocket-tls-cert-file"),
    "nats-http": Shown("monitoring", "http", "http"),
    "nats-https": Shown("monitoring", "https", "https"),
    "nats-route": Shown("cluster", "nats", "tls", "cluster-tls-cert-file"),
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
        path = Path(ports_dir) / f"{PROGRAM}_{pid}.ports"
        try:
            path.write_bytes(orjson.dumps(ports_of(settings, listening)))
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


def ports_of(settings: Mapping[str, Any], listening: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """By kind: the URLs of its listeners, those on all addresses with the addresses of all interfaces."""
    found: dict[str, list[str]] = {}
    for scheme, address in listening:
        if scheme in PORTS:
            shown = PORTS[scheme]
            is_encrypted = bool(shown.certificate and settings[shown.certificate])
            is_encrypted &= scheme != "nats" or not settings["allow-non-tls"]
            url_scheme = shown.encrypted if is_encrypted else shown.scheme
            found.setdefault(shown.kind, []).extend(f"{url_scheme}://{one}" for one in reached_at(address))
    return found
