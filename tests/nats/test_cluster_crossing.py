"""Two servers that connect to each other at the same moment may each close what the other keeps."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Final

import pytest

from tests.nats.clusters import OURS, OURS_3, configured
from tests.nats.route_wire import INFO, RouteWire, line

TIMEOUT_S: Final = 30.0
EVERY_S: Final = 1.0  # between two attempts for a server that is away
ATTEMPTS: Final = 5  # on a machine with other work one may come late


def gap(listening: socket.socket, member_port: int, number: int) -> float:
    """Both connections are there, each side closes the one that it heard of second: how long nobody is connected."""
    theirs, _ = listening.accept()
    ours = RouteWire(member_port)
    info = {**INFO, "host": "127.0.0.1", "port": listening.getsockname()[1]}
    ours.join(f"{number:05}", info)
    ours.barrier()
    theirs.settimeout(TIMEOUT_S)
    theirs.sendall(line("INFO", {**info, "server_id": ours.server_id}))
    with contextlib.suppress(ConnectionError):
        while theirs.recv(1 << 16):
            pass
    theirs.close()
    assert ours.barrier() == [] and not ours.closed
    began = time.monotonic()
    ours.close()
    listening.settimeout(TIMEOUT_S)
    again, _ = listening.accept()
    lasted = time.monotonic() - began
    again.close()
    return lasted


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_servers_that_have_closed_both_of_their_connections_are_connected_again_at_once(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        routes = f"routes: [nats-route://127.0.0.1:{listening.getsockname()[1]}]"
        conf = "listen: 127.0.0.1:$PORT\ncluster {\nname: xyz\npool_size: -1\nlisten: 127.0.0.1:$ROUTE_PORT\n"
        conf += routes + "\n}\n"
        with configured(kind, conf) as member:
            listening.settimeout(TIMEOUT_S)
            gaps = []
            while len(gaps) < ATTEMPTS and min(gaps, default=EVERY_S) > EVERY_S * 0.9:
                gaps.append(gap(listening, member.route_port, len(gaps)))
            assert min(gaps) < EVERY_S * 0.9, gaps
