"""When the acceptor sleeps and wakes, and what it counts."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

from mq_shards.acceptor import engine

from tests.acceptor.bench import CANCEL, CANCELLED, GONE, NOT_FOUND, SECOND, Bench, Request


def test_run_comes_back_for_an_upcall_for_control_and_when_the_wait_is_over(bench: Bench) -> None:
    assert bench.acceptor.run(1_000_000) == 0
    client = bench.client()
    client.socket.send(b"stats\r\n")
    assert bench.acceptor.run(5 * SECOND) == 1
    (upcall,) = bench.acceptor.upcalls()
    assert (upcall.kind, upcall.conn, upcall.line) == (engine.COMMAND, client.number, b"stats")
    client.socket.close()
    bench.acceptor.reply(client.number, b"nobody is there")
    assert bench.acceptor.run(1_000_000) == 0
    ours, theirs = socket.socketpair()
    bench.acceptor.control(theirs.fileno())
    ours.send(b"x")
    assert bench.acceptor.run(5 * SECOND) == 1
    assert [upcall.kind for upcall in bench.acceptor.upcalls()] == [engine.CONTROL]
    theirs.recv(1)
    assert bench.acceptor.run(1_000_000) == 0
    ours.close()
    theirs.close()


def test_while_upcalls_are_left_run_serves_others_in_one_turn(bench: Bench) -> None:
    slow, other = bench.client(), bench.quiet_client()
    slow.socket.send(b"stats\r\n")
    assert bench.acceptor.run(5 * SECOND) == 1
    other.socket.send(b"use a\r\n")
    for _ in range(2):  # it is received in one and answered in the next
        assert bench.acceptor.run(5 * SECOND) == 1
    assert other.socket.recv(100, socket.MSG_DONTWAIT) == b"USING a\r\n"
    assert [upcall.conn for upcall in bench.acceptor.upcalls()] == [slow.number]


def test_before_run_sleeps_the_workers_have_heard_of_connections_that_are_gone(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\n")
    reserve = bench.one()
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert bench.one().kind == CANCEL
    assert bench.acceptor.run(1_000_000) == 0
    bench.worker[0].answer(reserve, CANCELLED)
    heard: list[Request] = []
    thread = threading.Timer(0.1, lambda: heard.extend(bench.take()))
    thread.start()
    bench.acceptor.run(SECOND // 5)
    thread.join()
    assert [request.kind for request in heard] == [GONE]


def test_run_wakes_for_a_reply(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n")
    request = bench.one()
    thread = threading.Timer(0.05, lambda: bench.worker[0].answer(request))
    thread.start()
    bench.acceptor.run(SECOND // 5)
    thread.join()
    assert client.received() == b"DELETED\r\n"


def test_stats_adds_up_the_board(bench: Bench) -> None:
    client = bench.quiet_client()
    assert client.talk(b"put 0 0 1 1 \r\nuse a\r\nstats\r\n") == b"BAD_FORMAT\r\nUSING a\r\n"
    # It waits until the worker has done all that this connection told it.
    bench.answer(0, bench.take(0)[-1], NOT_FOUND)
    reply = client.received().decode().split("\n")
    fields = dict(line.split(": ", 1) for line in reply if ": " in line)
    assert fields["cmd-put"] == fields["cmd-use"] == fields["cmd-stats"] == "1"
    assert fields["current-connections"] == fields["total-connections"] == "1"
    assert fields["uptime"] == "5"
    assert fields["id"] == "0123456789abcdef"
    assert fields["max-job-size"] == "65535"
    assert fields["draining"] == "false"
    assert fields["pid"] == str(os.getppid())


def test_watches_of_all_connections_together_have_a_limit(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-watches", 2)
    first, second = bench.client(), bench.client()  # each watches the default topic, which does not count
    assert first.talk(b"watch a\r\nwatch b\r\nwatch c\r\n") == b"WATCHING 2\r\nWATCHING 3\r\nOUT_OF_MEMORY\r\n"
    assert second.talk(b"watch a\r\n") == b"OUT_OF_MEMORY\r\n"
    assert first.talk(b"watch a\r\nignore b\r\n") == b"WATCHING 3\r\nWATCHING 2\r\n"
    assert second.talk(b"watch d\r\nwatch e\r\n") == b"WATCHING 2\r\nOUT_OF_MEMORY\r\n"
    first.socket.close()
    bench.turn()
    assert second.talk(b"watch e\r\nwatch f\r\nwatch g\r\n") == b"WATCHING 3\r\nOUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n"


def test_whoever_came_before_he_could_be_accepted_is_answered_at_once_and_looked_after(bench: Bench) -> None:
    """Clients of a broker that starts anew are there before it serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with socket.create_connection(listener.getsockname()) as client:
            bench.acceptor.listen(os.dup(listener.fileno()), engine.protocol_number("beanstalk"))
            client.sendall(b"stats\r\n")
            while bench.acceptor.run(SECOND) == 0 or not list(bench.acceptor.upcalls()):
                pass
            assert options_of(client.getsockname()) == (1, 1)


def options_of(peer: object) -> tuple[int, int] | None:
    """TCP_NODELAY and SO_KEEPALIVE of this process's socket that is connected to there."""
    for path in Path("/proc/self/fd").iterdir():
        if not path.is_socket():
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as sock:
            if sock.getpeername() == peer:
                nodelay = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                return nodelay, sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return None
