"""Accounts with very many imports: they are replaced in time that grows with them and no faster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.nats.admission import Admission
from mq_shards.acceptor.protocols.nats.cycles import covers
from mq_shards.acceptor.protocols.nats.shares import Account, Lines, ShareError, stream_line

from tests.nats.clusters import OURS, OURS_3, configured
from tests.nats.engine_client import NATS, Client, opened
from tests.nats.route_wire import RouteWire
from tests.nats.test_gone_accounts import acceptors, turn

CLUSTER = "cluster { name: xyz, listen: 127.0.0.1:$ROUTE_PORT }\n"


def imports_of(importer: int, count: int, to: str) -> bytes:
    """The lines of an account that gives `importer` so many streams."""
    return "".join(stream_line(importer, {"subject": f"s.{n}", "to": f"{to}.{n}"}) for n in range(count)).encode()


def cost_of_replacing(count: int) -> float:
    """CPU seconds for other imports in place of as many."""
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        before, after = imports_of(importer, count, "x"), imports_of(importer, count, "y")
        engine.configure(NATS, "shares", exporter, before)
        began = time.thread_time()
        engine.configure(NATS, "shares", exporter, after)
        return time.thread_time() - began


def test_ten_times_the_imports_take_no_hundred_times_as_long() -> None:
    few, many = 2000, 20_000
    assert min(cost_of_replacing(many) for _ in range(2)) < 40 * max(cost_of_replacing(few) for _ in range(2))


def cost_of_subscribing(count: int) -> float:
    """CPU seconds for subscriptions in an account that imports so many streams."""
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        engine.configure(NATS, "shares", exporter, imports_of(importer, count, "x"))
        client = Client(engine)
        engine.call(client.conn, "account", importer)
        client.say(b"".join(b"SUB x.%d %d\r\n" % (n, n) for n in range(1000)) + b"PING\r\n")
        began = time.thread_time()
        while not client.hear().endswith(b"PONG\r\n"):
            client.turn()
        return time.thread_time() - began


def test_who_subscribes_pays_for_no_import_of_other_subjects() -> None:
    assert min(cost_of_subscribing(20_000) for _ in range(2)) < 5 * max(cost_of_subscribing(1000) for _ in range(2))


def turns_until_pong(client: Client, said: bytes) -> int:
    client.heard = b""
    client.say(said + b"PING\r\n")
    return turns_until_heard(client)


def turns_until_heard(client: Client) -> int:
    turns = 0
    while not client.hear().endswith(b"PONG\r\n"):
        client.turn()
        turns += 1
    return turns


def test_a_pattern_of_very_many_imports_is_looked_for_in_pieces() -> None:
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        engine.configure(NATS, "shares", exporter, imports_of(importer, 10_000, "x"))
        clients = [Client(engine) for _ in range(3)]
        for client in clients:
            engine.call(client.conn, "account", importer)
        clients[0].say(b"SUB x.> 1\r\nPING\r\n")
        clients[1].turn()
        clients[1].say(b"PING\r\n")
        clients[2].say(b"SUB x.> 1\r\nPING\r\n")  # the same pattern: it is not known yet
        turns = [turns_until_heard(client) for client in (clients[1], clients[0], clients[2])]
        assert turns[0] < 4 and min(turns[1:]) > 4
        assert turns_until_pong(clients[0], b"UNSUB 1\r\n") < 4
        assert turns_until_pong(clients[0], b"".join(b"SUB x.* g%d %d\r\n" % (n, n) for n in range(10))) > 40


def test_a_subscriber_waits_until_other_acceptors_have_looked_for_its_pattern_too() -> None:
    with acceptors(2) as engines:
        for engine in engines:
            exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
            engine.configure(NATS, "shares", exporter, imports_of(importer, 10_000, "x"))
        client = Client(engines[1])
        engines[1].call(client.conn, "account", importer)
        turn(engines)
        client.say(b"SUB x.> 1\r\nPING\r\n")
        turns = 0
        while not client.hear():
            turn(engines[:1], 1)
            turns += 1
            turn(engines[1:], 20)  # it has long looked for it itself
        assert turns > 4 and client.heard == b"PONG\r\n"


@pytest.mark.parametrize("group", [b"", b"g "])
def test_who_gives_up_a_pattern_of_very_many_imports_does_so_in_pieces(group: bytes) -> None:
    """One pattern at a time, also when the connection is closed; and others are answered meanwhile."""
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        engine.configure(NATS, "shares", exporter, imports_of(importer, 10_000, "x"))
        client, other = Client(engine), Client(engine)
        for each in (client, other):
            engine.call(each.conn, "account", importer)
        turns_until_pong(client, b"".join(b"SUB %s %s%d\r\n" % (s, group, n) for n, s in enumerate(PATTERNS)))
        client.heard = b""
        client.say(b"UNSUB 0\r\nUNSUB 1\r\nPING\r\n")
        client.turn()
        assert turns_until_pong(other, b"") < 4
        assert turns_until_heard(client) >= 8
        client.socket.close()
        client.turn()
        assert turns_until_pong(other, b"") < 4
        assert turns_until_pong(other, b"SUB x.5.> 1\r\n") >= 8  # behind one pattern of the other's, not behind all
        assert turns_until_pong(other, b"SUB x.6.> 2\r\n") < 20


PATTERNS = (b"x.*", b"x.>", b"*.>", b"*.1", b"*.2", b"*.3", b"*.4", b"*.5")


def test_a_group_that_nobody_is_in_any_more_is_not_chosen_though_its_imports_are_still_looked_at() -> None:
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        engine.configure(NATS, "shares", exporter, imports_of(importer, 10_000, "x"))
        stays, goes, publisher = (Client(engine) for _ in range(3))
        engine.call(goes.conn, "account", importer)
        for each in (stays, publisher):
            engine.call(each.conn, "account", exporter)
        turns_until_pong(stays, b"SUB s.* g 1\r\n")
        turns_until_pong(goes, b"SUB x.* g 1\r\n")
        for said in (b"UNSUB 1\r\n", b"SUB x.* g 1\r\nUNSUB 1\r\nSUB x.* g 1\r\n"):
            publisher.heard = goes.heard = stays.heard = b""
            goes.say(said + b"PING\r\n")
            publisher.say(b"".join(b"PUB s.%d 0\r\n\r\n" % n for n in range(9_900, 10_000)) * 4 + b"PING\r\n")
            turns_until_heard(publisher)
            assert turns_until_pong(stays, b"") < 4
            while not goes.hear().endswith(b"PONG\r\n"):
                goes.turn()
            assert stays.heard.count(b"MSG ") + goes.heard.count(b"MSG ") == 400
        for each in (stays, goes, publisher):
            each.heard = b""
        publisher.say(b"PUB s.1 0\r\n\r\n" * 200 + b"PING\r\n")
        turns_until_heard(publisher)
        counts = []
        for each in (stays, goes):
            each.say(b"PING\r\n")
            turns_until_heard(each)
            counts.append(each.heard.count(b"MSG "))
        assert sum(counts) == 200 and min(counts) > 50


def test_who_goes_while_a_pattern_is_looked_for_leaves_nothing_behind() -> None:
    """Nor do imports that are replaced meanwhile, and what was subscribed to is found in the new ones."""
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        engine.configure(NATS, "shares", exporter, imports_of(importer, 5000, "x"))
        gone, stays, publisher = (Client(engine) for _ in range(3))
        for client in (gone, stays):
            engine.call(client.conn, "account", importer)
        engine.call(publisher.conn, "account", exporter)
        gone.say(b"SUB x.* g 1\r\n")
        gone.turn()
        gone.socket.close()
        gone.turn()
        stays.say(b"SUB x.* g 1\r\n")
        stays.turn()
        engine.configure(NATS, "shares", exporter, imports_of(importer, 6000, "x"))
        assert turns_until_pong(stays, b"") > 0
        publisher.say(b"".join(b"PUB s.%d 0\r\n\r\n" % n for n in range(6000)) + b"PING\r\n")
        turns_until_heard(publisher)
        while stays.heard.count(b"MSG ") < 6000:
            stays.turn()
            stays.hear()
        assert turns_until_pong(stays, b"UNSUB 1\r\n") > 0
        publisher.say(b"PUB s.1 0\r\n\r\nPING\r\n")
        publisher.heard = b""
        turns_until_heard(publisher)
        assert b"MSG" not in stays.hear()


@pytest.mark.parametrize("kind", [OURS, OURS_3])
@pytest.mark.parametrize("verbose", [False, True])
def test_when_a_pattern_of_very_many_imports_is_answered_servers_know_it(kind: str, verbose: bool) -> None:
    many, count = 3000, 9  # clients are at all acceptors, as good as surely
    imports = ", ".join(f'{{stream: {{account: A, subject: "s.{n}"}}, to: "x.{n % count}.{n}"}}' for n in range(many))
    accounts = f'A {{ exports: [{{stream: "s.>"}}] }}, B {{ users: [{{user: b, password: b}}], imports: [{imports}] }}'
    with configured(kind, CLUSTER + f"accounts {{ {accounts} }}\nno_auth_user: b\n") as server:
        route = RouteWire.joined(server.route_port)
        clients = [server.client() for _ in range(count)]
        for k, client in enumerate(clients):
            client.heard.data = b""
            said = b'CONNECT {"verbose":true}\r\nSUB x.%d.> 1\r\n' if verbose else b"SUB x.%d.> 1\r\nPING\r\n"
            client.send(said % k)
            while client.heard.data.count(b"+OK\r\n" if verbose else b"PONG\r\n") < (2 if verbose else 1):
                client.receive()
            assert {b"RS+ A s.%d" % n for n in range(k, many, count)} <= set(route.barrier())
        for client in clients:
            client.close()
        left = {b"A s.%d" % n for n in range(many)}
        while left:
            left -= {line.removeprefix(b"RS- ") for line in route.barrier()}
        route.close()


@pytest.mark.parametrize("to", ["x.$1.$2", "x.>", "x.a.b", "y.$2.$1", "x.$1.b"])
def test_what_is_wanted_of_an_import_is_found_however_it_is_written(to: str) -> None:
    """A group of the importer is told by its exporter's message, whichever of the two came first."""
    subject = {"x.a.b": "s.a.b", "x.>": "s.>", "x.$1.b": "s.*.b"}.get(to, "s.*.*")
    source = {"subject": subject, "to": to.replace("$1", "*").replace("$2", "*") if to[0] == "x" else to}
    wanted = [b"x.a.b", b"x.*.b", b"x.>", b"*.*.*", b"y.b.a", b"y.b.*", b"z.a.b", b"x.a.c", b"x.a"]
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        line = stream_line(importer, source)
        for before in (True, False):
            engine.configure(NATS, "shares", exporter, line.encode() if before else b"")
            client, publisher = Client(engine), Client(engine)
            engine.call(client.conn, "account", importer)
            engine.call(publisher.conn, "account", exporter)
            client.say(b"".join(b"SUB %s g%d %d\r\n" % (one, n, n) for n, one in enumerate(wanted)))
            client.turn()
            engine.configure(NATS, "shares", exporter, line.encode())
            publisher.say(b"PUB s.a.b 0\r\n\r\n")
            for _ in range(4):
                client.turn()
            heard = {int(one.split()[2]) for one in client.hear().split(b"\r\n") if one.startswith(b"MSG ")}
            made = b"y.b.a" if to[0] == "y" else b"x.a.b"
            assert heard == {n for n, one in enumerate(wanted) if covers(one.decode(), made.decode())}
            client.socket.close()
            publisher.socket.close()
            client.turn()


def account(name: str, *imports: str, exports: str = "s.>") -> dict[str, Any]:
    taken = [{"kind": "stream", "account": one, "subject": "s.x", "to": f"{one}.x"} for one in imports]
    return {"name": name, "exports": [{"kind": "stream", "subject": exports}], "imports": taken}


def test_accounts_are_looked_at_again_if_they_changed_or_import_from_those_that_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: set[str] = set()
    learn = Lines.learn

    def noted(lines: Lines, one: Account, by_name: Mapping[str, Account]) -> set[str]:
        looked.add(one["name"])
        return learn(lines, one, by_name)

    monkeypatch.setattr(Lines, "learn", noted)
    with opened() as engine:
        admission = Admission(engine, NATS)

        def shared(*accounts: Account) -> set[str]:
            looked.clear()
            admission.share("", accounts)
            return set(looked)

        a, b, c = account("A"), account("B", "A"), account("C", "B")
        assert shared(a, b, c) == {"A", "B", "C"}
        assert shared(account("A"), account("B", "A"), account("C", "B")) == set()
        assert shared(a, account("B"), c) == {"B"}
        assert shared(account("A", exports="s.*"), account("B"), c) == {"A"}
        assert shared(a, account("B", exports="s.x"), c) == {"A", "B", "C"}
        assert shared(a, b) == {"A", "B"}  # one is gone
        with pytest.raises(ShareError):
            shared(account("A", exports="t"), b)


@pytest.mark.parametrize("kind", ["imports", "mappings"])
def test_while_very_many_are_applied_clients_go_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = 3000
    paused = 0

    def pause(engine: Engine) -> None:
        nonlocal paused
        paused += 1
        real(engine)

    real = Engine.pause
    monkeypatch.setattr(Engine, "pause", pause)
    taken = [{"kind": "stream", "account": "A", "subject": f"s.{n}", "to": f"to.{'x' * 100}.{n}"} for n in range(many)]
    more: dict[str, Any] = (
        {"imports": taken}
        if kind == "imports"
        else {"mappings": {f"a.{n}": [{"subject": f"b.{'x' * 100}.{n}", "weight": 100}] for n in range(many)}}
    )
    with opened() as engine:
        client = Client(engine)
        client.say(b"PING\r\n")
        Admission(engine, NATS).share("", [account("A"), {**account("B"), **more}])
        assert client.hear() == b"PONG\r\n"
    assert paused >= many + 2  # between two, and between what the codec takes at once
