"""PUB, MPUB and DPUB become publishes, and their answers leave in order."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mq_shards.csrc._core import lib

from tests.acceptor.bench import FAILED, GONE, NO_SPACE, OPEN, PUBLISH, SECOND, SHARDS
from tests.acceptor.nsq.bench import (
    DURABLE,
    ERROR,
    ID,
    MS,
    PUBLISH_MANY,
    QUOTED,
    RESPONSE,
    Bench,
    fails,
    many,
    pub,
    sized,
)


def test_a_pub_is_a_durable_publish_and_ok_when_the_worker_says_so(bench: Bench) -> None:
    bench.acceptor.set("nsq.msg-timeout-ns", 7 * SECOND)
    client = bench.client()
    assert client.talk(pub(b"t", b"hello")) == []
    opened, request = bench.take()
    assert (opened.kind, opened.body, opened.topic) == (OPEN, b"t", request.topic)
    assert (request.kind, request.body, request.pri, request.delay_ns) == (PUBLISH, b"hello", 1024, 0)
    assert (request.conn, request.ttr_ns, request.flags) == (client.number, 7 * SECOND, DURABLE | lib.MSG_JOINED)
    assert request.id % SHARDS == opened.id
    bench.answer(0, request)
    assert client.frames() == [(RESPONSE, b"OK")]
    client.send(pub(b"t", b"more"))
    again = bench.one()
    assert again.topic == request.topic and again.id == request.id + SHARDS


def test_a_topic_stays_bound_when_its_publisher_is_gone(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"x"))
    topic = bench.one().topic
    client.socket.close()
    bench.turn()
    assert [request.kind for request in bench.take()] == [GONE]
    assert bench.acceptor.bind(b"t") == topic
    assert bench.take() == []


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_however_the_bytes_come_the_messages_are_the_same(data: st.DataObject) -> None:
    bench = Bench(workers=2)
    client = bench.client()
    names = [bench.name_at(0), bench.name_at(1), b"with-dots.and_" + b"x" * 40, b"e#ephemeral"]
    script, expected = b"", []
    for _ in range(data.draw(st.integers(1, 12))):
        topic = data.draw(st.sampled_from(names))
        bodies = data.draw(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5))
        match data.draw(st.integers(0, 2)):
            case 0:
                script += pub(topic, bodies[0])
                expected.append((PUBLISH, bodies[0], 0))
            case 1:
                script += b"DPUB %s 1500\r\n%s" % (topic, sized(bodies[0]))
                expected.append((PUBLISH, bodies[0], 1500 * MS))
            case _:
                script += b"MPUB %s\n%s" % (topic, many(*bodies))
                expected.append((PUBLISH_MANY, b"".join(map(sized, bodies)), 0))
    got: dict[int, tuple[int, bytes, int]] = {}
    while script:
        n = data.draw(st.integers(1, len(script)))
        client.send(script[:n])
        script = script[n:]
        # The slots tell the order, whichever worker it went to.
        for worker in (0, 1):
            for r in bench.take(worker):
                if r.kind != OPEN:
                    got[r.slot] = (r.kind, r.body, r.delay_ns)
    assert [got[slot] for slot in sorted(got)] == expected
    bench.close()


def test_replies_leave_in_the_order_of_commands_whatever_workers_say_first(duo: Bench) -> None:
    client = duo.client()
    client.send(pub(duo.name_at(0), b"a") + pub(duo.name_at(1), b"b") + b"MPUB %s\n%s" % (duo.name_at(1), many(b"c")))
    slow, (fast, last) = duo.one(0), [r for r in duo.take(1) if r.kind != OPEN]
    duo.answer(1, fast)
    duo.answer(1, last)
    assert client.frames() == []
    duo.answer(0, slow)
    assert client.frames() == [(RESPONSE, b"OK")] * 3


def test_an_mpub_is_one_request_with_a_range_of_ids_of_its_own(bench: Bench) -> None:
    client = bench.client()
    client.send(b"MPUB t\n" + many(b"a", b"bb", b"ccc") + pub(b"t", b"d"))
    batch, single = [r for r in bench.take() if r.kind != OPEN]
    assert (batch.kind, batch.pri, batch.body) == (PUBLISH_MANY, 3, sized(b"a") + sized(b"bb") + sized(b"ccc"))
    assert batch.ttr_ns == 60 * SECOND
    assert single.id == batch.id + 3 * SHARDS
    bench.answer(0, batch)
    bench.answer(0, single)
    assert client.frames() == [(RESPONSE, b"OK")] * 2


def test_a_body_much_larger_than_what_is_received_at_once_comes_through(bench: Bench) -> None:
    bench.acceptor.set("nsq.max-body-size", 20 << 20)
    client = bench.client()
    big = random.Random(1).randbytes(1 << 20)
    data = pub(b"t", big) + b"MPUB t\n" + many(*[big[i::7] for i in range(7)] * 4) + pub(b"t", b"last")
    bodies: list[bytes] = []
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[client.socket.send(data) :]
        bench.turn(1)
        bodies += [request.body for request in bench.take() if request.kind != OPEN]
    for _ in range(1000):
        bench.turn(1)
        bodies += [request.body for request in bench.take() if request.kind != OPEN]
    assert bodies == [big, b"".join(map(sized, [big[i::7] for i in range(7)] * 4)), b"last"]


def test_an_mpub_ends_where_its_messages_end_whatever_size_its_body_claims(bench: Bench) -> None:
    client = bench.client()
    messages = struct.pack(">I", 2) + sized(b"a") + sized(b"b")
    for claimed in (1, 5000):
        client.send(b"MPUB t\n" + struct.pack(">I", claimed) + messages + b"NOP\n")
        assert bench.one().body == sized(b"a") + sized(b"b")
    assert not client.is_closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
        (b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
        (b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
        (b"PUB a$b\n", b'E_BAD_TOPIC PUB topic name "a$b" is not valid'),
        (b"PUB  t\n", b'E_BAD_TOPIC PUB topic name "" is not valid'),
        (b"PUB " + b"x" * 65 + b"\n", b'E_BAD_TOPIC PUB topic name "' + b"x" * 65 + b'" is not valid'),
        (b"PUB #ephemeral\n", b'E_BAD_TOPIC PUB topic name "#ephemeral" is not valid'),
        (b"PUB a#ephemeral2\n", b'E_BAD_TOPIC PUB topic name "a#ephemeral2" is not valid'),
        (b'PUB a"\\\t\xff\x00\xc3\xa9\xc2\xa0\n', QUOTED),
        (b"MPUB a$\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "a$" is not valid'),
        (b"DPUB a$ x\n", b'E_BAD_TOPIC DPUB topic name "a$" is not valid'),
        (b"DPUB t 1x\n", b"E_INVALID DPUB could not parse timeout 1x"),
        (b"DPUB t -1\n", b"E_INVALID DPUB could not parse timeout -1"),
        (b"DPUB t 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        # Durations of Go's are signed: this one is below 0.
        (b"DPUB t 9223372036855\n", b"E_INVALID DPUB timeout 9223372036855 out of range 0-3600000"),
        (b"PUB t\n\0\0\0\0", b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB t\n\xff\xff\xff\xff", b"E_BAD_MESSAGE PUB invalid message body size -1"),
        (b"PUB t\n\x00\x10\x00\x01", b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
        (b"DPUB t 1\n\0\0\0\0", b"E_BAD_MESSAGE DPUB invalid message body size 0"),
        (b"DPUB t 1\n\x00\x10\x00\x01", b"E_BAD_MESSAGE DPUB message too big 1048577 > 1048576"),
        (b"MPUB t\n\0\0\0\0", b"E_BAD_BODY MPUB invalid body size 0"),
        (b"MPUB t\n\x80\0\0\0", b"E_BAD_BODY MPUB invalid body size -2147483648"),
        (b"MPUB t\n\x00\x50\x00\x01", b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
        (b"MPUB t\n\0\0\0\x08\0\0\0\0", b"E_BAD_BODY MPUB invalid message count 0"),
        (b"MPUB t\n\0\0\0\x08\xff\xff\xff\xff", b"E_BAD_BODY MPUB invalid message count -1"),
        (b"MPUB t\n\0\0\0\x08" + struct.pack(">I", 1048576), b"E_BAD_BODY MPUB invalid message count 1048576"),
        (b"MPUB t\n\0\0\1\0\0\0\0\2" + sized(b"a") + b"\0\0\0\0", b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
        (b"MPUB t\n\0\0\1\0\0\0\0\1\x00\x10\x00\x01", b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
        (b"RDY 1\n", b"E_INVALID cannot RDY in current state"),
        (b"FIN " + ID + b"\n", b"E_INVALID cannot FIN in current state"),
        (b"REQ " + ID + b" 0\n", b"E_INVALID cannot REQ in current state"),
        (b"TOUCH " + ID + b"\n", b"E_INVALID cannot TOUCH in current state"),
        (b"CLS\n", b"E_INVALID cannot CLS in current state"),
        (b"IDENTIFY\n\0\0\0\0", b"E_BAD_BODY IDENTIFY invalid body size 0"),
        (b"IDENTIFY\n\x00\x50\x00\x01", b"E_BAD_BODY IDENTIFY body too big 5242881 > 5242880"),
        (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
        (b"AUTH\n\xff\xff\xff\xff", b"E_BAD_BODY AUTH invalid body size -1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_nsqd_does_and_ends_the_connection(bench: Bench, data: bytes, text: bytes) -> None:
    fails(bench, bench.client(), data, text)
    assert [request for request in bench.take() if request.kind == PUBLISH] == []


def test_an_mpub_may_not_be_larger_than_max_body_size_by_lying_about_it(bench: Bench) -> None:
    bench.acceptor.set("nsq.max-body-size", 1000)
    client = bench.client()
    data = b"MPUB t\n\0\0\0\x08" + struct.pack(">I", 3) + sized(b"x" * 400) * 3
    fails(bench, client, data, b"E_BAD_BODY MPUB body too big 1216 > 1000")


def test_a_fatal_error_comes_behind_the_replies_before_it_and_nothing_after_it_is_done(bench: Bench) -> None:
    client = bench.client()
    assert client.talk(pub(b"t", b"a") + b"BAD\n" + pub(b"t", b"b")) == []
    bench.answer(0, bench.one())
    assert client.frames() == [(RESPONSE, b"OK"), (ERROR, b"E_INVALID invalid command BAD")]
    assert client.is_closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB t\n" + sized(b"a"), b"E_PUB_FAILED PUB failed no space"),
        (b"DPUB t 1\n" + sized(b"a"), b"E_DPUB_FAILED DPUB failed no space"),
        (b"MPUB t\n" + many(b"a"), b"E_MPUB_FAILED MPUB failed no space"),
    ],
)
def test_a_publish_that_fails_is_the_last_that_is_answered(bench: Bench, data: bytes, text: bytes) -> None:
    client = bench.client()
    client.send(data + data)
    first, second = [r for r in bench.take() if r.kind != OPEN]
    bench.worker[0].answer(second)
    bench.answer(0, first, NO_SPACE)
    assert client.frames() == [(ERROR, text)] and client.is_closed


def test_a_publish_to_a_topic_that_takes_no_more_says_so(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"a"))
    bench.answer(0, bench.one(), lib.STATUS_TERMINATED)
    assert client.frames() == [(ERROR, b"E_PUB_FAILED PUB failed the topic is terminated")] and client.is_closed


def test_a_publish_whose_outcome_is_unknown_fails(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"a"))
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.frames() == [(ERROR, b"E_PUB_FAILED PUB failed outcome unknown")] and client.is_closed
    client = bench.client()
    bench.worker[0].attach()
    client.send(pub(b"t", b"a"))
    bench.answer(0, bench.one(), FAILED)
    assert client.frames() == [(ERROR, b"E_PUB_FAILED PUB failed outcome unknown")]


def test_a_publish_waits_for_a_worker_that_is_gone(bench: Bench) -> None:
    client = bench.client()
    bench.acceptor.peer_gone(0)
    assert client.talk(pub(b"t", b"a") + b"MPUB t\n" + many(b"b")) == []
    bench.worker[0].attach()
    bench.turn()
    assert [r.kind for r in bench.take() if r.kind != OPEN] == [PUBLISH, PUBLISH_MANY]


@pytest.mark.parametrize("name", [b"PUB", b"MPUB", b"DPUB"])
def test_nothing_is_published_while_the_broker_drains(bench: Bench, name: bytes) -> None:
    bench.drain()
    data = {b"PUB": pub(b"t", b"a"), b"MPUB": b"MPUB t\n" + many(b"a"), b"DPUB": b"DPUB t 0\n" + sized(b"a")}[name]
    fails(bench, bench.client(), data, b"E_%s_FAILED %s failed exiting" % (name, name))


def test_a_client_whose_worker_does_not_keep_up_waits_and_loses_nothing() -> None:
    bench = Bench(workers=2, ring_bytes=1 << 16)
    client, other = bench.client(), bench.client()
    bodies = [b"%04d" % i * 250 for i in range(3000)]
    data = b"".join(b"MPUB %s\n%s" % (bench.name_at(0), many(body)) for body in bodies)
    sent, got = 0, []
    for i in range(20000):
        with contextlib.suppress(BlockingIOError):
            sent += client.socket.send(data[sent : sent + 65536]) if sent < len(data) else 0
        bench.turn(1)
        if i == 200:
            assert sent < len(data) / 2, "it was told to wait"
            other.send(pub(bench.name_at(1), b"x"))
            assert bench.one(1).body == b"x", "others are served"
        if i > 200:
            requests = bench.worker[0].take(20)
            for request in requests:
                bench.worker[0].answer(request) if request.kind != OPEN else None
            got += [request.body[4:] for request in requests if request.kind != OPEN]
            client.frames()
        if len(got) == len(bodies):
            break
    assert got == bodies
    bench.close()
