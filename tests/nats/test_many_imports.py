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

from tests.nats.engine_client import NATS, Client, opened


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
    turns = 0
    while not client.hear().endswith(b"PONG\r\n"):
        client.turn()
        turns += 1
    return turns


def test_patterns_of_which_each_is_of_very_many_imports_are_taken_in_turns_of_their_own() -> None:
    with opened() as engine:
        exporter, importer = engine.configure(NATS, "account", 0, b"A"), engine.configure(NATS, "account", 0, b"B")
        engine.configure(NATS, "shares", exporter, imports_of(importer, 5000, "x"))
        client = Client(engine)
        engine.call(client.conn, "account", importer)
        assert turns_until_pong(client, b"".join(b"SUB x.* g%d %d\r\n" % (n, n) for n in range(10))) >= 10
        assert turns_until_pong(client, b"".join(b"UNSUB %d\r\n" % n for n in range(10))) >= 10


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
