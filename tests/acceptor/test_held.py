"""While more replies are there than a turn takes in, what a connection is owed leaves together, and soon."""

from __future__ import annotations

from tests.acceptor.bench import Bench, Client, Request

REPLIES_PER_TURN = 1024  # csrc/acceptor/bounds.h
HELD_TURNS = 8
DELETED = b"DELETED\r\n"


def asked(bench: Bench, clients: int, depth: int) -> tuple[list[Client], list[list[Request]]]:
    """Clients that have asked for so many deletes each, and those requests."""
    found = [bench.quiet_client() for _ in range(clients)]
    requests = []
    for client in found:
        client.send(b"".join(b"delete %d\r\n" % bench.id_at(0) for _ in range(depth)))
        requests.append(bench.take())
        assert len(requests[-1]) == depth
    return found, requests


def answer_in_turn(bench: Bench, requests: list[list[Request]]) -> None:
    """The first of each, then the second of each, ...: none of them is heard yet."""
    for row in zip(*requests, strict=True):
        for request in row:
            bench.worker[0].answer(request)


def test_replies_that_are_there_leave_in_one_send(bench: Bench) -> None:
    clients, requests = asked(bench, 32, 64)
    assert 2 * REPLIES_PER_TURN == 32 * 64
    answer_in_turn(bench, requests)
    bench.turn(1)
    assert {client.received() for client in clients} == {b""}
    bench.turn(1)
    assert {client.received() for client in clients} == {64 * DELETED}


def test_who_is_owed_no_more_does_not_wait_for_the_others(bench: Bench) -> None:
    (done,), (requests_done,) = asked(bench, 1, 1)
    clients, requests = asked(bench, 32, 64)
    bench.worker[0].answer(requests_done[0])
    answer_in_turn(bench, requests)
    bench.turn(1)
    assert done.received() == DELETED
    assert {client.received() for client in clients} == {b""}


def test_nobody_waits_for_more_than_some_turns(bench: Bench) -> None:
    clients, requests = asked(bench, 40, 250)
    assert (HELD_TURNS + 1) * REPLIES_PER_TURN < 40 * 250
    answer_in_turn(bench, requests)
    for _ in range(HELD_TURNS):
        bench.turn(1)
        assert {client.received() for client in clients} == {b""}
    bench.turn(1)
    first = [client.received() for client in clients]
    assert all(first)
    bench.turn(3)
    assert {some + client.received() for some, client in zip(first, clients, strict=True)} == {250 * DELETED}


def test_much_output_does_not_wait(bench: Bench) -> None:
    _, requests = asked(bench, 32, 64)
    reader = bench.quiet_client()
    reader.send(b"reserve-job %d\r\n" % bench.id_at(0) * 5)
    asked_for = bench.take()
    assert len(asked_for) == 5
    body = b"x" * 20_000
    for request in asked_for[:4]:
        bench.worker[0].answer(request, id=bench.id_at(0), body=body)
    answer_in_turn(bench, requests)
    bench.turn(1)
    assert reader.received() == 4 * (b"RESERVED %d 20000\r\n%s\r\n" % (bench.id_at(0), body)), "it is owed one more"
