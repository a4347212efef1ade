"""A subscription's consumers, by ring messages alone: what is delivered to whom, how often, and how much at a time. The
test is the acceptor, and time is what the test says."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mq_shards.csrc._core import lib

from tests.shards.bench import OK, OPEN, SHARDS
from tests.shards.subscriptions import GONE, Channels, delivered


def test_messages_before_the_first_channel_wait_for_it(bench: Channels) -> None:
    ids = [bench.pub("t", b"%d" % n)[0] for n in range(5)]
    assert bench.catalog()["t"].depth == 5
    assert bench.sub(1, "t", "c", credit=10) == OK
    answers = bench.turn()
    assert delivered(answers) == [(id, 1) for id in ids]
    assert [a.body for a in answers] == [b"%d" % n for n in range(5)]
    assert bench.catalog()["t"].depth == 0
    assert bench.sub(2, "t", "late", credit=10) == OK
    assert bench.turn() == []
    id, pushed = bench.pub("t")
    assert sorted((a.conn, a.id) for a in pushed) == [(1, id), (2, id)]


def test_waiting_messages_outlive_a_restart(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(3)] + bench.mpub("t", [b"a", b"bc"])
    bench.restart()
    assert bench.catalog()["t"].depth == 5
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 1) for id in ids]


def test_credit_bounds_what_is_in_flight(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(10)]
    bench.sub(1, "t", "c")
    assert delivered(bench.credit(1, 3)) == [(id, 1) for id in ids[:3]]
    assert bench.turn() == []
    assert delivered(bench.fin(1, ids[0])) == [(ids[3], 1)]
    assert bench.credit(1, 1) == []
    assert bench.fin(1, ids[1], ids[2]) == []
    assert delivered(bench.fin(1, ids[3])) == [(ids[4], 1)]
    assert bench.credit(1, 0) == []
    assert bench.fin(1, ids[4]) == []
    channel = bench.catalog()["t"].channels["c"]
    assert (channel.depth, channel.in_flight, channel.messages) == (5, 0, 10)


def test_consumers_of_a_channel_share_it_in_turns(bench: Channels) -> None:
    for conn in (1, 2, 3):
        bench.sub(conn, "t", "c", credit=100)
    bench.turn()
    got = [bench.pub("t")[1] for _ in range(9)]
    assert sorted(a.conn for answers in got for a in answers) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_what_is_not_finished_in_time_comes_again(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10, timeout=2)
    id, pushed = bench.pub("t")
    assert delivered(pushed) == [(id, 1)]
    assert bench.turn(1.9) == []
    bench.raw(lib.MSG_EXTEND, 1, id=id)
    assert bench.turn(1.9) == []
    assert delivered(bench.turn(0.2)) == [(id, 2)]
    assert bench.catalog()["t"].channels["c"].timeouts == 1
    assert bench.fin(1, id) == []
    assert [(a.kind, a.status) for a in bench.fin(1, id)] == [(lib.MSG_REFUSED, lib.STATUS_NOT_FOUND)]


def test_extending_has_an_end(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10, timeout=600)
    id, _ = bench.pub("t")
    bench.turn(500)
    bench.raw(lib.MSG_EXTEND, 1, id=id)
    assert bench.turn(399) == []
    assert delivered(bench.turn(2)) == [(id, 2)]


def test_another_consumer_may_not_finish_it(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1)
    bench.sub(2, "t", "c")
    id, _ = bench.pub("t")
    assert [(a.conn, a.kind, a.status) for a in bench.fin(2, id)] == [(2, lib.MSG_REFUSED, lib.STATUS_NONE)]
    assert bench.fin(1, id) == []


def test_requeued_messages_come_at_once_or_after_their_delay(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1)
    id, _ = bench.pub("t")
    assert delivered(bench.req(1, id)) == [(id, 2)]
    assert bench.req(1, id, delay=5) == []
    assert bench.catalog()["t"].channels["c"].deferred == 1
    assert bench.turn(4.9) == []
    assert delivered(bench.turn(0.2)) == [(id, 3)]
    assert bench.catalog()["t"].channels["c"].requeues == 2


def test_a_message_requeued_for_ever_does_not_hold_up_the_others(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(5)]
    bench.sub(1, "t", "c", credit=1)
    seen, answers = [], bench.turn()
    while len(set(seen)) < 5:
        (id, _), *_ = delivered(answers)
        seen.append(id)
        assert len(seen) < 30
        answers = bench.req(1, id)
    assert set(seen) == set(ids)


def test_a_consumer_that_goes_gives_its_messages_back(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    id, _ = bench.pub("t")
    bench.raw(GONE, 1)
    bench.turn()
    bench.sub(2, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 2)]


def test_attempts_are_counted_on_after_a_restart_and_finished_messages_stay_finished(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100)
    ids = [bench.pub("t")[0] for _ in range(6)]
    bench.fin(1, ids[0], ids[2], ids[3])
    assert delivered(bench.req(1, ids[4])) == [(ids[4], 2)]
    bench.req(1, ids[5], delay=1000)
    waiting = bench.pub("u")[0]
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert sorted(delivered(bench.turn())) == [(ids[1], 2), (ids[4], 3)]
    assert bench.catalog()["t"].channels["c"].deferred == 1
    bench.fin(1, ids[1], ids[4])
    assert delivered(bench.turn(990)) == []
    assert delivered(bench.turn(11)) == [(ids[5], 2)]
    bench.fin(1, ids[5])
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert bench.turn() == []
    bench.sub(2, "u", "c", credit=1)
    assert delivered(bench.turn()) == [(waiting, 1)]


def test_a_channel_takes_only_so_many_consumers(bench: Channels) -> None:
    assert bench.sub(1, "t", "c", max_consumers=1) == OK
    assert bench.sub(2, "t", "c", max_consumers=1) == lib.STATUS_FULL
    assert bench.sub(2, "t", "d", max_consumers=1) == OK


def test_a_sample_is_delivered_and_the_rest_is_finished(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100000, sample=30)
    ids: list[int] = []
    for _ in range(5):
        ids += bench.mpub("t", [b"x"] * 1000)
    got: list[Any] = []
    while bench.catalog()["t"].channels["c"].depth > 0:
        got += delivered(bench.turn())
    in_flight = bench.catalog()["t"].channels["c"].in_flight
    assert 1250 < in_flight < 1750
    assert len(got) <= in_flight
    bench.restart()
    assert bench.catalog()["t"].channels["c"].depth == in_flight


def test_a_client_that_takes_nothing_gets_no_more_than_the_window(bench: Channels) -> None:
    body = b"x" * 100_000
    bench.sub(1, "t", "c", credit=1000)
    got = 0
    for _ in range(20):
        got += len(delivered(bench.pub("t", body)[1]))
    assert got == 11  # the message that fills it is still sent
    bench.raw(lib.MSG_SENT, 1, id=5 * (48 + len(body)))
    assert len(delivered(bench.turn())) == 5


def test_windows_are_short_while_all_consumers_together_have_been_sent_too_much(bench: Channels) -> None:
    most, short, body = 4 << 20, lib.SHORT_WINDOW_BYTES, b"x" * 9952
    counted, consumers, messages = 48 + len(body), range(1, 31), 150
    lib.worker_push_at_most(bench.worker, most)
    for conn in consumers:
        bench.sub(conn, "t", f"c{conn}", credit=1000)
    came = Counter[int]()
    for _ in range(messages):
        came.update(answer.conn for answer in bench.pub("t", body)[1] if answer.kind == lib.MSG_DELIVER)
    assert most <= came.total() * counted <= most + len(consumers) * (short + counted)
    assert all(came[conn] * counted >= short for conn in consumers), "nobody starves"
    # Who reads goes on, in steps of the short window; what of others does not leave stays where it is.
    for _ in range(messages * counted // short):
        bench.raw(lib.MSG_SENT, 1, id=short)
        sent = Counter(answer.conn for answer in bench.turn() if answer.kind == lib.MSG_DELIVER)
        assert set(sent) <= {1} and sent[1] * counted <= short + counted
        came += sent
    assert came[1] == messages
    # What was on its way to those that go counts no more: there are whole windows again.
    for conn in consumers:
        bench.raw(GONE, conn)
    bench.turn()
    bench.sub(100, "t", "c2", credit=1000)
    whole = delivered(bench.turn()) + delivered(bench.turn())  # the ring is as small as a window
    assert lib.WINDOW_BYTES <= len(whole) * counted < lib.WINDOW_BYTES + counted


def test_the_wrong_topic_number_is_refused(bench: Channels) -> None:
    slot = bench.raw(lib.MSG_PUBLISH_MANY, 1, topic=77, id=SHARDS, pri=1, body=b"\0\0\0\1x")
    assert [(a.slot, a.status) for a in bench.turn()] == [(slot, lib.STATUS_TOO_MANY)]
    bench.send(OPEN, topic=1, id=0, body=b"t")
    slot = bench.raw(lib.MSG_PUBLISH_MANY, 1, topic=1, id=SHARDS, pri=2, body=b"\0\0\0\1x")
    assert [(a.slot, a.status) for a in bench.turn()] == [(slot, lib.STATUS_NO_SPACE)]
    assert "t" not in bench.catalog()
