"""Accounts that a server of a cluster does not know yet: what others' clients want in them counts when it does."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, bodies, configured, mixtures
from tests.nats.operators import A, accounts, conf, introduce, resolver
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.ready import readable
from tests.servers import wait_until

CLUSTER = """
host: 127.0.0.1
port: $PORT
authorization { timeout: 60 }
cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT" }
authorization: {timeout: 60}
"""


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,), (OURS_3,)))
def test_what_was_wanted_in_an_account_before_it_is_fetched_is_wanted_then(kinds: tuple[str]) -> None:
    account = A.public.encode()
    with resolver(accounts()) as (url, asked), configured(kinds[0], conf(CLUSTER, f"URL({url})", {})) as member:
        wire = RouteWire.joined(member.route_port)
        wire.send(b"RS+ %s news\r\nRS+ %s work q 2\r\nRS+ NOBODY news\r\n" % (account, account))
        wire.barrier()
        assert A.public not in asked
        clients = [let_in(member.port, f"u{number}") for number in range(6)]
        for client in clients:
            heard: list[bytes] = []

            def is_wanted(client: Wire = client, heard: list[bytes] = heard) -> bool:
                client.send(b"PUB news 2\r\nhi\r\nPUB work 2\r\nho\r\n")
                client.barrier()
                heard += wire.barrier()
                return b"RMSG %s work | q 2" % account in heard

            wait_until(is_wanted, "both are wanted")
            assert b"RMSG %s news 2" % account in heard
        wire.send(b"RS- %s news\r\nRS- %s work q\r\n" % (account, account))
        wire.barrier()
        for client in clients:
            wait_until(lambda client=client: not is_heard(client, wire), "nothing is wanted")
            client.close()
        wire.close()


@pytest.mark.parametrize("kinds", [*mixtures((OURS_3, NEW_REAL)), *mixtures((OURS, OURS_3), long=True)])
def test_what_is_asked_about_ones_own_account_all_servers_answer(kinds: tuple[str, str]) -> None:
    first = CLUSTER + USERS + "server_name: first\n"
    with configured(kinds[0], first) as one:
        routes = f'routes: ["nats://127.0.0.1:{one.route_port}"]'
        second = first.replace("name: xyz", f"name: xyz, {routes}").replace("server_name: first", "server_name: second")
        with configured(kinds[1], second) as other:
            wires = [Wire(member.port) for member in (one, one, other, other)]
            for wire, user in zip(wires, "abab", strict=True):
                wire.send(b'CONNECT {"verbose":false,"user":"%c","pass":"x"}\r\n' % ord(user))
                wire.barrier()
            for wire in (wires[0], wires[2]):
                for question, shown in (("ACCOUNT.PING.CONNZ", "connections"), ("ACCOUNT.PING.STATZ", "account_statz")):
                    found = answers(wire, f"$SYS.REQ.{question}", 2)
                    assert [row["server"]["name"] for row in found] == ["first", "second"]
                    rows = [row for one in found for row in one["data"][shown]]
                    assert len(rows) == 2, "of each server one, of this account"
            for wire in wires:
                wire.close()


USERS = """
accounts {
  A { users: [ {user: a, password: x} ] }, B { users: [ {user: b, password: x} ] }
  SYS { users: [ {user: sys, password: x} ] }
}
system_account: SYS
"""
REPLIES: Final = itertools.count()


def answers(wire: Wire, subject: str, count: int) -> list[dict[str, Any]]:
    """As many as there should be, asked until the servers know each other."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        reply = b"answer.%d" % next(REPLIES)
        wire.heard.data, wire.asked = b"", 0
        wire.socket.sendall(b"SUB %b 1\r\nPUB %b %b 0\r\n\r\n" % (reply, subject.encode(), reply))
        while len(bodies(wire)) < count and readable([wire.socket], 1.0):
            wire.receive()
        wire.socket.sendall(b"UNSUB 1\r\n")
        wire.barrier()
        found[:] = sorted(map(json.loads, bodies(wire)), key=lambda one: str(one["server"]["name"]))
        return len(found) >= count

    wait_until(are_there, "all answer")
    return found


def let_in(port: int, name: str) -> Wire:
    """The resolver may be late, on a busy machine: who is refused for that comes again."""
    found: list[Wire] = []

    def is_let_in() -> bool:
        found.append(Wire(port))
        introduce(found[-1], A.user(name))
        found[-1].barrier()
        return not found[-1].heard.closed

    wait_until(is_let_in, f"{name} is let in")
    return found[-1]


def is_heard(client: Wire, wire: RouteWire) -> bool:
    client.send(b"PUB news 2\r\nhi\r\nPUB work 2\r\nho\r\n")
    client.barrier()
    return any(said.startswith(b"RMSG " + A.public.encode()) for said in wire.barrier())
