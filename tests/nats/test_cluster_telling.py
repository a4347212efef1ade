"""What a server that joins is told: it is much, and goes on while clients come to want the same."""

from __future__ import annotations

import re
import socket
import time

from tests.nats.clusters import OURS_3, Member, cluster
from tests.nats.route_wire import NUMBERS, RouteWire

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
