"""Replies leave in the order of commands, and nothing overtakes what it must not."""

from __future__ import annotations

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.acceptor.bench import (
    CLOSE,
    DELETE,
    MAX_OUTSTANDING,
    NO_SPACE,
    NOT_FOUND,
    OK,
    PEEK_ID,
    PUBLISH,
    RESERVE,
    TIMED_OUT,
    TOUCH,
    Bench,
    Client,
    Request,
)


def test_replies_leave_in_the_order_of_commands_whatever_worker_is_first(duo: Bench) -> None:
    client = duo.quiet_client()
    client.send(b"delete %d\r\ndelete %d\r\nnonsense \0\r\ntouch %d\r\n" % (duo.id_at(0), duo.id_at(1), duo.id_at(0)))
    delete_here, touch = duo.take(0)
    delete_there = duo.one(1)
    duo.answer(1, delete_there)
    duo.answer(0, touch, NOT_FOUND)
    assert client.received() == b""
    duo.answer(0, delete_here)
    assert client.received() == b"DELETED\r\nDELETED\r\nBAD_FORMAT\r\nNOT_FOUND\r\n"


def test_a_body_whose_turn_has_not_come_is_kept(duo: Bench) -> None:
    client = duo.quiet_client()
    client.send(b"touch %d\r\nreserve-job %d\r\n" % (duo.id_at(0), duo.id_at(1)))
    duo.answer(1, duo.one(1), OK, id=duo.id_at(1), body=b"kept")
    assert client.received() == b""
    duo.answer(0, duo.one(0))
    assert client.received() == b"TOUCHED\r\nRESERVED %d 4\r\nkept\r\n" % duo.id_at(1)


def test_looks_at_jobs_and_tubes_are_under_way_together(duo: Bench) -> None:
    here, there = duo.id_at(0), duo.id_at(1)
    client = duo.quiet_client(duo.name_at(0))
    client.send(b"stats-job %d\r\npeek %d\r\nkick-job %d\r\nkick 7\r\npeek-ready\r\n" % (there, here, there))
    client.send(b"pause-tube %s 9\r\nstats-tube %s\r\n" % (duo.name_at(1), duo.name_at(0)))
    peek, kick, ready, tube = duo.take(0)
    job, kick_job, pause = duo.take(1)
    assert (kick.id, kick_job.id, pause.delay_ns) == (7, there, 9_000_000_000)
    figures = ffi.new("struct topic_stats *", {"ready": 3, "pause_ns": 1})
    duo.answer(0, tube, OK, body=bytes(ffi.buffer(figures)) + duo.name_at(0))
    duo.answer(0, ready, NOT_FOUND)
    duo.answer(0, kick, OK, id=5)
    duo.answer(0, peek, OK, id=here, body=b"body")
    assert client.received() == b""
    of_job = ffi.new("struct job_stats *", {"id": there, "state": lib.JOB_BURIED, "pri": 4, "age_ns": 2_999_999_999})
    duo.answer(1, job, OK, body=bytes(ffi.buffer(of_job)) + b"mail")
    duo.answer(1, kick_job, OK)
    duo.answer(1, pause, OK)
    said = client.received()
    assert said.startswith(b"OK ") and b"tube: mail\nstate: buried\npri: 4\nage: 2\n" in said
    rest = said[said.index(b"FOUND") :]
    assert rest.startswith(b"FOUND %d 4\r\nbody\r\nKICKED\r\nKICKED 5\r\nNOT_FOUND\r\nPAUSED\r\nOK " % here)
    assert b"---\nname: %s\ncurrent-jobs-urgent: 0\ncurrent-jobs-ready: 3\n" % duo.name_at(0) in rest


def test_the_id_of_a_put_whose_turn_has_not_come_is_kept(duo: Bench) -> None:
    client = duo.quiet_client(duo.name_at(1))
    client.send(b"touch %d\r\nput 0 0 1 0\r\n\r\n" % duo.id_at(0))
    publish = duo.one(1)
    duo.answer(1, publish)
    duo.answer(0, duo.one(0))
    assert client.received() == b"TOUCHED\r\nINSERTED %d\r\n" % publish.id


def asked_to_put(bench: Bench, count: int, client: Client) -> list[Request]:
    client.send(b"put 0 0 1 1\r\nx\r\n" * count)
    requests = bench.take()
    assert [request.kind for request in requests] == [PUBLISH] * count
    assert all(request.flags & lib.MSG_JOINED for request in requests)
    return requests


def inserted(requests: list[Request]) -> bytes:
    return b"".join(b"INSERTED %d\r\n" % request.id for request in requests)


def test_one_answer_to_several_puts_is_one_to_each(bench: Bench) -> None:
    client = bench.quiet_client()
    puts = asked_to_put(bench, 6, client)
    bench.answer(0, puts[0], flags=lib.MSG_JOINED, pri=2)
    assert client.received() == inserted(puts[:2])
    bench.answer(0, puts[3], flags=lib.MSG_JOINED, pri=3)
    assert client.received() == b""
    bench.answer(0, puts[2])
    assert client.received() == inserted(puts[2:])
    assert client.talk(b"put 0 0 1 1\r\nx\r\n") == b""
    bench.answer(0, bench.one(), NO_SPACE)
    assert client.received() == b"OUT_OF_MEMORY\r\n"


@pytest.mark.parametrize("count", [0, 7, 2**32 - 1])
def test_an_answer_to_more_puts_than_there_were_answers_those(bench: Bench, count: int) -> None:
    client = bench.quiet_client()
    puts = asked_to_put(bench, 3, client)
    bench.answer(0, puts[0], flags=lib.MSG_JOINED, pri=count)
    assert client.received() == (inserted(puts) if count else b"")
    (delete,) = (client.send(b"delete %d\r\n" % bench.id_at(0)), bench.one())[1:]
    if not count:
        for request in puts:
            bench.answer(0, request)
        assert client.received() == inserted(puts)
    bench.answer(0, delete, flags=lib.MSG_JOINED, pri=count)
    assert client.received() == b"DELETED\r\n", "of a delete that says nothing"


def test_nothing_overtakes_a_reserve_at_another_worker(duo: Bench) -> None:
    client = duo.quiet_client(duo.name_at(0))
    client.send(b"reserve\r\ndelete %d\r\ndelete %d\r\ntouch %d\r\n" % (duo.id_at(0), duo.id_at(1), duo.id_at(0)))
    reserve, delete = duo.take(0)
    assert (reserve.kind, delete.kind) == (RESERVE, DELETE)
    assert duo.take(1) == []
    duo.answer(0, reserve, TIMED_OUT)
    assert duo.one(1).kind == DELETE
    assert duo.one(0).kind == TOUCH


@pytest.mark.parametrize("command", [b"use x\r\n", b"watch x\r\n", b"ignore x\r\n"])
def test_what_is_watched_does_not_change_under_a_reserve(bench: Bench, command: bytes) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\n" + command)
    reserve = bench.one()
    bench.answer(0, reserve, TIMED_OUT)
    assert client.received().startswith(b"TIMED_OUT\r\n")
    assert len(client.received()) == 0


def test_a_large_put_is_not_parked_behind_a_reserve(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\nput 0 0 1 4096\r\n%s\r\nput 0 0 1 4097\r\n%s\r\n" % (b"s" * 4096, b"l" * 4097))
    reserve, small = bench.take()
    assert len(small.body) == 4096
    bench.answer(0, reserve, TIMED_OUT)
    assert len(bench.one().body) == 4097


def test_a_command_of_pythons_waits_for_all_before_it_and_holds_up_all_behind(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\nstats\r\ndelete 3\r\n")
    first = bench.one()
    assert first.kind == DELETE
    bench.answer(0, first)
    asked = bench.one()
    assert asked.kind == PEEK_ID
    bench.answer(0, asked, NOT_FOUND)
    assert client.received().startswith(b"DELETED\r\nOK ")
    assert bench.one().kind == DELETE


def test_no_more_than_the_limit_is_outstanding(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n" * 1000)
    total = 0
    while requests := bench.take():
        assert len(requests) <= MAX_OUTSTANDING
        for request in requests:
            bench.worker[0].answer(request)
        total += len(requests)
        bench.turn()
    assert total == 1000
    assert client.received() == b"DELETED\r\n" * 1000


@pytest.mark.parametrize("command", [b"use %s\r\n", b"watch %s\r\n", b"ignore %s\r\n"])
def test_with_other_acceptors_an_answer_waits_until_the_worker_has_heard(duo: Bench, command: bytes) -> None:
    """Whoever is answered may tell a client of another acceptor, who asks that worker."""
    name = duo.name_at(1)
    client = duo.quiet_client(duo.name_at(0), name)
    duo.acceptor.set("acceptors", 2)
    client.send(command % name + b"touch %d\r\n" % duo.id_at(0))
    told = [request for request in duo.take(1) if request.kind != CLOSE]
    assert [request.has_reply for request in told][-1]
    assert client.received() == b""
    duo.answer(0, duo.take(0)[-1], NOT_FOUND)
    duo.answer(1, told[-1])
    answer, rest = client.received().split(b"\r\n", 1)
    assert answer in (b"USING " + name, b"WATCHING 2", b"WATCHING 1")
    assert rest == b"NOT_FOUND\r\n"


def test_with_other_acceptors_an_answer_does_not_wait_for_a_worker_that_is_gone(duo: Bench) -> None:
    name = duo.name_at(1)
    client = duo.quiet_client(duo.name_at(0))
    duo.acceptor.set("acceptors", 2)
    client.send(b"use %s\r\n" % name)
    duo.acceptor.peer_gone(1)
    duo.turn()
    assert client.talk(b"watch %s\r\n" % name) == b"USING %s\r\nWATCHING 2\r\n" % name
