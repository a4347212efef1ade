"""PUBLISHes of a connection that follow each other are one message of the ring (csrc/acceptor/publishes.c)."""

from __future__ import annotations

from typing import Final

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.acceptor.bench import DELETE, NO_SPACE, PUBLISH, Bench, Client, Request

MOST: Final = int(lib.EACH_MOST)
LARGEST: Final = int(lib.EACH_BODY_BYTES)


def put(body: bytes = b"x", pri: int = 5, delay: int = 0, ttr: int = 9) -> bytes:
    return b"put %d %d %d %d\r\n%s\r\n" % (pri, delay, ttr, len(body), body)


def together(bench: Bench, worker: int = 0) -> list[list[Request]]:
    """What the worker gets, the PUBLISHes of one message in one list."""
    return bench.worker[worker].messages()


def bodies(messages: list[list[Request]]) -> list[list[bytes]]:
    return [[request.body for request in message] for message in messages]


def test_puts_of_one_read_are_one_message(bench: Bench) -> None:
    client = bench.quiet_client()
    sizes = [0, 1, 7, 8, 9, 200, LARGEST, 0]
    client.send(b"".join(put(bytes([65 + n]) * size) for n, size in enumerate(sizes)))
    (puts,) = together(bench)
    assert [request.body for request in puts] == [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    assert {(request.pri, request.delay_ns, request.ttr_ns) for request in puts} == {(5, 0, 9 * 10**9)}
    assert [request.slot for request in puts] == list(range(puts[0].slot, puts[0].slot + len(sizes)))
    for request in puts:
        bench.answer(0, request)
    assert client.received() == b"".join(b"INSERTED %d\r\n" % request.id for request in puts)


def test_each_is_answered_for_itself(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(put(b"a") + put(b"b") + put(b"c"))
    ((first, second, third),) = together(bench)
    bench.answer(0, second, NO_SPACE)
    bench.answer(0, first)
    bench.answer(0, third)
    assert client.received() == b"INSERTED %d\r\nOUT_OF_MEMORY\r\nINSERTED %d\r\n" % (first.id, third.id)


OTHERS = {
    "priority": put(b"b", pri=6),
    "delay": put(b"b", delay=1),
    "time to run": put(b"b", ttr=10),
    "large": put(b"b" * (LARGEST + 1)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_another_travels_for_itself(bench: Bench, what: str) -> None:
    client = bench.quiet_client()
    client.send(put(b"a") + OTHERS[what] + put(b"c") + put(b"d"))
    assert bodies(together(bench)) == [[b"a"], [b"b" * (LARGEST + 1) if what == "large" else b"b"], [b"c", b"d"]]


def test_what_is_delayed_travels_for_itself(bench: Bench) -> None:
    """Each is a delivery of each channel at once: several of them in one message would be a long turn of the worker."""
    client = bench.quiet_client()
    client.send(put(b"a", delay=1) * 3 + put(b"b") * 2)
    assert bodies(together(bench)) == [[b"a"], [b"a"], [b"a"], [b"b", b"b"]]


def test_a_request_in_between_ends_it(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(put(b"a") + put(b"b") + b"delete 8\r\n" + put(b"c") + put(b"d"))
    messages = together(bench)
    assert [[request.kind for request in message] for message in messages] == [[PUBLISH] * 2, [DELETE], [PUBLISH] * 2]
    assert [r.slot - messages[0][0].slot for message in messages for r in message] == [0, 1, 2, 3, 4]


def test_an_answer_made_here_in_between_ends_it(bench: Bench) -> None:
    """Its slot is between theirs, and a message says the first of its slots only."""
    client = bench.quiet_client()
    client.send(put(b"a") + b"delete \0\r\n" + put(b"c"))
    first, second = together(bench)
    assert (first[0].body, second[0].body, second[0].slot - first[0].slot) == (b"a", b"c", 2)
    bench.answer(0, second[0])
    bench.answer(0, first[0])
    assert client.received() == b"INSERTED %d\r\nBAD_FORMAT\r\nINSERTED %d\r\n" % (first[0].id, second[0].id)


def test_other_connections_and_topics_have_messages_of_their_own(duo: Bench) -> None:
    name, same, other = duo.name_at(0), duo.name_at(0, 1), duo.name_at(1)
    one, two = duo.quiet_client(name), duo.quiet_client(name)
    one.socket.send(put(b"a") + put(b"b"))
    two.socket.send(put(b"c") + put(b"d"))
    duo.turn()
    assert sorted(bodies(together(duo))) == [[b"a", b"b"], [b"c", b"d"]]
    one.send(put(b"e") + b"use %s\r\n" % same + put(b"f") + b"use %s\r\n" % other + put(b"g"))
    puts = [request.body for message in together(duo) for request in message if request.kind == PUBLISH]
    assert puts == [b"e", b"f"]
    assert [b"g"] in bodies(together(duo, 1))


def test_so_many_are_one_message_and_no_more(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(put() * (2 * MOST + 3))
    assert [len(message) for message in together(bench)] == [MOST, MOST, 3]


def test_what_the_worker_may_have_seen_stays_as_it_is(bench: Bench) -> None:
    client = bench.quiet_client()
    for _ in range(3):
        client.send(put() + put())
    assert [len(message) for message in together(bench)] == [2, 2, 2]


@pytest.mark.parametrize("ring_bytes", [4096, 8192])
def test_all_come_through_rings_that_are_too_small(ring_bytes: int) -> None:
    """Beyond a quarter of the ring it is another message, and without room they wait one by one."""
    bench = Bench(ring_bytes=ring_bytes)
    try:
        client = bench.quiet_client()
        sent = [bytes([n]) * (37 * n % 700) for n in range(250)]
        client.flood(b"".join(put(body) for body in sent))
        came: list[Request] = []
        for _ in range(1000):
            came += [request for message in together(bench) for request in message]
            bench.turn()
        assert [request.body for request in came] == sent
        assert [request.slot for request in came] == list(range(came[0].slot, came[0].slot + len(sent)))
    finally:
        bench.close()


def test_a_worker_that_dies_fails_each(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(put() * 3)
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.received() == b"INTERNAL_ERROR\r\n" * 3
    bench.worker[0].attach()
    client.send(put(b"anew") + put(b"again"))
    assert bodies(together(bench))[-1] == [b"anew", b"again"]


def test_what_is_published_to_a_ring_of_nobody_is_not_continued(bench: Bench) -> None:
    """A new ring begins at the place at which the old one was."""
    client = bench.quiet_client()
    client.send(put(b"old"))
    bench.worker[0].attach()
    client.received()
    client.send(put(b"new"))
    assert bodies(together(bench))[-1] == [b"new"]


def test_the_message_says_what_it_is(bench: Bench) -> None:
    client: Client = bench.quiet_client()
    client.send(put(b"abc") * 3)
    raw = bench.worker[0].receive()
    assert raw != ffi.NULL and raw.kind == lib.MSG_PUBLISH_EACH and raw.several == 3
    assert raw.body_bytes == 3 * (16 + 8) and raw.pri == 5
