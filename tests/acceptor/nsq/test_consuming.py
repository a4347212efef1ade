"""What is pushed to a consumer, in its window; and what it says of that."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest
from mq_shards.acceptor.engine import WorkerRequest
from mq_shards.csrc._core import lib

from tests.acceptor.bench import FAILED, GONE, NO_SPACE, NONE, NOT_FOUND, OPEN, PUBLISH, SECOND
from tests.acceptor.nsq.bench import (
    CREDIT,
    DELIVER,
    DISMISSED,
    ERROR,
    EXTEND,
    FINISH,
    FULL,
    ID,
    MESSAGE,
    MESSAGE_BYTES,
    MS,
    REFUSED,
    REPORT,
    REQUEUE,
    RESPONSE,
    SENT,
    SUBSCRIBE,
    WINDOW,
    Bench,
    fails,
)


def test_rdy_is_credit_and_has_a_range(bench: Bench) -> None:
    client = bench.consumer(rdy=0)
    for data, credit in ((b"RDY 2500\n", 2500), (b"RDY\n", 1), (b"RDY 0\n", 0), (b"RDY \n", 0), (b"RDY 7 x\n", 7)):
        assert client.talk(data) == []
        assert (request := bench.one()).kind == CREDIT and request.id == credit
    fails(bench, client, b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500")
    bench.take()
    fails(bench, bench.consumer(), b"RDY -1\n", b"E_INVALID RDY could not parse count -1")
    bench.take()
    text = b"E_INVALID RDY count -1 out of range 0-2500"
    fails(bench, bench.consumer(), b"RDY 18446744073709551615\n", text)


def test_a_delivery_is_a_message_frame(bench: Bench) -> None:
    client = bench.consumer()
    bench.push(client.number, DELIVER, id=0x0123456789ABCDEF, pri=3, delay_ns=1_700_000_000_123_456_789, body=b"hello")
    head = struct.pack(">qH", 1_700_000_000_123_456_789, 3) + b"0123456789abcdef"
    assert client.frames() == [(MESSAGE, head + b"hello")]
    bench.push(client.number, DELIVER, id=1, pri=70000, delay_ns=0, body=b"")
    assert client.frames() == [(MESSAGE, struct.pack(">qH", 0, 65535) + b"0000000000000001")]


def test_fin_req_and_touch_go_to_the_consumers_worker(duo: Bench) -> None:
    client = duo.consumer(duo.name_at(1))
    name = b"00000000000000f0"
    requests = [
        (b"FIN %s\n", FINISH, 0), (b"FIN %s\r\n", FINISH, 0), (b"FIN %s more\n", FINISH, 0), (b"TOUCH %s\n", EXTEND, 0),
        (b"REQ %s 0\n", REQUEUE, 0), (b"REQ %s 1500\n", REQUEUE, 1500 * MS), (b"REQ %s \n", REQUEUE, 0),
        (b"REQ %s 99999999\n", REQUEUE, 3600 * SECOND), (b"REQ %s 9223372036855\n", REQUEUE, 0),
    ]  # fmt: skip
    assert client.talk(b"".join(form % name for form, _, _ in requests)) == []
    heard = [(r.kind, r.id, r.delay_ns, r.conn) for r in duo.take(1)]
    assert heard == [(kind, 0xF0, delay, client.number) for _, kind, delay in requests]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"FIN\n", b"E_INVALID FIN insufficient number of params"),
        (b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params"),
        (b"REQ " + ID + b"\n", b"E_INVALID REQ insufficient number of params"),
        (b"FIN 1\n", b"E_INVALID invalid message ID"),
        (b"FIN " + ID + b"0\n", b"E_INVALID invalid message ID"),
        (b"TOUCH \n", b"E_INVALID invalid message ID"),
        (b"REQ x y\n", b"E_INVALID invalid message ID"),
        (b"REQ " + ID + b" 1s\n", b"E_INVALID REQ could not parse timeout 1s"),
    ],
)
def test_what_is_wrong_with_a_message_command_ends_the_connection(bench: Bench, data: bytes, text: bytes) -> None:
    fails(bench, bench.consumer(), data, text)


@pytest.mark.parametrize("name", [b"0123456789ABCDEF", b"not-hexadecimal!", b"\xff\0\x80aaaaaaaaaaaaa"])
def test_an_id_that_is_none_of_ours_is_not_in_flight(bench: Bench, name: bytes) -> None:
    client = bench.consumer()
    assert client.talk(b"FIN %s\nTOUCH %s\nREQ %s 1\n" % (name, name, name)) == [
        (ERROR, b"E_FIN_FAILED FIN %s failed ID not in flight" % name),
        (ERROR, b"E_TOUCH_FAILED TOUCH %s failed ID not in flight" % name),
        (ERROR, b"E_REQ_FAILED REQ %s failed ID not in flight" % name),
    ]
    assert not client.is_closed and bench.take() == []


@pytest.mark.parametrize(("kind", "name"), [(FINISH, b"FIN"), (REQUEUE, b"REQ"), (EXTEND, b"TOUCH")])
def test_what_a_worker_refuses_is_an_error_that_does_not_end_the_connection(
    bench: Bench, kind: int, name: bytes
) -> None:
    client = bench.consumer()
    bench.push(client.number, REFUSED, id=0xAB, pri=kind, status=NOT_FOUND)
    bench.push(client.number, REFUSED, id=0xAB, pri=kind, status=NONE)
    assert client.frames() == [
        (ERROR, b"E_%s_FAILED %s 00000000000000ab failed ID not in flight" % (name, name)),
        (ERROR, b"E_%s_FAILED %s 00000000000000ab failed client does not own message" % (name, name)),
    ]
    assert not client.is_closed


def test_after_cls_nothing_new_comes_and_what_is_in_flight_can_be_finished(bench: Bench) -> None:
    client = bench.consumer()
    assert client.talk(b"CLS\n") == [(RESPONSE, b"CLOSE_WAIT")]
    assert (credit := bench.one()).kind == CREDIT and credit.id == 0
    assert client.talk(b"RDY 5\nRDY x\nFIN " + ID + b"\n") == []
    assert [r.kind for r in bench.take()] == [FINISH]
    assert client.talk(b"CLS\n") == []
    barrier = bench.one()
    assert barrier.kind == lib.MSG_BARRIER
    bench.push(client.number, REFUSED, id=0xAB, pri=FINISH, status=NOT_FOUND)
    bench.answer(0, barrier)
    assert client.frames() == [
        (ERROR, b"E_FIN_FAILED FIN 00000000000000ab failed ID not in flight"),
        (ERROR, b"E_INVALID cannot CLS in current state"),
    ]
    assert client.is_closed


def test_a_refusal_stands_between_the_replies_as_its_command_did_between_the_commands(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.consumer(topic=here)
    one = struct.pack(">I", 1) + b"x"
    assert client.talk(b"PUB %s\n%sFIN %s\nPUB %s\n%s" % (there, one, ID, there, one)) == []
    first, second = [r for r in duo.take(1) if r.kind == PUBLISH]
    finish, barrier = duo.take(0)
    assert (finish.kind, barrier.kind) == (FINISH, lib.MSG_BARRIER)
    duo.push(client.number, REFUSED, id=0xAB, pri=FINISH, status=NOT_FOUND)
    duo.answer(0, barrier)
    duo.answer(1, second)
    assert client.frames() == []
    duo.answer(1, first)
    assert client.frames() == [
        (RESPONSE, b"OK"),
        (ERROR, b"E_FIN_FAILED FIN 00000000000000ab failed ID not in flight"),
        (RESPONSE, b"OK"),
    ]


def test_refusals_come_in_order_though_replies_leave_between_them(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.consumer(topic=here)
    one = struct.pack(">I", 1) + b"x"
    assert client.talk(b"PUB %s\n%sFIN %s\nREQ %s 0\nPUB %s\n%s" % (there, one, ID, ID, there, one)) == []
    first, second = [r for r in duo.take(1) if r.kind == PUBLISH]
    *_, barrier = duo.take(0)
    duo.push(client.number, REFUSED, id=0xAB, pri=FINISH, status=NOT_FOUND)
    duo.answer(1, first)
    heard = client.frames()
    duo.push(client.number, REFUSED, id=0xAB, pri=REQUEUE, status=NOT_FOUND)
    heard += client.frames()
    duo.answer(0, barrier)
    duo.answer(1, second)
    ok, text = (RESPONSE, b"OK"), b"E_%s_FAILED %s 00000000000000ab failed ID not in flight"
    assert heard + client.frames() == [ok, *((ERROR, text % (name, name)) for name in (b"FIN", b"REQ")), ok]


def test_a_consumer_of_what_is_deleted_is_cut(bench: Bench) -> None:
    client = bench.consumer()
    bench.push(client.number, DISMISSED)
    assert client.is_closed and client.raw() == b""
    assert [r.kind for r in bench.take()] == [GONE]


def test_nothing_is_pushed_to_who_has_not_subscribed(bench: Bench) -> None:
    client = bench.client()
    bench.push(client.number, DELIVER, id=1, pri=1, body=b"x")
    bench.push(client.number, DISMISSED)
    assert client.frames() == [] and not client.is_closed


@pytest.mark.parametrize("status", [FULL, NO_SPACE, FAILED])
def test_a_subscription_that_was_refused_is_none(bench: Bench, status: int) -> None:
    client = bench.client()
    client.send(b"SUB t c\n")
    topic = bench.acceptor.bind(b"t")
    bench.acceptor.request(0, client.number, WorkerRequest(SUBSCRIBE, topic=topic, body=b"s"))
    bench.turn()
    bench.answer(0, bench.one(), status)
    bench.take_upcalls()
    bench.acceptor.resume(client.number)
    fails(bench, client, b"RDY 1\n", b"E_INVALID cannot RDY in current state")


def test_a_subscription_is_made_anew_when_its_worker_is_back(duo: Bench) -> None:
    client = duo.consumer(duo.name_at(1), rdy=42)
    duo.acceptor.peer_gone(1)
    assert client.talk(b"RDY 43\nFIN " + ID + b"\n") == []
    duo.worker[1].attach()
    duo.turn()
    subscribed, credit, finish = [r for r in duo.take(1) if r.kind != OPEN]
    assert (subscribed.kind, subscribed.conn, subscribed.body) == (SUBSCRIBE, client.number, b"subscription")
    assert (credit.kind, credit.id) == (CREDIT, 43)
    assert finish.kind == FINISH
    duo.answer(1, subscribed)
    assert duo.take_upcalls() == [] and client.frames() == []
    duo.push(client.number, DELIVER, worker=1, id=5, pri=1, body=b"x")
    assert [kind for kind, _ in client.frames()] == [MESSAGE]


LOST = [(b"FIN %s", b"FIN"), (b"REQ %s 1000", b"REQ"), (b"TOUCH %s", b"TOUCH")]


def lost(name: bytes) -> tuple[int, bytes]:
    return (ERROR, b"E_%s_FAILED %s %s failed ID not in flight" % (name, name, ID))


def test_what_a_worker_that_dies_had_not_come_to_is_refused_and_what_it_had_is_not(bench: Bench) -> None:
    client = bench.consumer()
    assert client.talk(b"FIN %s\n" % (b"c" * 16)) == []
    assert bench.one().kind == FINISH
    assert client.talk(b"".join(command % ID + b"\n" for command, _ in LOST)) == []
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.frames() == [lost(name) for _, name in LOST]
    assert not client.is_closed


def test_what_a_worker_refused_before_it_dies_in_the_middle_of_more_is_refused_once(bench: Bench) -> None:
    """It has done the first, and one of those that came together behind it."""
    client = bench.consumer()
    assert client.talk(b"FIN %s\n" % ID + b"TOUCH %s\n" % ID * 3) == []
    bench.worker[0].begin(messages=2, parts=1)
    for kind in (FINISH, EXTEND):
        bench.push(client.number, REFUSED, id=0xAB, pri=kind, status=NOT_FOUND)
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.frames() == [lost(name) for name in (b"FIN", b"TOUCH", b"TOUCH", b"TOUCH")]


def test_what_a_worker_refused_and_noted_before_it_dies_is_refused_once(bench: Bench) -> None:
    """It has given nothing of it back, and published nothing."""
    client = bench.consumer()
    commands = [command % ID + b"\n" for command, _ in LOST]
    for command in commands:
        assert client.talk(command) == []
    bench.worker[0].refuse()
    bench.worker[0].refuse()
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.frames() == [lost(name) for _, name in LOST]


def test_what_is_refused_when_a_worker_dies_is_heard_before_what_came_later_is_answered(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.consumer(topic=here)
    one = struct.pack(">I", 1) + b"x"
    taken = b"FIN %s\nPUB %s\n%s" % (b"c" * 16, there, one)
    assert client.talk(taken) == []
    assert [r.kind for r in duo.take(0)] == [FINISH, lib.MSG_BARRIER]
    assert client.talk((b"FIN %s\nPUB %s\n%s" % (ID, there, one)) * 2 + b"REQ %s 0\n" % ID) == []
    for request in [r for r in duo.take(1) if r.kind == PUBLISH]:
        duo.answer(1, request)
    assert client.frames() == []
    duo.acceptor.peer_gone(0)
    duo.turn()
    ok = (RESPONSE, b"OK")
    assert client.frames() == [ok, lost(b"FIN"), ok, lost(b"FIN"), ok, lost(b"REQ")]
    assert client.talk(b"PUB %s\n%s" % (there, one)) == []
    duo.answer(1, duo.one(1))
    assert client.frames() == [ok]


def test_what_waited_for_room_in_the_ring_of_a_worker_that_dies_is_refused_too(duo: Bench) -> None:
    client = duo.consumer(topic=duo.name_at(0))
    sent = 0
    for _ in range(100):  # the ring takes 18,000 of them, and then nothing more is read
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += client.socket.send(b"FIN %s\n" % ID * 1000)
        duo.turn()
    duo.acceptor.peer_gone(0)
    heard: list[tuple[int, bytes]] = []
    for _ in range(100):
        heard += client.frames()
        duo.turn()
    assert 18_000 < len(heard) <= sent // 21
    assert set(heard) == {lost(b"FIN")}


def test_a_subscription_that_cannot_be_made_anew_ends_the_connection(bench: Bench) -> None:
    client = bench.consumer()
    bench.acceptor.peer_gone(0)
    bench.worker[0].attach()
    bench.answer(0, next(r for r in bench.take() if r.kind == SUBSCRIBE), FULL)
    assert client.is_closed


def test_what_has_left_is_reported_in_large_pieces_and_never_too_much(bench: Bench) -> None:
    client = bench.consumer()
    delivered = reported = 0
    for i in range(400):
        bench.push(client.number, DELIVER, id=i, pri=1, body=b"x" * 2000)
        delivered += MESSAGE_BYTES + 2000
        client.frames()
        sent = [r for r in bench.take() if r.kind == SENT]
        assert all(r.id >= REPORT and r.conn == client.number for r in sent)
        reported += sum(r.id for r in sent)
        assert reported <= delivered
        assert delivered - reported < 2 * REPORT
    assert reported > 0


def test_what_a_client_does_not_read_is_not_reported(bench: Bench) -> None:
    client = bench.consumer()
    delivered = reported = received = 0
    while delivered < WINDOW - 5000:
        bench.push(client.number, DELIVER, id=1, pri=1, body=b"x" * 4000)
        delivered += MESSAGE_BYTES + 4000
        reported += sum(r.id for r in bench.take() if r.kind == SENT)
    assert reported < WINDOW * 3 // 4
    while received < delivered // 4048 * 4034:
        received += len(client.raw())
        bench.turn()
        reported += sum(r.id for r in bench.take() if r.kind == SENT)
    assert delivered - 2 * REPORT <= reported <= delivered


def test_many_deliveries_in_one_turn_arrive_whole_and_in_order(bench: Bench) -> None:
    client = bench.consumer(tcp=True)
    rng = random.Random(2)
    bodies = [rng.randbytes(rng.choice([1, 100, 1000, 20000, 60000])) for _ in range(60)]
    for i, body in enumerate(bodies):
        bench.push(client.number, DELIVER, id=i, pri=1, body=body, turn=False)
    frames: list[tuple[int, bytes]] = []
    for _ in range(1000):
        bench.turn(1)
        frames += client.frames()
        if len(frames) == len(bodies):
            break
    assert [(kind, int(data[10:26], 16), data[26:]) for kind, data in frames] == [
        (MESSAGE, i, body) for i, body in enumerate(bodies)
    ]
