"""A worker dies: what it answered counts, what it did not is told, and it is told all again."""

from __future__ import annotations

import os

import pytest
from mq_shards.acceptor import engine
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import Producer, create

from tests.acceptor.bench import (
    LIST,
    NONE,
    OK,
    OPEN,
    PROBE,
    PUBLISH,
    RESERVE,
    SECOND,
    TAKE,
    TIMED_OUT,
    USE,
    WATCH,
    Bench,
    Client,
)
from tests.acceptor.test_reserve_over_workers import probes, start_waiting


def test_a_worker_that_is_back_is_told_everything_first_and_asked_again_what_waits(duo: Bench) -> None:
    name, other = duo.name_at(0), duo.name_at(1)
    client = duo.quiet_client(name)
    client.talk(b"watch %s\r\nignore %s\r\n" % (other, other))
    bystander = duo.quiet_client(other)
    duo.take(0)
    client.send(b"reserve-with-timeout 8\r\ndelete %d\r\n" % duo.id_at(0))
    duo.take(0)
    duo.acceptor.peer_gone(0)
    duo.turn()
    assert client.received() == b"", "the delete's error waits for the reserve's reply"
    duo.worker[0].attach()
    duo.turn()
    told = duo.take(0)
    opens = [request for request in told if request.kind == OPEN]
    assert told[: len(opens)] == opens
    assert name in [request.body for request in opens]
    assert other not in [request.body for request in opens]
    rest = told[len(opens) :]
    assert [request.kind for request in rest] == [USE, WATCH, RESERVE]
    assert {request.conn for request in rest} == {client.number}
    assert rest[2].delay_ns == 8 * SECOND
    duo.answer(0, rest[2], TIMED_OUT)
    assert client.received() == b"TIMED_OUT\r\nINTERNAL_ERROR\r\n"
    assert bystander.received() == b""


def test_what_a_dead_worker_replied_counts(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\ndelete 2\r\n")
    first, _ = bench.take()
    bench.worker[0].answer(first)
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.received() == b"DELETED\r\nINTERNAL_ERROR\r\n"


def test_requests_for_a_worker_that_is_gone_wait_and_others_do_not(duo: Bench) -> None:
    here, there = duo.quiet_client(duo.name_at(0)), duo.quiet_client(duo.name_at(1))
    duo.acceptor.peer_gone(0)
    here.send(b"put 0 0 1 1\r\nx\r\nuse %s\r\n" % duo.name_at(1))
    there.send(b"put 0 0 1 1\r\ny\r\n")
    duo.answer(1, duo.one(1))
    assert there.received().startswith(b"INSERTED")
    assert here.received() == b""
    newcomer = duo.client()
    assert newcomer.talk(b"use %s\r\n" % duo.name_at(0, 5)).startswith(b"USING")
    duo.worker[0].attach()
    duo.turn()
    published = [request for request in duo.take(0) if request.kind == PUBLISH]
    assert [request.body for request in published] == [b"x"]
    duo.answer(0, published[0])
    assert here.received() == b"INSERTED %d\r\nUSING %s\r\n" % (published[0].id, duo.name_at(1))


def test_requests_of_python_fail_with_the_worker_or_wait_for_it(duo: Bench) -> None:
    client = duo.quiet_client()
    client.send(b"list-tubes\r\n")
    duo.turn()
    duo.take(0)
    duo.acceptor.peer_gone(0)
    duo.turn()
    assert client.received() == b"INTERNAL_ERROR\r\n"
    client.send(b"list-tubes\r\n")
    duo.turn()
    assert client.received() == b""
    duo.worker[0].attach()
    duo.turn()
    request = next(request for request in duo.take(0) if request.kind == LIST)
    duo.answer(0, request, OK, body=b"z\ndefault\na\n")
    duo.answer(1, duo.one(1), OK, body=b"b\n")
    assert client.received() == b"OK 26\r\n---\n- default\n- z\n- a\n- b\n\r\n"


@pytest.mark.parametrize("phase", ["probing", "taking", "waiting", "cancelling"])
def test_a_gather_survives_a_worker(trio: Bench, watcher: Client, phase: str) -> None:
    watcher.send(b"reserve\r\n")
    if phase in ("probing", "taking"):
        here, there = probes(trio, 0, 1)
        trio.answer(1, there, NONE)
        if phase == "taking":
            trio.answer(0, here, OK, pri=1, id=80)
            assert trio.one(0).kind == TAKE
    else:
        here, there = start_waiting(trio, 0, 1)
        if phase == "cancelling":
            trio.answer(1, there, OK, id=73, body=b"x")
    trio.acceptor.peer_gone(0)
    trio.turn()
    if phase == "cancelling":
        assert watcher.received() == b"RESERVED 73 1\r\nx\r\n"
        assert watcher.talk(b"use default\r\n") == b"USING default\r\n", "nothing is waited for any more"
        return
    if phase == "taking":
        trio.answer(1, trio.one(1), NONE)
    trio.worker[0].attach()
    trio.turn()
    again = trio.take(0)[-1]
    assert again.kind == (RESERVE if phase == "waiting" else PROBE)
    if phase != "waiting":
        trio.answer(0, again, OK, pri=1, id=80)
        again = trio.one(0)
        assert again.kind == TAKE
    trio.answer(0, again, OK, id=80, body=b"y")
    assert watcher.received() == b"RESERVED 80 1\r\ny\r\n"


def test_a_ring_that_makes_no_sense_is_reported_and_its_worker_is_gone() -> None:
    bench = Bench(attach=False)
    requests, replies = create(1 << 16, 1), create(1 << 16, 1)
    bench.acceptor.peer(0, requests, replies, -1)
    with Producer(replies) as producer:
        producer.produce(b"no message is as short as this", flags=3)
        producer.publish()
    assert bench.acceptor.turn() == 1
    (upcall,) = bench.acceptor.upcalls()
    assert (upcall.kind, upcall.conn) == (engine.BROKEN, 0)
    assert bench.acceptor.turn() == 0
    bench.worker[0].attach()
    client = bench.quiet_client()
    client.send(b"delete 1\r\n")
    bench.answer(0, bench.one())
    assert client.received() == b"DELETED\r\n"
    os.close(requests)
    os.close(replies)
    bench.close()


@pytest.mark.parametrize("of_mesh", [False, True], ids=["worker", "acceptor"])
def test_what_is_large_and_was_said_by_one_that_died_is_heard_to_its_end(of_mesh: bool) -> None:
    """Though no more than a piece of it would be put together in a turn."""
    bench = Bench(attach=False)
    to_it, from_it = create(1 << 16, 1), create(16 << 20, 1)
    acceptor, number = bench.acceptor, int(of_mesh)
    (acceptor.mesh if of_mesh else acceptor.peer)(number, to_it, from_it, -1)
    its = lib.channel_open(from_it, to_it, -1, 1 << 20)
    assert its != ffi.NULL
    for body in (bytes(9 << 20), bytes(5 << 20)):  # in pieces of a quarter of the ring
        message = ffi.new("struct message *", {"kind": lib.MSG_DELIVER, "conn": 99, "body_bytes": len(body)})
        lib.channel_send(its, message, body, len(body))
    lib.channel_publish(its)
    counters = lib.channel_counters(its)
    assert counters.out_bytes > 14 << 20 and counters.overflow_bytes == 0
    (acceptor.mesh_gone if of_mesh else acceptor.peer_gone)(number)
    assert lib.channel_counters(its).out_bytes == 0
    lib.channel_close(its)
    os.close(to_it)
    os.close(from_it)
    bench.close()
