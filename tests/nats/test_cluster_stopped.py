"""A server that is stopped loses nothing that it was sent, or that its clients had published, whichever acceptor they
are connected to."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable

import pytest

from tests.nats.clusters import OURS, OURS_3, Member, bodies, configured
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.ready import readable
from tests.servers import comm_of, is_alive, wait_until

CONF = "cluster { name: xyz, listen: 127.0.0.1:$ROUTE_PORT }"
EVERYWHERE = 9  # so many clients are at all acceptors, as good as surely
STOPPED_AT = 20


def stop(server: Member) -> None:
    assert server.process is not None
    server.process.terminate()


def hear(route: RouteWire, clients: list[Wire]) -> None:
    """What has come by now."""
    for wire in clients:
        wire.receive_what_is_there()
    while not route.closed and readable([route.socket], 0):
        route.receive()


def by_publisher(heard: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """In the order in which they came, but for the first."""
    found: dict[bytes, list[bytes]] = {}
    for who, _, number in (body.partition(b"-") for body in heard):
        if int(number) > 0:
            found.setdefault(who, []).append(number)
    return found


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_what_another_server_sends_until_it_hears_of_a_stop_reaches_members_of_all_acceptors(kind: str) -> None:
    with configured(kind, CONF) as server:
        members = [server.client(b"SUB q group 1\r\n") for _ in range(EVERYWHERE)]
        route = RouteWire.joined(server.route_port)
        sent = []
        stop(server)
        while not route.closed:
            sent.append(b"%d" % len(sent))
            route.send(b"RMSG $G q | group %d\r\n%b\r\n" % (len(sent[-1]), sent[-1]))
            hear(route, members)
        route.close()
        for wire in members:
            while not wire.heard.closed:
                wire.receive()
        assert sorted((body for wire in members for body in bodies(wire)), key=int) == sent


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_what_is_published_while_a_server_stops_reaches_all_or_none(kind: str) -> None:
    with configured(kind, CONF) as server:
        listeners = [server.client(b"SUB s 1\r\n") for _ in range(EVERYWHERE)]
        publishers = [server.client() for _ in range(EVERYWHERE)]
        route = RouteWire.joined(server.route_port)
        route.send(b"RS+ $G s\r\n")
        while not all(b"%d-000000" % who in route.said for who in range(EVERYWHERE)):  # known at all acceptors
            for who, wire in enumerate(publishers):
                wire.send(b"PUB s 8\r\n%d-000000\r\n" % who)
            route.receive()
        number = 0
        while not all(wire.heard.closed for wire in (*listeners, *publishers)):
            number += 1
            if number == STOPPED_AT:
                stop(server)
            for who, wire in enumerate(publishers):
                with contextlib.suppress(OSError):
                    wire.socket.sendall(b"".join(b"PUB s 8\r\n%d-%06d\r\n" % (who, number) for _ in range(2)))
            hear(route, [*listeners, *publishers])
            if route.closed:
                route.close()
        told = by_publisher(re.findall(rb"RMSG \$G s 8\r\n(\S+)\r\n", route.said))
        assert told
        for wire in listeners:
            assert by_publisher(bodies(wire)) == told


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_members_get_what_is_sent_until_it_is_known_that_lame_duck_mode_ends_them(kind: str) -> None:
    settings = ["--set", "nats.lame-duck-grace-period=2s", "--set", "nats.lame-duck-duration=2050ms"]
    with configured(kind, CONF, settings) as server:
        members = [server.client(b"SUB q group 1\r\nSUB s 2\r\n") for _ in range(EVERYWHERE)]
        route = RouteWire.joined(server.route_port)
        assert server.process is not None
        server.process.send_signal(signal.SIGUSR2)
        while b"RS- $G q group\r\n" not in route.said:  # behind smaller and smaller weights
            route.receive()
        assert b"RS- $G s\r\n" not in route.said
        route.send(b"RMSG $G q | group 7\r\ncrossed\r\n")
        while not all(wire.heard.closed for wire in members):
            hear(route, members)
        assert [body for wire in members for body in bodies(wire)] == [b"crossed"]
        route.close()


def test_a_stop_waits_for_all_that_hang_together_and_not_for_each() -> None:
    with configured(OURS_3, CONF) as server:
        route = RouteWire.joined(server.route_port)  # it does not close its side
        deaf = [server.client(b"SUB s 1\r\n") for _ in range(EVERYWHERE)]  # they read nothing
        deaf[0].send(b"PUB s 1000000\r\n%b\r\n" % bytes(1_000_000) * 24)
        pids = {comm_of(pid): pid for pid in server.pids()}
        os.kill(pids["mq-acceptor-2"], signal.SIGSTOP)
        began = time.monotonic()
        stop(server)
        wait_until(lambda: not is_alive(pids["mq-acceptor-0"]), "the acceptor with the routes has ended")
        assert time.monotonic() - began < 3.9  # of these four each would be waited for for 1 s
        os.kill(pids["mq-acceptor-2"], signal.SIGCONT)
        route.close()
