"""Many commands in one send, in any pieces, on many connections: replies come whole, in order, to whom they belong."""

from __future__ import annotations

import os
import random
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from tests.beanstalk.replies import OWN_FIELDS, Comparison, Reply, take_replies
from tests.beanstalk.wire import Wire, unique_tube
from tests.model.beanstalk import Model
from tests.servers import Server

CONNECTIONS = 1000


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    with Wire(server) as wire:
        yield wire


def mixed_script(seed: int, commands: int) -> bytes:
    """Commands that need no job's id, over a dozen tubes. The tubes' names are this script's own."""
    draw = random.Random(seed)
    stem = unique_tube("mixed")
    tubes = [f"{stem}-{n}".encode() for n in range(12)]
    script = [b"use %s\r\nwatch %s\r\nignore default\r\n" % (tubes[0], tubes[0])]
    for n in range(commands):
        tube = draw.choice(tubes)
        body = b"%d\r\n%s" % (n, draw.randbytes(draw.choice([0, 1, 30, 3000])).replace(b"put", b"PUT"))
        script.append(
            draw.choice(
                [
                    b"put %d %d 1000 %d\r\n%s\r\n"
                    % (draw.choice([0, 5, 1023, 1024]), draw.choice([0, 0, 900]), len(body), body),
                    b"put %d 0 1000 %d\r\n%s\r\n" % (draw.randrange(3), len(body), body),
                    b"use %s\r\n" % tube, b"watch %s\r\n" % tube, b"ignore %s\r\n" % tube,
                    b"reserve-with-timeout 0\r\n",
                    b"reserve-with-timeout 0\r\n", b"peek-ready\r\n", b"peek-delayed\r\n", b"peek-buried\r\n",
                    b"kick %d\r\n" % draw.randrange(3), b"stats-tube %s\r\n" % tube, b"list-tube-used\r\n",
                    b"list-tubes-watched\r\n", b"pause-tube %s %d\r\n" % (tube, draw.choice([0, 0, 800])),
                    b"nonsense\r\n",
                    b"put 0 0 0 2\r\nabcd", b"delete 99999999999\r\n", b"put 0 0 0 70000\r\n%s\r\n" % (b"z" * 70000),
                ]
            )
        )  # fmt: skip
    for tube in tubes:
        script.append(b"watch %s\r\npause-tube %s 0\r\nuse %s\r\nkick 100000\r\nkick 100000\r\n" % ((tube,) * 3))
    return b"".join(script)


def send_beside(wire: Wire, pieces: list[bytes]) -> threading.Thread:
    """Sends from a thread, so that replies can be read meanwhile."""

    def send_all() -> None:
        for piece in pieces:
            wire.send(piece)

    thread = threading.Thread(target=send_all)
    thread.start()
    return thread


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cut", ["whole", "random pieces", "small pieces"])
def test_hundreds_of_mixed_commands_are_answered_as_if_sent_one_by_one(wire: Wire, seed: int, cut: str) -> None:
    script = mixed_script(seed, 400 if cut != "small pieces" else 60)
    pieces = [script]
    if cut != "whole":
        draw = random.Random(seed)
        most = 3000 if cut == "random pieces" else 40
        pieces = []
        at = 0
        while at < len(script):
            size = draw.randint(1, most)
            pieces.append(script[at : at + size])
            at += size
    model = Model(command_ns=1)
    conn = model.connect()
    model.send(conn, script)
    expected = take_replies(bytearray(model.received(conn)))
    thread = send_beside(wire, pieces)
    comparison = Comparison(ignored_fields=OWN_FIELDS | {"pause-time-left"})
    for reply in expected:
        comparison.check(reply, wire.reply())
    thread.join()
    wire.send(b"quit\r\n")
    assert wire.is_closed()
    del wire.buffer[:]


def test_reserves_sent_ahead_are_answered_in_order_with_bodies_of_many_tubes(wire: Wire) -> None:
    tubes = [unique_tube("ahead") for _ in range(64)]
    wire.watch_only(*tubes)
    put_in = b"use %s\r\nput %d 0 60 %d\r\n%s\r\n"
    script = b"".join(put_in % (t.encode(), n % 7, len(t), t.encode()) for n, t in enumerate(tubes))
    wire.send(script + b"reserve\r\n" * len(tubes) + b"list-tube-used\r\n")
    replies = wire.replies(3 * len(tubes) + 1)
    put = [r.number for r in replies[1 : 2 * len(tubes) : 2]]
    wanted = [job for _, job in sorted((n % 7, job) for n, job in enumerate(put))]
    assert [r.number for r in replies[2 * len(tubes) : -1]] == wanted
    assert [r.body for r in replies[2 * len(tubes) : -1]] == [tubes[put.index(job)].encode() for job in wanted]
    assert replies[-1].word == b"USING"
    wire.send(b"".join(b"delete %d\r\n" % job for job in put))
    assert wire.replies(len(put)) == [Reply(b"DELETED")] * len(put)


def test_a_pause_of_no_length_is_over_for_the_command_behind_it(wire: Wire) -> None:
    tube = unique_tube("paused")
    wire.use(tube)
    wire.watch_only(tube)
    wire.send(b"put 0 0 60 1\r\nx\r\npause-tube %s 0\r\nreserve-with-timeout 0\r\n" % tube.encode())
    assert [reply.word for reply in wire.replies(3)] == [b"INSERTED", b"PAUSED", b"RESERVED"]


def test_a_command_sees_what_those_before_it_on_the_connection_did(wire: Wire) -> None:
    """Also when they are on different shards, and all are under way at once."""
    stem = unique_tube("causal")
    for n in range(60):
        tube = f"{stem}-{n}".encode()
        wire.send(
            b"use %s\r\nwatch %s\r\nput 1 0 60 1\r\na\r\nput 0 0 60 1\r\nb\r\npeek-ready\r\nreserve\r\npeek-ready\r\n"
            b"reserve\r\npeek-ready\r\nstats-tube %s\r\n" % (tube, tube, tube)
        )
    for _ in range(60):
        replies = wire.replies(10)
        a, b = replies[2].number, replies[3].number
        assert [(r.word, r.body) for r in replies[4:9]] == [
            (b"FOUND", b"b"), (b"RESERVED", b"b"), (b"FOUND", b"a"), (b"RESERVED", b"a"), (b"NOT_FOUND", None),
        ]  # fmt: skip
        assert b"current-jobs-reserved: 2\n" in (replies[9].body or b"")
        wire.send(b"delete %d\r\ndelete %d\r\n" % (a, b))
    assert wire.replies(120) == [Reply(b"DELETED")] * 120


def test_a_thousand_connections_are_served(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < CONNECTIONS + 200:
        if hard < CONNECTIONS + 200:
            pytest.skip("too few open files are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + 200, hard))
    tube = unique_tube("thousand")
    wires = [Wire(server) for _ in range(CONNECTIONS)]
    for n, wire in enumerate(wires):
        wire.send(b"use %s\r\nwatch %s\r\nput %d 0 600 4\r\n%04d\r\nreserve\r\n" % (tube.encode(), tube.encode(), n, n))
    taken = [wire.replies(4)[3] for wire in wires]
    assert sorted(r.body for r in taken if r.body is not None) == [b"%04d" % n for n in range(CONNECTIONS)]
    for wire, reply in zip(wires, taken, strict=True):
        wire.send(b"delete %d\r\nquit\r\n" % reply.number)
    for wire in wires:
        assert wire.reply() == Reply(b"DELETED")
        assert wire.is_closed()
        wire.close()


@pytest.mark.heavy
def test_a_client_that_does_not_read_disturbs_nobody_and_loses_nothing(server: Server) -> None:
    tube = unique_tube("slow").encode()
    commands, chunk = 100_000, 500
    with Wire(server) as slow, Wire(server) as brisk:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        slow.send(b"use %s\r\n" % tube)
        assert slow.reply().word == b"USING"
        done = threading.Event()

        def send_all() -> None:
            slow.socket.settimeout(60)
            for at in range(0, commands, chunk):
                slow.socket.sendall(b"".join(b"pause-tube %s 0\r\nuse %s.%d\r\n" % (tube, tube, n % 1000)
                                             for n in range(at // 2, (at + chunk) // 2)))  # fmt: skip
            done.set()

        sender = threading.Thread(target=send_all, daemon=True)
        sender.start()
        until = time.monotonic() + 0.7
        rounds: list[float] = []
        brisk.use(unique_tube())
        brisk.watch_only(brisk.ask("list-tube-used").split()[1].decode())
        while time.monotonic() < until:
            began = time.monotonic()
            job = brisk.put(os.urandom(100))
            assert brisk.reserve()[0] == job
            assert brisk.ask(f"delete {job}") == b"DELETED"
            rounds.append(time.monotonic() - began)
        assert statistics.median(rounds) < 0.1
        assert max(rounds) < 5, "which is no busy machine"
        for n in range(commands // 2):
            first = slow.reply(30).line
            assert first in (b"PAUSED", b"NOT_FOUND"), first
            assert slow.reply(30).line == b"USING %s.%d" % (tube, n % 1000)
        sender.join(10)
        assert done.is_set()


def test_a_client_that_never_reads_can_be_cut_and_its_jobs_come_back(server: Server) -> None:
    tube = unique_tube("deaf")
    body = bytes(60_000)
    with Wire(server) as control:
        control.use(tube)
        control.watch_only(tube)
        jobs = {control.put(body) for _ in range(100)}
        deaf = Wire(server)
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        deaf.watch_only(tube)
        deaf.send(b"reserve\r\n" * 100)
        control.wait_for_stats_tube(tube, current_watching=2)
        time.sleep(0.1)
        deaf.close()
        control.wait_for_stats_tube(tube, current_watching=1, current_jobs_ready=100)
        assert {control.reserve()[0] for _ in jobs} == jobs
        for job in jobs:
            assert control.ask(f"delete {job}") == b"DELETED"
