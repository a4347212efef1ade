"""Large bodies pass an acceptor in pieces: nobody waits for copies, and a worker is asked to take a few at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import pytest
from mq_shards.csrc._core import lib

from tests.acceptor.bench import CLOSE, FAILED, GONE, OK, OPEN, PUBLISH, RESERVE, TOUCH, Bench, Client, Request

MIB: Final = 1 << 20
LARGE: Final = 9 * MIB  # more than LARGE_BODY_BYTES, csrc/acceptor/bounds.h
ASKED_AT_ONCE: Final = 32 * MIB // LARGE
BODY: Final = bytes(range(251)) * (LARGE // 251)


@pytest.fixture
def large() -> Iterator[Bench]:
    bench = Bench(ring_bytes=4 * MIB)
    bench.acceptor.set("beanstalk.max-job-size", 64 * MIB)
    yield bench
    bench.close()


def pour(bench: Bench, client: Client, data: bytes) -> None:
    """All of it, a turn whenever the socket is full."""
    rest = memoryview(data)
    for _ in range(10_000):
        with contextlib.suppress(BlockingIOError):
            while rest:
                rest = rest[client.socket.send(rest[: 1 << 16]) :]
        if not rest:
            return
        bench.turn(1)
    raise AssertionError("it is not taken")


def put(bench: Bench, client: Client, body: bytes) -> None:
    pour(bench, client, b"put 1 0 60 %d\r\n" % len(body) + body + b"\r\n")
    bench.turn(20)


def lies_there(bench: Bench) -> int:
    """What the acceptor has put into the ring, and the worker has not taken."""
    return int(lib.channel_counters(bench.worker[0]._channel).in_bytes)


def drain(bench: Bench, count: int, turns: int = 200) -> list[Request]:
    requests: list[Request] = []
    for _ in range(turns):
        requests += bench.take()
        if len(requests) >= count:
            break
        bench.turn(1)
    return requests


def test_a_body_moves_into_the_ring_a_piece_a_turn_with_half_of_it_left_to_others(large: Bench) -> None:
    client, other = large.quiet_client(), large.quiet_client()
    data = b"put 1 0 60 %d\r\n" % len(BODY) + BODY + b"\r\n"
    pour(large, client, data[:-8])
    large.turn(20)
    assert lies_there(large) == 0
    client.socket.send(data[-8:])
    most, before = 0, 0
    for _ in range(8):
        large.turn(1)
        most, before = max(most, lies_there(large) - before), lies_there(large)
    assert 0 < most <= MIB and before <= 2 * MIB
    other.send(b"touch 8\r\n")
    requests = drain(large, 2)
    assert [r.kind for r in requests] == [TOUCH, PUBLISH], "it has overtaken what was not there yet"
    assert requests[1].body == BODY
    assert large.acceptor.buffered_bytes() == 0


def test_what_its_connection_asks_behind_it_comes_behind_it_and_so_does_its_end(large: Bench) -> None:
    client = large.quiet_client()
    put(large, client, BODY)
    client.send(b"touch 8\r\n")
    client.socket.close()
    large.turn()
    assert [(r.kind, len(r.body)) for r in drain(large, 3)] == [(PUBLISH, len(BODY)), (TOUCH, 0), (GONE, 0)]
    assert large.acceptor.buffered_bytes() == 0


def test_nothing_overtakes_the_end_of_a_number_that_a_body_on_its_way_bears(large: Bench) -> None:
    """A topic's number is bound to another name as soon as the worker has heard that it stands for nothing."""
    client, other = large.quiet_client(b"first"), large.quiet_client()
    put(large, client, BODY)
    client.send(b"use default\r\nwatch default\r\nignore first\r\n")
    for n in range(2000):  # names that were used last stay bound
        other.send(b"use u%d\r\n" % n)
    requests = drain(large, 1 << 30)
    kinds = [r.kind for r in requests]
    (number,) = [r.topic for r in requests if r.kind == PUBLISH]
    closed = [i for i, r in enumerate(requests) if r.kind == CLOSE and r.topic == number]
    opened = [i for i, r in enumerate(requests) if r.kind == OPEN and r.topic == number]
    assert closed and kinds.index(PUBLISH) < closed[0]
    assert all(closed[0] < i for i in opened)


def test_a_worker_is_asked_to_take_a_few_at_once_and_others_do_not_wait_for_the_rest(large: Bench) -> None:
    clients = [large.quiet_client() for _ in range(6)]
    for client in clients:
        put(large, client, BODY)
    first = drain(large, 6, turns=50)
    assert [r.kind for r in first] == [PUBLISH] * ASKED_AT_ONCE
    large.quiet_client().send(b"touch 8\r\n")
    assert [r.kind for r in large.take()] == [TOUCH]
    seen = [r.conn for r in first]
    for request in first:
        large.answer(0, request, OK, id=request.id)
        (another,) = drain(large, 1)
        seen.append(another.conn)
    assert seen == [client.number for client in clients]
    assert all(client.received().startswith(b"INSERTED") for client in clients[:ASKED_AT_ONCE])


@pytest.mark.parametrize("dies", [False, True], ids=["the client goes", "the worker dies"])
def test_one_that_nobody_is_to_be_answered_about_makes_room_for_the_next(large: Bench, dies: bool) -> None:
    clients = [large.quiet_client() for _ in range(ASKED_AT_ONCE + 1)]
    for client in clients:
        put(large, client, BODY)
    assert len(drain(large, 6, turns=50)) == ASKED_AT_ONCE
    if dies:
        large.acceptor.peer_gone(0)
        large.worker[0].attach()
    else:
        clients[0].socket.close()
    large.turn()
    last = [r for r in drain(large, 1 << 30, turns=50) if r.kind == PUBLISH]
    assert [r.conn for r in last] == [clients[-1].number]
    assert last[0].body == BODY
    if dies:
        assert [c.received() for c in clients[:-1]] == [b"INTERNAL_ERROR\r\n"] * ASKED_AT_ONCE


def test_a_connection_has_one_on_its_way_to_be_written(large: Bench) -> None:
    client = large.quiet_client()
    put(large, client, BODY)
    put(large, client, BODY)
    (first,) = drain(large, 2, turns=50)
    large.answer(0, first, OK, id=first.id)
    (second,) = drain(large, 1)
    assert first.body == second.body == BODY


def test_a_body_that_comes_back_is_sent_from_where_it_was_put_together(large: Bench) -> None:
    client = large.quiet_client()
    client.send(b"reserve\r\n")
    (request,) = large.take()
    assert request.kind == RESERVE
    large.worker[0].answer(request, OK, id=8, body=BODY)
    received = b""
    for _ in range(1000):
        large.worker[0].take()
        large.turn(1)
        assert large.acceptor.buffered_bytes() <= len(BODY) + 64 * 1024
        received += client.received()
        if len(received) > len(BODY):
            break
    assert received == b"RESERVED 8 %d\r\n" % len(BODY) + BODY + b"\r\n"
    large.turn()
    assert large.acceptor.buffered_bytes() == 0
    assert client.talk(b"touch 8\r\n") == b""
    large.answer(0, large.one(), FAILED)
    assert client.received() == b"INTERNAL_ERROR\r\n"
