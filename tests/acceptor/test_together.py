"""What many connections ask about the whole broker at once costs the workers two questions, whoever goes meanwhile."""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Iterator

import pytest

from tests.acceptor.bench import FAILED, LIST, NOT_FOUND, OK, PEEK_ID, Bench, Client, Request

TUBES = b"OK 22\r\n---\n- default\n- later\n\r\n"


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def asking(bench: Bench, count: int, line: bytes = b"list-tubes\r\n") -> list[Client]:
    clients = [bench.quiet_client() for _ in range(count)]
    for client in clients:
        client.send(line)
    return clients


def test_who_asks_before_the_workers_are_asked_is_answered_with_the_others(bench: Bench) -> None:
    (first, *others) = asking(bench, 30)
    asked = bench.one()
    assert (asked.kind, asked.conn) == (LIST, first.number)
    bench.answer(0, asked, OK, body=b"default\n")
    assert first.received() == b"OK 14\r\n---\n- default\n\r\n"
    assert not any(client.received() for client in others), "they asked later: there may be more by now"
    again = bench.one()
    assert (again.kind, again.conn) == (LIST, others[0].number)
    bench.answer(0, again, OK, body=b"default\nlater\n")
    assert {client.received() for client in others} == {TUBES}
    assert bench.take() == []
    assert bench.counters()["list-tubes"] == 30


def test_stats_are_asked_for_as_often(bench: Bench) -> None:
    clients = asking(bench, 20, b"stats\r\n")
    for _ in range(2):
        asked = bench.one()
        assert asked.kind == PEEK_ID
        bench.answer(0, asked, NOT_FOUND)
    found = [client.received() for client in clients]
    assert all(reply.startswith(b"OK ") and b"cmd-stats: 20\n" in reply for reply in found)
    assert bench.take() == []


def gone(bench: Bench, *clients: Client) -> None:
    """Cut off: that a client has closed is not looked for before it is answered."""
    for client in clients:
        bench.acceptor.close_connection(client.number)
        bench.beanstalk.closed(client.number)
    bench.turn()


def test_who_goes_takes_nobodys_answer_along(bench: Bench) -> None:
    first, second, third, fourth = asking(bench, 4)
    bench.one()
    gone(bench, first)  # it was asked as this one
    asked = bench.one()
    assert asked.conn == second.number
    gone(bench, second, third)
    asked = bench.take()[-1]  # the third was asked as, too
    assert asked.conn == fourth.number
    bench.answer(0, asked, OK, body=b"default\nlater\n")
    assert fourth.received() == TUBES
    # And when all have gone, the next one is asked for.
    alone = asking(bench, 1)[0]
    bench.one()
    gone(bench, alone)
    (last,) = asking(bench, 1)
    bench.answer(0, bench.one(), OK, body=b"default\nlater\n")
    assert last.received() == TUBES


def test_all_are_told_of_a_failure(bench: Bench) -> None:
    clients = asking(bench, 3)
    for _ in range(2):
        bench.answer(0, bench.one(), FAILED)
    assert {client.received() for client in clients} == {b"INTERNAL_ERROR\r\n"}


def unread(clients: list[Client]) -> int:
    return sum(struct.unpack("i", fcntl.ioctl(client.socket, termios.FIONREAD, bytes(4)))[0] for client in clients)


def test_tubes_come_in_pieces_and_are_held_once_for_all_who_asked(bench: Bench) -> None:
    names = [[b"tube-%d-%d" % (piece, n) for n in range(1000)] for piece in range(20)]
    leader, *clients = asking(bench, 101)
    bench.answer(0, bench.one(), OK)
    assert leader.received() == b"OK 14\r\n---\n- default\n\r\n"
    for n, piece in enumerate(names):
        asked = bench.one()
        assert (asked.kind, asked.id) == (LIST, n and n + 1)
        body = b"".join(b"%s\n" % name for name in piece)
        bench.worker[0].answer(asked, OK, id=n + 2 if n < 19 else 0, body=body if n != 7 else b"default\n" + body)
        bench.turn(1)
        bench.turn(1)
        if n == 11:
            assert not any(client.received() for client in clients)
            held = bench.acceptor.buffered_bytes()
            bench.turn()
    assert 0 < unread(clients) < (4 << 20) + len(clients) * (64 << 10) + (1 << 20), "in one turn"
    assert bench.acceptor.buffered_bytes() < 8 * held, "of hundred clients that have not read it yet"
    bench.turn(20)
    assert all(unread([client]) > 2 * (64 << 10) for client in clients), "each until its socket takes no more"
    yaml = b"---\n- default\n" + b"".join(b"- %s\n" % name for piece in names for name in piece)
    reply = b"OK %d\r\n%s\r\n" % (len(yaml), yaml)
    for client in clients:
        received = b""
        while len(received) < len(reply):
            received += client.received()
            bench.turn()
        assert received == reply
    assert bench.acceptor.buffered_bytes() == 0


def test_tubes_may_come_in_more_pieces_than_questions_may_be_under_way_while_a_worker_is_late(duo: Bench) -> None:
    pieces = 300
    (client,) = asking(duo, 1)
    late = duo.take(0)

    def page(worker: int, asked: list[Request]) -> None:
        for n in range(pieces):
            for request in asked:
                duo.answer(worker, request, OK, id=n + 2 if n < pieces - 1 else 0, body=b"%d\n" % n)
            asked = duo.take(worker)

    page(1, duo.take(1))
    page(0, late)
    page(1, duo.take(1))
    received = b""
    while not received.endswith(b"\n\r\n") and (more := client.received()):
        received += more
        duo.turn()
    assert received.count(b"\n- ") == 1 + 2 * pieces


def test_who_goes_half_way_leaves_nothing_behind(bench: Bench) -> None:
    for others in (1, 0):
        clients = asking(bench, 1 + others)
        bench.answer(0, bench.one(), OK, id=5, body=b"early\n")
        asked = bench.one()
        gone(bench, clients[0])
        for again in bench.take():
            if again.kind == LIST:
                assert again.id == 0, "asked anew, as somebody else"
                bench.answer(0, again, OK, body=b"late\n")
        bench.answer(0, asked, OK, body=b"nobody's\n")
        if others:
            assert clients[1].received() == b"OK 21\r\n---\n- default\n- late\n\r\n"
        assert bench.acceptor.buffered_bytes() == 0
