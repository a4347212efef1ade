"""Connections that take their output slowly or not at all: `write_timeout` says which of them a write deadline ends."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.route_wire import RouteWire
from tests.nats.wire import far_away
from tests.servers import free_port, wait_until

DEADLINE_S, SHORT_S = 1.0, 0.3
BODY = b"x" * 60_000
MESSAGES = 130  # 8 MB: more than all sockets take
ALL_S = 40.0  # longer than it takes to read all of that slowly

KINDS = mixtures((OURS,), (OURS_3,), (NEW_REAL,))


def conf_of(policy: str, within: str = "", deadline_s: float = SHORT_S) -> str:
    said = f'write_deadline: "{int(deadline_s * 1000)}ms"\n' + (f"write_timeout: {policy}\n" if policy else "")
    text = 'listen: "127.0.0.1:$PORT"\nserver_name: it\n'
    return text + (f'{within} {{ name: xyz, listen: "127.0.0.1:$ROUTE_PORT"\n{said} }}' if within else said)


class FarRoute(RouteWire):
    def opened(self) -> socket.socket:
        return far_away(self.port)


def far_client(server: Member) -> socket.socket:
    found = far_away(server.port)
    found.sendall(b'CONNECT {"verbose":false}\r\nSUB load 1\r\nPING\r\n')
    heard = b""
    while b"PONG\r\n" not in heard:
        heard += found.recv(4096)
    return found


def far_route(server: Member) -> socket.socket:
    wire = FarRoute.joined(server.route_port)
    wire.send(b"RS+ $G load\r\n")
    wire.barrier()
    return wire.socket


def publish(server: Member) -> None:
    talker = server.client()
    talker.send((b"PUB load %d\r\n%s\r\n" % (len(BODY), BODY)) * MESSAGES)
    talker.barrier()
    talker.close()


def received(found: socket.socket, most: int = 1 << 20) -> int:
    try:
        return len(found.recv(most))
    except ConnectionError:
        return 0


def dripped(found: socket.socket, seconds: float) -> tuple[int, bool]:
    """Reads a little each moment, for so long: how much came, and whether that was all."""
    until, total = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        taken = received(found, 2000)
        total += taken
        if not taken:
            return total, True
        time.sleep(0.01)
    return total, False


def is_held(ours: int, servers: int) -> bool:
    """Whether the server's side of the connection between these ports is open. Its end is not heard of behind what
    waits. From the same port of ours another may be connected elsewhere."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    ends = f":{servers:04X}", f":{ours:04X}"
    return any((row[1][-5:], row[2][-5:]) == ends and row[3] == "01" for row in rows)


def rest(found: socket.socket, total: int) -> int:
    """Reads all messages, or what comes until the connection ends."""
    while total < len(BODY) * MESSAGES and (taken := received(found)):
        total += taken
    return total


Opening = Callable[[Member], socket.socket]
CLIENT, ROUTE = (far_client, ""), (far_route, "cluster")


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("policy", ["", "close"])
def test_a_client_that_has_taken_only_some_in_time_is_cut_off(kinds: tuple[str], policy: str) -> None:
    with configured(kinds[0], conf_of(policy)) as server:
        client = far_client(server)
        publish(server)
        total, ended = dripped(client, ALL_S)
        assert ended and total < len(BODY) * MESSAGES
        client.close()


@pytest.mark.parametrize("kinds", KINDS)
def test_a_route_is_cut_off_if_it_is_to_be(kinds: tuple[str]) -> None:
    with configured(kinds[0], conf_of("close", "cluster")) as server:
        route = far_route(server)
        publish(server)
        total, ended = dripped(route, ALL_S)
        assert ended and total < len(BODY) * MESSAGES
        route.close()


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("opening", "within", "policy"), [(*CLIENT, "retry"), (*ROUTE, "")])
def test_who_takes_something_in_each_deadline_has_all_in_the_end(
    kinds: tuple[str], opening: Opening, within: str, policy: str
) -> None:
    with configured(kinds[0], conf_of(policy, within, DEADLINE_S)) as server:
        slow = opening(server)
        publish(server)
        total, ended = dripped(slow, 2.2 * DEADLINE_S)
        assert not ended
        assert rest(slow, total) >= len(BODY) * MESSAGES
        slow.close()


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("opening", "within"), [CLIENT, ROUTE])
def test_who_takes_nothing_is_cut_off_whatever_is_said(kinds: tuple[str], opening: Opening, within: str) -> None:
    with configured(kinds[0], conf_of("retry", within)) as server:
        slow = opening(server)
        ports = slow.getsockname()[1], slow.getpeername()[1]
        publish(server)
        wait_until(lambda: not is_held(*ports), "the server has closed it")
        assert rest(slow, 0) < len(BODY) * MESSAGES
        slow.close()


@pytest.mark.parametrize("kinds", mixtures((OURS,), (NEW_REAL,)))
def test_monitoring_shows_what_is_not_the_default(kinds: tuple[str]) -> None:
    http = free_port()
    for outside, inside in (("retry", "close"), ("default", "default")):
        text = f'{conf_of("", "cluster")}\nhttp: "127.0.0.1:{http}"\nwrite_timeout: {outside}\n'
        with configured(kinds[0], text.replace('ms"\n }', f'ms"\nwrite_timeout: {inside} }}')) as server:
            with urllib.request.urlopen(f"http://127.0.0.1:{http}/varz") as answer:
                found = json.load(answer)
            shown = [row.get("write_timeout") for row in (found, found["cluster"])]
            assert shown == ([None, None] if outside == "default" else [outside, inside]), server.said()
