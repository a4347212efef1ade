"""What many connections ask about the whole broker at once costs the workers two questions, whoever goes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.test_acceptor import FAILED, LIST, NOT_FOUND, OK, PEEK_ID, Bench, Client

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
