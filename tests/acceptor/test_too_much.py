"""Too much: workers that do not keep up, clients that do not read."""

from __future__ import annotations

import contextlib
from typing import Final

from tests.acceptor.bench import OK, RELEASE, RESERVE_ID, Bench, Client, Request

MIB: Final = 1 << 20
PUTS: Final = 10


def test_a_worker_that_does_not_keep_up_stops_its_clients_and_loses_nothing() -> None:
    bench = Bench(workers=2, ring_bytes=1 << 16)
    slow, fast = bench.quiet_client(bench.name_at(0)), bench.quiet_client(bench.name_at(1))
    put = b"put 0 0 1 1000\r\n%s\r\n"
    bodies = [b"%04d" % i * 250 for i in range(4000)]
    data = b"".join(put % body for body in bodies)
    sent = slow.flood(data)
    assert sent < len(data) / 2, "it was told to wait"
    fast.send(put % bodies[0])
    bench.answer(1, bench.one(1))
    assert fast.received().startswith(b"INSERTED"), "others are served"
    got: list[bytes] = []
    for _ in range(20_000):
        if sent < len(data):
            with contextlib.suppress(BlockingIOError):
                sent += slow.socket.send(data[sent : sent + 65536])
        requests = bench.worker[0].take(20)
        for request in requests:
            bench.worker[0].answer(request)
        got += [request.body for request in requests]
        bench.turn(1)
        slow.received()
        if len(got) == len(bodies):
            break
    assert got == bodies
    bench.close()


def test_of_large_bodies_for_a_worker_that_hangs_no_more_is_taken_than_the_limit_and_one(bench: Bench) -> None:
    """Also from one client, which may have many commands under way."""
    bench.acceptor.set("beanstalk.max-job-size", 4 * MIB)
    bench.acceptor.set("max-buffered-bytes", 8 * MIB)
    clients = [bench.quiet_client() for _ in range(2)]
    data = (b"put 0 0 1 %d\r\n%s\r\n" % (2 * MIB, bytes(2 * MIB))) * PUTS
    sent = dict.fromkeys(clients, 0)

    def flood() -> None:
        for client in clients:
            sent[client] += client.flood(data[sent[client] :])

    for _ in range(10):
        flood()
    begun = len(clients) * 64 * 1024  # what each client's next command begins with
    assert bench.acceptor.buffered_bytes() <= 8 * MIB + 4 * MIB + begun
    came = 0
    for _ in range(200):
        requests = bench.take()
        for request in requests:
            bench.worker[0].answer(request)
        came += len(requests)
        flood()
    assert came == len(clients) * PUTS


def test_a_client_that_does_not_read_is_not_read_from(bench: Bench) -> None:
    bench.acceptor.set("max-outstanding-output", 10_000)
    client = bench.quiet_client()
    asked = 0
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            asked += client.socket.send(b"reserve-with-timeout 0\r\n" * 10)
        bench.turn(1)
        for request in bench.take():
            bench.worker[0].answer(request, OK, id=8, body=b"o" * 5000)
    # A few thousand bytes are on the way in either direction; the rest has not been asked for.
    bench.turn()
    assert bench.take() == []
    replies = 0
    for _ in range(2000):
        replies += client.received().count(b"RESERVED")
        bench.turn(1)
        for request in bench.take():
            bench.worker[0].answer(request, OK, id=8, body=b"o" * 5000)
        if replies * 24 >= asked:
            break
    assert replies == asked // 24


BODIES_AHEAD_BYTES: Final = 16 * MIB  # csrc/acceptor/bounds.h


def reserve_jobs(bench: Bench, client: Client, count: int) -> list[Request]:
    client.send(b"".join(b"reserve-job %d\r\nrelease %d 0 0\r\n" % (n, n) for n in range(1, count + 1)))
    return [request for request in bench.take() if request.kind == RESERVE_ID]


def test_no_more_bodies_are_looked_at_than_are_reserved(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-job-size", 4 * MIB)
    client = bench.quiet_client()
    client.send(b"peek 1\r\npeek-ready\r\npeek-delayed\r\npeek-buried\r\nreserve-job 2\r\n" * 20)
    asked = bench.take()
    assert len(asked) == 4
    for request in asked:
        bench.answer(0, request, OK, id=1, body=b"x")
    assert client.received() == b"FOUND 1 1\r\nx\r\n" * 4
    assert bench.take()[0].kind == RESERVE_ID


def test_as_many_bodies_are_asked_for_as_would_do_if_each_were_as_large_as_it_may_be(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-job-size", 4 * MIB)
    assert len(reserve_jobs(bench, bench.quiet_client(), 100)) == 4
    bench.acceptor.set("beanstalk.max-job-size", 20 * MIB)
    client = bench.quiet_client()
    (only,) = reserve_jobs(bench, client, 100)
    bench.worker[0].answer(only, OK, id=only.id, body=b"x" * 20 * MIB)
    asked: list[Request] = []
    for _ in range(40):
        bench.turn()
        asked += bench.take()
    assert asked == [], "what has come has not left"
    received = 0
    for _ in range(1000):
        received += len(client.received())
        bench.turn()
        asked += bench.take()
    assert received > 20 * MIB, "what is larger than the limit passes"
    assert [request.kind for request in asked] == [RESERVE_ID, RELEASE], "and then it goes on, one by one"


def test_a_body_larger_than_a_job_may_be_makes_those_after_it_wait_for_one_another(bench: Bench) -> None:
    """Put by another protocol, or before the limit was lowered."""
    client = bench.quiet_client()
    client.send(b"reserve\r\n")
    bench.answer(0, bench.one(), OK, id=8, body=b"x" * 8 * MIB)
    received = 0
    while received < 8 * MIB:
        bench.turn()
        assert bench.take() == []
        received += len(client.received())
    client.send(b"reserve\r\n" * 100)
    assert len(bench.take()) == 2


def test_replies_whose_turn_has_not_come_count_as_unsent(duo: Bench) -> None:
    """One worker does not answer, and the other brings body after body behind it."""
    client = duo.quiet_client()
    client.send(b"touch %d\r\n" % duo.id_at(0))
    body = b"x" * 60_000
    brought = 0
    for n in range(1, 200):
        client.send(b"reserve-job %d\r\n" % duo.id_at(1, n))
        for request in duo.take(1):
            duo.answer(1, request, OK, id=request.id, body=body)
            brought += 1
    assert brought == MIB // len(body) + 1
    duo.answer(0, duo.one(0))
    replies = 0
    for _ in range(1000):
        replies += client.received().count(b"RESERVED")
        for request in duo.take(1):
            duo.answer(1, request, OK, id=request.id, body=body)
        duo.turn()
    assert replies == 199


def test_at_the_end_no_more_input_is_taken_and_what_is_under_way_is_waited_for(bench: Bench) -> None:
    client, waiter = bench.quiet_client(), bench.quiet_client()
    waiter.send(b"reserve\r\n")
    client.send(b"delete 1\r\n")
    _, delete = bench.take()
    bench.acceptor.quiesce()
    assert bench.acceptor.busy() == 1, "a reserve that waits may wait for ever"
    client.send(b"delete 2\r\n")
    assert bench.take() == []
    bench.answer(0, delete)
    assert client.received() == b"DELETED\r\n"
    assert bench.acceptor.busy() == 0
