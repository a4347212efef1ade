"""Requests of a connection without a body that follow each other are one message (csrc/acceptor/requests.c)."""

from __future__ import annotations

from typing import Final

from mq_shards.csrc._core import ffi, lib

from tests.acceptor.bench import BURY, DELETE, FOREVER, PUBLISH, RESERVE, TOUCH, Bench, Request

MOST: Final = int(lib.REQUESTS_MOST)


def kinds(messages: list[list[Request]]) -> list[list[int]]:
    return [[request.kind for request in message] for message in messages]


def test_the_first_travels_for_itself_and_the_others_of_a_read_together(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 3\r\nreserve\r\ntouch 5\r\ndelete 18446744073709551615\r\nreserve-with-timeout 4\r\n")
    messages = bench.worker[0].messages()
    assert kinds(messages) == [[DELETE], [RESERVE, TOUCH, DELETE, RESERVE]]
    requests = [request for message in messages for request in message]
    assert [request.slot - requests[0].slot for request in requests] == [0, 1, 2, 3, 4]
    assert [request.conn for request in requests] == [requests[0].conn] * 5
    assert [request.id for request in requests] == [3, 0, 5, 2**64 - 1, 0]
    assert [request.delay_ns for request in requests] == [0, FOREVER, 0, 0, 4 * 10**9]
    for request in requests:
        bench.answer(0, request, id=request.id, body=b"b" if request.kind == RESERVE else b"")
    reserved = b"RESERVED 0 1\r\nb\r\n"
    assert client.received() == b"DELETED\r\n" + reserved + b"TOUCHED\r\nDELETED\r\n" + reserved


def test_what_has_a_body_or_says_more_comes_between(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\ndelete 2\r\nput 0 0 9 1\r\nx\r\ndelete 3\r\nbury 4 0\r\n" + b"delete 5\r\n" * 3)
    messages = bench.worker[0].messages()
    assert kinds(messages) == [[DELETE], [DELETE], [PUBLISH], [DELETE], [BURY], [DELETE], [DELETE] * 2]


def test_there_are_no_more_in_one_than_may_be(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"".join(b"delete %d\r\n" % n for n in range(2 * MOST)))
    messages = bench.worker[0].messages()
    assert [len(message) for message in messages] == [1, MOST, MOST - 1]
    assert [request.id for message in messages for request in message] == list(range(2 * MOST))


def test_those_of_several_connections_are_not_mixed(bench: Bench) -> None:
    one, two = bench.quiet_client(), bench.quiet_client()
    for client, ids in ((one, (1, 2, 3)), (two, (4, 5, 6))):
        client.socket.send(b"".join(b"delete %d\r\n" % id for id in ids))
    bench.turn()
    messages = bench.worker[0].messages()
    assert sorted([request.id for request in message] for message in messages) == [[1], [2, 3], [4], [5, 6]]
    assert all(len({request.conn for request in message}) == 1 for message in messages)


def test_nothing_is_added_to_what_the_worker_may_have_seen(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\ndelete 2\r\n")
    client.send(b"delete 3\r\ndelete 4\r\ndelete 5\r\n")
    messages = bench.worker[0].messages()
    assert [[request.id for request in message] for message in messages] == [[1], [2], [3], [4, 5]]


def test_each_worker_has_its_own(duo: Bench) -> None:
    client = duo.quiet_client()
    shards = (0, 1, 0, 1, 0, 1)
    client.send(b"".join(b"delete %d\r\n" % (8 + shard) for shard in shards))
    assert [[len(m) for m in duo.worker[worker].messages()] for worker in (0, 1)] == [[1, 2]] * 2


def test_a_worker_that_dies_has_failed_all_of_them_and_its_successor_is_asked_for_jobs_again(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\ndelete 2\r\ndelete 3\r\nreserve\r\nreserve\r\n")
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.received() == b"INTERNAL_ERROR\r\n" * 3
    bench.worker[0].attach()
    asked = [request.kind for request in bench.worker[0].take()]
    assert [kind for kind in asked if kind in (RESERVE, DELETE)] == [RESERVE, RESERVE]


def test_the_message_says_what_it_is(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n" + b"delete 2\r\n" * 9)
    assert bench.worker[0].receive().kind == DELETE
    raw = bench.worker[0].receive()
    assert raw != ffi.NULL and (raw.kind, raw.several, raw.topic, raw.id) == (lib.MSG_REQUEST_EACH, 9, 0, 0)
    assert raw.body_bytes == 2 * lib.REQUESTS_AT_ONCE * 16
