"""A client that will say no more is served to the end, and one that has gone is forgotten everywhere."""

from __future__ import annotations

import socket
import time

from tests.acceptor.bench import (
    CANCEL,
    CANCELLED,
    CLOSE,
    DELETE,
    GONE,
    NOT_FOUND,
    OPEN,
    RESERVE,
    SECOND,
    WATCH,
    Bench,
    Client,
)
from tests.acceptor.test_reserve_over_workers import start_waiting


def test_a_reserve_of_a_client_that_will_say_no_more_ends_and_what_it_said_is_done(bench: Bench) -> None:
    bench.acceptor.set("idle-topics", 0)
    client = bench.quiet_client()
    client.send(b"reserve\r\nreserve\r\ndelete 5\r\nwatch x\r\nreserve-with-timeout 3\r\n")
    first, second, delete = bench.take()
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert [(r.kind, r.slot) for r in bench.take()] == [(CANCEL, first.slot)]
    bench.answer(0, first, CANCELLED)
    assert [(r.kind, r.slot) for r in bench.take()] == [(CANCEL, second.slot)]
    bench.answer(0, second, CANCELLED)
    bench.answer(0, delete)
    opened, watch, third, cancel = bench.take()
    assert (opened.kind, watch.kind, third.kind, cancel.kind) == (OPEN, WATCH, RESERVE, CANCEL)
    assert cancel.slot == third.slot
    assert not client.is_closed
    bench.answer(0, third, CANCELLED)
    assert [r.kind for r in bench.take()] == [GONE, CLOSE]
    assert client.received() == b"TIMED_OUT\r\nTIMED_OUT\r\nDELETED\r\nWATCHING 2\r\nTIMED_OUT\r\n"
    assert client.is_closed


def test_a_gather_of_a_client_that_will_say_no_more_ends(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\n")
    here, there = start_waiting(trio, 0, 1)
    watcher.socket.shutdown(socket.SHUT_WR)
    trio.turn()
    assert trio.one(0).kind == trio.one(1).kind == CANCEL
    trio.answer(0, here, CANCELLED)
    trio.answer(1, there, CANCELLED)
    assert watcher.received() == b"TIMED_OUT\r\n"
    assert watcher.is_closed


def test_a_client_that_will_say_no_more_does_not_wait_for_a_worker_that_is_back(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\n")
    bench.take()
    bench.acceptor.peer_gone(0)
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    bench.worker[0].attach()
    reserve, cancel = bench.take()[-2:]
    assert (reserve.kind, cancel.kind, cancel.slot) == (RESERVE, CANCEL, reserve.slot)
    bench.answer(0, reserve, CANCELLED)
    assert client.received() == b"TIMED_OUT\r\n"


def test_what_a_client_said_before_it_went_is_done_though_it_takes_no_answer(bench: Bench) -> None:
    """An acceptor has not received all of it when the socket refuses the first answers."""
    client = bench.quiet_client()
    client.socket.send((b"x" * 200 + b"\r\n") * 500 + b"delete 5\r\n" * 3)
    client.socket.close()
    bench.turn()
    deletes = bench.take()
    assert [(request.kind, request.id) for request in deletes] == [(DELETE, 5)] * 3
    for delete in deletes:
        bench.answer(0, delete)
    bench.turn()
    assert bench.acceptor.totals().connections == 0


def test_what_is_half_said_at_the_end_is_dropped(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\nput 0 0 1 10\r\nhalf")
    delete = bench.one()
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert not client.is_closed
    bench.answer(0, delete)
    assert client.received() == b"DELETED\r\n"
    assert client.is_closed
    assert [request.kind for request in bench.take()] == [GONE]


def test_quit_ends_a_connection_after_what_came_before_it(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\nquit and so on\r\ndelete 2\r\n")
    bench.answer(0, bench.one())
    assert client.received() == b"DELETED\r\n"
    assert client.is_closed
    assert [request.kind for request in bench.take()] == [GONE]


def test_a_client_that_has_gone_does_not_keep_the_loop_busy(bench: Bench) -> None:
    """It is hung up while its input is not wanted, which epoll reports whatever is asked for."""
    client = bench.quiet_client()
    client.send(b"stats\r\n" + b"delete 1\r\n" * 10)
    asked = bench.one()
    client.socket.close()
    bench.turn()
    before = time.process_time()
    bench.acceptor.run(SECOND // 10)
    assert time.process_time() - before < 0.05, "it slept"
    bench.answer(0, asked, NOT_FOUND)
    bench.turn()
    assert GONE in [request.kind for request in bench.take()]
