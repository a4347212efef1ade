"""What a server that joins is told: it is much, and goes on while clients come to want the same."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
from pathlib import Path

from tests.nats.clusters import OURS, OURS_3, Member, cluster
from tests.nats.route_wire import INFO, NUMBERS, RouteWire
from tests.nats.wire import Wire
from tests.servers import START_SECONDS, STOP_SECONDS, free_port
from tests.starting import begin

CLIENTS = 9  # of any of the acceptors
MANY = 6000  # subjects of each, to keep a connection busy
FEW = 200  # that others come to want too
LONG = b"p" * 180
TOLD = re.compile(rb"RS\+ \$G ([bm])\.(\d+)\.(\d+)")


class Listener:
    """A server that reads no faster than it is asked to."""

    def __init__(self, member: Member) -> None:
        self._wire = RouteWire(member.route_port)
        self._wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self._wire.join(f"{next(NUMBERS):05}")
        self._rest = b""
        self.told: dict[tuple[bytes, int, int], None] = {}  # in this order

    def read(self) -> None:
        data = self._rest + self._wire.socket.recv(1 << 16)
        whole, end, self._rest = data.rpartition(b"\r\n")
        if b"PING\r\n" in whole + end:
            self._wire.send(b"PONG\r\n")
        self.told |= {(m[1], int(m[2]), int(m[3])): None for m in TOLD.finditer(whole)}

    def close(self) -> None:
        self._wire.close()


def play(member: Member) -> bool:
    """Whether there were clients at several acceptors."""
    clients = [
        member.client(
            b"".join(b"SUB b.%d.%d.%s %d\r\n" % (k, i, LONG, i) for i in range(MANY))
            + b"".join(b"SUB m.%d.%d x%d\r\n" % (k, i, i) for i in range(FEW))
        )
        for k in range(CLIENTS)
    ]
    for client in clients:
        client.barrier()
    listener = Listener(member)
    while len(listener.told) < 1500:
        listener.read()
    # It is told first what clients of the acceptor want that has its connection.
    first = {k for _, k, _ in listener.told}
    while len(listener.told) < 3000:
        listener.read()
    here = clients[min(first)]
    others = [k for k in range(CLIENTS) if not any(k == told for _, told, _ in listener.told)]
    here.send(b"".join(b"SUB m.%d.%d y%d.%d\r\n" % (k, i, k, i) for k in others for i in range(FEW)))
    here.barrier()
    wanted = {(b"m", k, i) for k in range(CLIENTS) for i in range(FEW)}
    until = time.monotonic() + 60
    while not wanted <= listener.told.keys() and time.monotonic() < until:
        try:
            listener.read()
        except TimeoutError:
            break
    missing = wanted - listener.told.keys()
    assert not missing, f"{len(missing)} were never told"
    listener.close()
    for client in clients:
        client.close()
    return len(others) > 0


def test_what_a_client_comes_to_want_while_a_server_is_told_of_others_that_want_it_is_told() -> None:
    with cluster((OURS_3,)) as (member,):
        assert play(member) or play(member)


def test_servers_that_come_before_ours_serves_are_told_where_clients_reach_ours(tmp_path: Path) -> None:
    port, route_port = free_port(), free_port()
    listens = ["-a", "127.0.0.1", "-p", str(port), "--cluster", f"nats://127.0.0.1:{route_port}"]
    with (tmp_path / "stderr").open("wb") as sink:
        # A program that has to load its modules, which leaves time to come early.
        process = begin(["as", "nats-server", *listens], sink, as_program=True)
    early: list[socket.socket] = []
    try:
        until = time.monotonic() + START_SECONDS
        while not early or not select.select(early, [], [], 0.005)[0]:
            assert time.monotonic() < until
            with contextlib.suppress(ConnectionRefusedError):
                early.append(socket.create_connection(("127.0.0.1", route_port), timeout=STOP_SECONDS))
        client = Wire(port)
        client.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        for one in early:
            assert b'"connect_urls":["127.0.0.1:%d"]' % port in one.makefile("rb").readline()
        client.barrier()
        client.close()
    finally:
        for one in early:
            one.close()
        process.terminate()
        process.wait(STOP_SECONDS)


def test_a_client_is_not_told_of_a_server_that_says_nowhere_to_connect_to() -> None:
    with cluster([OURS]) as (member,):
        client = Wire(member.port)
        client.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        client.barrier()
        client.barrier()
        told = client.heard.data.count(b"INFO {")
        wire = RouteWire.joined(member.route_port, INFO)
        wire.send(b"RS+ $G heard\r\n")
        wire.barrier()
        client.send(b"PUB heard 1\r\nx\r\n")
        while b"RMSG $G heard 1" not in wire.said:
            wire.receive()
        client.barrier()
        assert client.heard.data.count(b"INFO {") == told, client.heard
        client.close()
        wire.close()
