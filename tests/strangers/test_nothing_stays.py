"""Whoever comes, says new names and goes: no process keeps a byte of it, so that none grows over the years."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.nsq.process_memory import anonymous_bytes
from tests.pulsar.servers import PulsarServer, running
from tests.servers import children, comm_of, free_port
from tests.strangers.comings import COMINGS, Ports

PLACES: Final = 66_000  # of connections in an acceptor's tables, more than there are: each is written to at first
AT_ONCE: Final = 1000
ROUNDS: Final = 12  # memory that is used again and again may grow in the first of them
STAYS_BYTES: Final = 24  # of each coming; a message that a topic keeps takes some
SETTLES_S: Final = 3


def memory(server: PulsarServer) -> dict[str, int]:
    pids = [server.process.pid, *children(server.process.pid)]
    return {comm_of(pid): anonymous_bytes(pid) for pid in pids}


def grown(server: PulsarServer, before: dict[str, int]) -> set[str]:
    """The processes that have, when those clients that hung up are gone too."""
    until = time.monotonic() + SETTLES_S
    while True:
        now = memory(server)
        found = {one for one in before if now[one] - before[one] > STAYS_BYTES * AT_ONCE}
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def keeping(server: PulsarServer, come: Callable[[], None]) -> set[str]:
    """The processes that grow in every round."""
    found = set(memory(server))
    for _ in range(ROUNDS):
        before = memory(server)
        for _ in range(AT_ONCE):
            come()
        found &= grown(server, before)
        if not found:
            break
    return found


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_process_keeps_anything_of_who_has_gone(tmp_path: Path) -> None:
    ports = {scheme: free_port() for scheme in ("nats", "nats-route", "nats-leaf", "nsq-http", "http")}
    settings = ["nats.cluster-name=c", "nats.max-closed-clients=10"]
    listen = [f"{scheme}://127.0.0.1:{port}" for scheme, port in ports.items()]
    with running(shards=1, data_dir=tmp_path, settings=settings, listen=listen, sync="never") as server:
        ports |= {"pulsar": server.port, "nsq": server.other_port, "beanstalk": server.beanstalk_port}
        ports["pulsar-http"] = server.http_port
        numbers = itertools.count()

        def once(come: Callable[[Ports, int], None]) -> None:
            come(ports, next(numbers))

        for come in COMINGS:
            once(come)
        for _ in range(PLACES):
            socket.create_connection(("127.0.0.1", server.beanstalk_port)).close()
        before = memory(server)
        kept = {come.__name__: keeping(server, partial(once, come)) for come in COMINGS}
        assert {name: processes for name, processes in kept.items() if processes} == {}
        assert memory(server).keys() == before.keys()
