"""Several connections to each server: pools of any size, and accounts that have one for themselves."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, mixtures, started
from tests.nats.wire import Wire
from tests.servers import START_SECONDS, free_port, wait_until

ACCOUNTS = ("A", "B", "C", "D", "SYS")
CONF = """
host: 127.0.0.1
port: $PORT
http: "127.0.0.1:%d"
accounts {
    A { users: [{user: A, password: x}] }
    B { users: [{user: B, password: x}] }
    C { users: [{user: C, password: x}] }
    D { users: [{user: D, password: x}] }
    SYS { users: [{user: SYS, password: x}] }
}
system_account: SYS
cluster {
    name: xyz
    listen: "127.0.0.1:$ROUTE_PORT"
    routes: [%s]
    %s
}
"""


class Pooled(Member):
    def __init__(self, kind: str, directory: Path, routes: Sequence[str], pool: str) -> None:
        self.http = free_port()
        quoted = ", ".join(f'"{url}"' for url in routes)
        super().__init__(kind, directory, conf=CONF % (self.http, quoted, pool))

    def shown(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{what}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def routez(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.shown("routez")["routes"]
        return found

    def reload(self, pool: str, before: str) -> None:
        path = self.conf_path
        path.write_text(path.read_text().replace(before, pool))
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def user(self, account: str, said: bytes = b"") -> Wire:
        wire = Wire(self.port)
        wire.send(b'CONNECT {"verbose":false,"pedantic":false,"user":"%s","pass":"x"}\r\n' % account.encode() + said)
        wire.barrier()
        return wire


@contextlib.contextmanager
def pooled(kinds: Sequence[str], pools: Sequence[str]) -> Iterator[list[Pooled]]:
    def make(kind: str, pool: str, directory: Path, before: list[Pooled]) -> Pooled:
        return Pooled(kind, directory, [member.route_url for member in before[:1]], pool)

    with started([partial(make, *one) for one in zip(kinds, pools, strict=True)]) as members:
        yield members


def all_hear_all(members: Sequence[Pooled]) -> None:
    """In each account what is published at any server is heard at all of them, and in no other account."""
    listeners = {(m.port, account): m.user(account, b"SUB news.> 1\r\n") for m in members for account in ACCOUNTS}
    talkers = {(m.port, account): m.user(account) for m in members for account in ACCOUNTS}
    until = time.monotonic() + START_SECONDS
    for wire in listeners.values():
        wire.socket.settimeout(0.01)
    said = {f"{port}-{account}".encode() for port, account in talkers}

    def heard_all() -> bool:
        for (_, account), wire in listeners.items():
            with contextlib.suppress(TimeoutError):
                wire.receive()
            if not {one for one in said if one.endswith(b"-" + account.encode())} <= set(bodies(wire)):
                return False
        return True

    while not heard_all():
        assert time.monotonic() < until, "\n".join(member.said() for member in members)
        for (port, account), wire in talkers.items():
            body = f"{port}-{account}".encode()
            wire.send(b"PUB news.a %d\r\n%s\r\n" % (len(body), body))
        time.sleep(0.05)
    # Now that all know what is wanted: each message once.
    for (port, account), wire in talkers.items():
        body = f"last-{port}-{account}".encode()
        wire.send(b"PUB news.a %d\r\n%s\r\n" % (len(body), body))
    for (_, account), listener in listeners.items():
        wanted = Counter(f"last-{port}-{other}".encode() for port, other in talkers if other == account)

        def lasts(listener: Wire = listener) -> Counter[bytes]:
            with contextlib.suppress(TimeoutError):
                listener.receive()
            return Counter(body for body in bodies(listener) if body.startswith(b"last"))

        wait_until(lambda lasts=lasts, wanted=wanted: lasts() == wanted, "the last have come")
        assert all(body.endswith(b"-" + account.encode()) for body in bodies(listener))
    for wire in (*listeners.values(), *talkers.values()):
        wire.close()


CASES: list[Any] = [
    # Of two sizes the greater one counts; each account of its own, and the system's, has one more.
    ((NEW_REAL, OURS), ("pool_size: 5, accounts: [A, B]", "pool_size: 3, accounts: [A, B]"), 5 + 3),
    ((OURS, NEW_REAL), ("pool_size: 8, accounts: [A, B, C]", "accounts: [C, B, A]"), 8 + 4),
    ((OURS, OURS_3), ("pool_size: 7, accounts: [D]", "pool_size: 1, accounts: [D]"), 7 + 2),
    ((NEW_REAL, OURS, OURS_3), ("pool_size: 4, accounts: [A, D]",) * 3, 4 + 3),
    ((OURS, NEW_REAL), ("pool_size: -1", "pool_size: 3"), 1),
    ((OLD_REAL, OURS), ("", "pool_size: 6, accounts: [A, B]"), 1),
]
CASES = [
    pytest.param(*case, marks=mixture.marks, id=f"{mixture.id}-{case[2]}")
    for case, mixture in zip(CASES, mixtures(*(case[0] for case in CASES)), strict=True)
]


@pytest.mark.parametrize(("kinds", "pools", "count"), CASES)
def test_accounts_are_spread_over_connections_and_each_is_carried_by_one(
    kinds: tuple[str, ...], pools: tuple[str, ...], count: int
) -> None:
    with pooled(kinds, pools) as members:
        all_hear_all(members)
        others = len(members) - 1
        for member in members:
            wait_until(lambda member=member: len(member.routez()) == count * others, f"there are {count} to each")
        # It stays so: nobody tries for more, as would be tried once a second.
        for member in members:
            routes: list[dict[str, Any]] = []

            def are_old(member: Pooled = member, routes: list[dict[str, Any]] = routes) -> bool:
                routes[:] = member.routez()
                return len(routes) == count * others and not any(r["uptime"] in ("0s", "1s") for r in routes)

            wait_until(are_old, "nobody tries for more")
            accounts = Counter(route.get("account", "") for route in routes if route.get("account"))
            assert set(accounts.values()) <= {others}
        all_hear_all(members)


def shared_routes(member: Pooled) -> set[int]:
    return {route["rid"] for route in member.routez() if not route.get("account")}


def dedicated(member: Pooled) -> list[str]:
    return [route["account"] for route in member.routez() if route.get("account") in ACCOUNTS[:-1]]


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, NEW_REAL), (OURS, OURS_3, OURS)))
def test_an_account_comes_to_have_routes_of_its_own_and_gives_them_up_and_others_notice_nothing(
    kinds: tuple[str, ...],
) -> None:
    without, with_one = "pool_size: 2, accounts: [D]", "pool_size: 2, accounts: [D, A]"
    with pooled(kinds, (without,) * len(kinds)) as members:
        all_hear_all(members)
        before = [shared_routes(member) for member in members]
        listeners = [member.user("B", b"SUB there 1\r\n") for member in members]
        talkers = [member.user("B") for member in members]

        def is_known() -> bool:
            for number, talker in enumerate(talkers):
                talker.send(b"PUB there 5\r\nnow %d\r\n" % number)
                talker.barrier()
            for wire in listeners:
                wire.barrier()
            probes = {b"now %d" % n for n in range(len(talkers))}
            return all(probes <= set(bodies(wire)) for wire in listeners)

        wait_until(is_known, "it is known")
        said = 0
        for now, then in ((with_one, without), (without, with_one)):
            for member in members:
                member.reload(now, then)
                for _ in range(20):
                    for talker in talkers:
                        talker.send(b"PUB there 5\r\n%05d\r\n" % said)
                        talker.barrier()
                    said += 1
            wanted = sorted(["D"] * (len(members) - 1) + ["A"] * (len(members) - 1) * (now is with_one))
            wait_until(lambda wanted=wanted: all(sorted(dedicated(m)) == wanted for m in members), f"{wanted}")
            all_hear_all(members)
        assert [shared_routes(member) for member in members] == before
        for wire in listeners:
            wanted_of_all = {b"%05d" % n: len(members) for n in range(said)}

            def numbered(wire: Wire = wire) -> Counter[bytes]:
                wire.barrier()
                return Counter(body for body in bodies(wire) if body.isdigit())

            wait_until(lambda numbered=numbered, wanted=wanted_of_all: numbered() == wanted, "all have come, once")
        for wire in (*listeners, *talkers):
            wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS)))
def test_monitoring_shows_the_same_of_either_and_so_do_figures_that_servers_send(kinds: tuple[str, ...]) -> None:
    with pooled(kinds, ("pool_size: 2",) * 2) as members:
        all_hear_all(members)
        # Of a route whose time to an answer is not known it is left out.
        wait_until(
            lambda: all("rtt" in route or route.get("account") for m in members for route in m.routez()), "all are"
        )
        real, ours = ([{**route, "rtt": ""} for route in member.routez()] for member in members)
        assert {frozenset(route) for route in ours} == {frozenset(route) for route in real}
        figures: dict[str, Any] = {}
        asking = members[0].user("SYS")
        asking.send(b"SUB answer 1\r\n")

        def have_answered() -> bool:
            asking.socket.sendall(b"PUB $SYS.REQ.SERVER.PING answer 0\r\n\r\n")
            asking.barrier()
            with contextlib.suppress(ValueError):
                for said in map(json.loads, bodies(asking)):
                    figures[said["server"]["id"]] = said
            return len(figures) == len(members)

        wait_until(have_answered, "both have answered")
        first, second = figures.values()
        for name in ("server", "statsz"):
            assert set(first[name]) - {"jetstream"} == set(second[name]) - {"jetstream"}
        assert first["server"]["cluster"] == second["server"]["cluster"] == "xyz"
        assert first["statsz"]["active_servers"] == second["statsz"]["active_servers"] == len(members)
        routes = [said["statsz"]["routes"] for said in (first, second)]
        assert [len(rows) for rows in routes] == [3, 3]
        assert {frozenset(row) for row in routes[0]} == {frozenset(row) for row in routes[1]}
        assert {frozenset(row[way]) for rows in routes for row in rows for way in ("sent", "received")} == {
            frozenset(("msgs", "bytes"))
        }
        shown = [set(member.shown("varz")["cluster"]) for member in members]
        assert shown[0] - {"urls"} == shown[1] - {"urls"}
        asking.close()
