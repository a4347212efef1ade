"""Accounts that nobody uses any more are gone, and their numbers and memory are free for others."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.nats.shares import service_line
from mq_shards.csrc._core import lib
from mq_shards.ringbuf import ring

from tests.nats.engine_client import NATS, Client
from tests.nats.servers import NatsServer, running
from tests.nats.wire import Wire
from tests.servers import wait_until

AT_ONCE = 500
ROUNDS = 140  # more accounts in all than an acceptor has numbers for
MOST_NUMBERS = 3 * AT_ONCE  # of one round some may still be in use when the next begins
MOST_GROWTH = 4 << 20  # of 35,000 accounts, which have 4 KB each while they are there
LIMITED = 5000  # more than there are places on the board


@contextlib.contextmanager
def acceptors(count: int) -> Iterator[list[Engine]]:
    """Acceptors that know each other."""
    board = os.memfd_create("board")
    assert lib.board_format(board)
    wakes = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(count)]
    engines = [Engine(index, 1, 1, board, wake) for index, wake in enumerate(wakes)]
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    rings = {pair: ring.create(1 << 18, epoch=1) for pair in pairs}
    for one, other in pairs:
        engines[one].mesh(other, rings[one, other], rings[other, one], wakes[other])
    turn(engines)
    yield engines
    for engine in engines:
        engine.close()
    for fd in (board, *wakes, *rings.values()):
        os.close(fd)


def turn(engines: list[Engine], turns: int = 6) -> None:
    for engine in engines * turns:
        engine.turn(1)
        list(engine.upcalls())


def memory() -> int:
    rows = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return int(rows["Pss_Anon"].split()[0]) << 10


def number_of(engine: Engine, name: str) -> int:
    """0: there is no such account."""
    return engine.configure(NATS, "find-account", 0, name.encode())


def service_of(account: int) -> bytes:
    """The line of who imports a service of that account."""
    export = {"kind": "service", "subject": "ask", "response": "single", "threshold_ns": 0}
    return service_line(account, export, {"kind": "service", "subject": "ask", "to": "please"}).encode()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_accounts_come_and_go_as_often_as_they_like(count: int) -> None:
    with acceptors(count) as engines:
        largest = before = 0
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                before = memory()
            names = [f"{number}.{one}" for one in range(AT_ONCE)]
            numbers = [[engine.configure(NATS, "account", 0, name.encode()) for name in names] for engine in engines]
            largest = max(largest, *(max(some) for some in numbers))
            exporter, importer = numbers[0][:2]
            engines[0].configure(NATS, "shares", importer, service_of(exporter))
            asked, asker = Client(engines[-1]), Client(engines[0])
            for client, account in ((asked, numbers[-1][0]), (asker, importer)):
                client.engine.call(client.conn, "account", account)
            asked.say(b"SUB ask 1\r\n")
            turn(engines)
            asker.say(b"SUB in 1\r\nPUB please in 2\r\nhi\r\n")
            turn(engines)
            reply = re.fullmatch(rb"MSG ask 1 (\S+) 2\r\nhi\r\n", asked.hear())
            assert reply is not None
            asked.say(b"PUB " + reply[1] + b" 2\r\nyo\r\n")
            turn(engines)
            assert asker.hear() == b"MSG in 1 2\r\nyo\r\n"
            engines[0].configure(NATS, "shares", importer)
            for engine, some in zip(engines, numbers, strict=True):
                for one in some:
                    engine.configure(NATS, "let-account-go", one)
            turn(engines)
            if number % 2:  # the other half stay connected until the next round has begun
                asked.socket.close()
                asker.socket.close()
        assert largest <= MOST_NUMBERS
        assert memory() - before < MOST_GROWTH
        turn(engines)
        assert [[number_of(engine, name) for name in names] for engine in engines] == [[0] * AT_ONCE] * count


def test_an_account_stays_while_anything_uses_it() -> None:
    """And what is done in it meanwhile is as ever, also where nothing else uses it."""
    with acceptors(2) as engines:
        here, there = (engine.configure(NATS, "account", 0, b"A") for engine in engines)
        listener, publisher = Client(engines[0]), Client(engines[1])
        listener.engine.call(listener.conn, "account", here)
        for engine, number in zip(engines, (here, there), strict=True):
            engine.configure(NATS, "let-account-go", number)
        listener.say(b"SUB a 1\r\n")
        turn(engines)
        there = number_of(engines[1], "A")  # it has been told what the listener wants
        publisher.engine.call(publisher.conn, "account", there)
        publisher.say(b"PUB a 1\r\nx\r\n")
        turn(engines)
        assert listener.hear() == b"MSG a 1 1\r\nx\r\n"
        publisher.socket.close()
        turn(engines)
        assert number_of(engines[1], "A") == there
        listener.socket.close()
        turn(engines)
        assert [number_of(engine, "A") for engine in engines] == [0, 0]


def test_an_answer_does_not_reach_the_account_that_has_the_number_now() -> None:
    with acceptors(1) as (engine,):
        service, asking = (engine.configure(NATS, "account", 0, name) for name in (b"service", b"asking"))
        engine.configure(NATS, "shares", asking, service_of(service))
        asked, asker = Client(engine), Client(engine)
        for client, account in ((asked, service), (asker, asking)):
            engine.call(client.conn, "account", account)
        asked.say(b"SUB ask 1\r\n")
        asker.say(b"PUB please in 2\r\nhi\r\n")
        turn([engine])
        reply = asked.hear().split()[3]
        asker.socket.close()
        engine.configure(NATS, "shares", asking)
        engine.configure(NATS, "let-account-go", asking)
        turn([engine])
        assert engine.configure(NATS, "account", 0, b"other") == asking
        other = Client(engine)
        engine.call(other.conn, "account", asking)
        other.say(b"SUB > 1\r\n")
        turn([engine])
        asked.say(b"PUB " + reply + b" 2\r\nyo\r\n")
        turn([engine])
        assert other.hear() == b""


def test_random_accounts_are_there_exactly_while_they_are_used() -> None:
    """By a client of either acceptor, or because Python may use it there."""
    random_ = random.Random(7)
    with acceptors(2) as engines:
        kept: list[dict[bytes, int]] = [{}, {}]
        clients: list[tuple[Client, bytes]] = []
        names = [b"account %d" % one for one in range(40)]
        for step in range(1500):
            which = random_.randrange(2)
            engine, name, choice = engines[which], random_.choice(names), random_.randrange(4)
            if choice == 0:
                kept[which][name] = engine.configure(NATS, "account", 0, name)
            elif choice == 1 and (number := kept[which].pop(name, 0)):
                engine.configure(NATS, "let-account-go", number)
            elif choice == 2 and len(clients) < 50 and name in kept[which]:
                client = Client(engine)
                engine.call(client.conn, "account", kept[which][name])
                client.say(b"SUB a.%d 1\r\n" % step if step % 3 else b"")
                clients.append((client, name))
            elif clients:
                clients.pop(random_.randrange(len(clients)))[0].socket.close()
            turn(engines, 8)
            wanted = {name for some in kept for name in some} | {name for _, name in clients}
            there = [{name for name in names if number_of(engine, name.decode())} for engine in engines]
            for which, engine in enumerate(engines):
                used = kept[which].keys() | {name for client, name in clients if client.engine is engine}
                assert used <= there[which] <= wanted
        for client, _ in clients:
            client.socket.close()
        for engine, some in zip(engines, kept, strict=True):
            for number in some.values():
                engine.configure(NATS, "let-account-go", number)
        turn(engines, 8)
        assert not any(number_of(engine, name.decode()) for engine in engines for name in names)


def test_accounts_with_a_limit_have_it_over_all_acceptors_however_many_there_were() -> None:
    with acceptors(2) as engines:
        clients = [Client(engine) for engine in engines]
        for one in range(LIMITED):
            for engine, client in zip(engines, clients, strict=True):
                number = engine.configure(NATS, "account", 0, b"%d" % one)
                engine.call(client.conn, "account", number)
                engine.configure(NATS, "let-account-go", number)
            assert [engine.call(client.conn, "join", 1) for engine, client in zip(engines, clients, strict=True)] == [
                True, False,
            ]  # fmt: skip
            turn(engines, 2)


@contextlib.contextmanager
def read_anew(path: Path, count: int) -> Iterator[NatsServer]:
    write(path, 0)
    with running(count, arguments=["--nats-config", str(path)]) as server:
        yield server


def write(path: Path, number: int) -> None:
    """Accounts that are not in the file before or after, and one that stays."""
    one, other = f"A{number}", f"B{number}"
    path.write_text(
        f"accounts {{ STAYS {{ users: [ {{user: stays, password: p}} ] }}\n"
        f"{one} {{ users: [ {{user: one, password: p}} ], exports: [ {{service: ask}}, {{stream: news}} ] }}\n"
        f"{other} {{ users: [ {{user: other, password: p}} ], mappings: {{ old: new }}, "
        f"imports: [ {{service: {{account: {one}, subject: ask}}}}, "
        f"{{stream: {{account: {one}, subject: news}}}} ] }} }}\n"
        f"max_payload: {1000 + number}\n"
    )


def client_of(server: NatsServer, user: bytes) -> Wire:
    wire = Wire(server.port)
    wire.send(b'CONNECT {"verbose":false,"pedantic":false,"user":"%s","pass":"p"}\r\n' % user)
    wire.barrier()
    return wire


@pytest.mark.parametrize("count", [1, 2])
def test_who_stays_hears_everything_while_others_are_read_anew(count: int, tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    with read_anew(path, count) as server:
        stays = [client_of(server, b"stays") for _ in range(2)]
        stays[0].send(b"SUB a 1\r\n")
        stays[0].barrier()
        for number in range(8):
            one, other = client_of(server, b"one"), client_of(server, b"other")
            other.send(b"SUB in 1\r\nSUB news 2\r\nSUB new 3\r\n")
            one.send(b"SUB ask 1\r\n")
            for wire in (one, other):
                wire.barrier()
            other.send(b"PUB ask in 2\r\nhi\r\nPUB old 0\r\n\r\n")
            other.barrier()
            one.barrier()
            (reply,) = re.findall(rb"MSG ask 1 (\S+) 2\r\nhi\r\n", one.heard.data)
            one.send(b"PUB %s 2\r\nyo\r\nPUB news 0\r\n\r\n" % reply)
            one.barrier()
            other.barrier()
            heard = re.findall(rb"MSG (\S+) \d", other.heard.data)
            assert sorted(heard) == [b"in", b"new", b"news"]
            stays[1].send(b"PUB a 0\r\n\r\n")
            write(path, number + 1)
            os.kill(server.process.pid, signal.SIGHUP)
            wait_until(lambda want=1001 + number: is_read(server, want), "the file was read anew")
        for wire in stays:
            wire.barrier()
        assert stays[0].heard.data.count(b"MSG a 1 0\r\n\r\n") == 8


def is_read(server: NatsServer, max_payload: int) -> bool:
    """At all acceptors, of which the kernel chooses one."""
    said = []
    for _ in range(4):
        with contextlib.closing(Wire(server.port)) as wire:
            said.append(json.loads(wire.info[5:])["max_payload"])
    return all(one == other for one, other in pairwise([*said, max_payload]))
