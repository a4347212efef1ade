"""Where subscriptions begin and go on, by ring messages alone: what a topic retains, seeks, readers."""

from __future__ import annotations

import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, RESERVE, SHARDS, WATCH
from tests.shards.positions import (
    EARLIEST,
    LATEST,
    SEQ,
    TIME,
    begin,
    finish,
    live,
    position,
    publish,
    read,
    seek,
    seqs,
)
from tests.shards.subscriptions import Channels, drop_oldest, roll
from tests.shards.test_shard_protocol import HEAD, ask, deliveries

# --- beginning ------------------------------------------------------------------------------------------------------


def test_a_channel_begins_where_it_is_asked_to(bench: Channels) -> None:
    assert publish(bench, count=3) == [0, 1, 2]
    bench.turn(5)
    middle = bench.wall
    assert publish(bench, count=3) == [3, 4, 5]
    for conn, (start, at, expected) in enumerate(
        [(EARLIEST, 0, 0), (LATEST, 0, 6), (SEQ, 2, 2), (SEQ, 0, 0), (SEQ, 99, 6), (TIME, middle, 3),
         (TIME, 0, 0), (TIME, 2**63, 6), (TIME, bench.wall, 3)], 1,
    ):  # fmt: skip
        answer = begin(bench, conn, start, at, channel=f"c{conn}")
        assert (answer.status, answer.seq) == (OK, expected)
        assert seqs(bench.turn(), conn) == list(range(expected, 6))
    assert publish(bench) == [6]
    assert sorted(seqs(bench.turn())) == [6] * 9
    bench.restart()
    assert begin(bench, 1, LATEST, channel="c2").seq == 7, "the channel is there, and stands where it stood"
    assert seqs(bench.turn()) == [6]


def test_latest_takes_nothing_over_and_without_a_start_all_that_waits_is_taken(bench: Channels) -> None:
    waiting = [bench.pub("t")[0] for _ in range(3)]
    assert begin(bench, 1, LATEST).seq == 3
    assert bench.turn() == []
    bench.restart()
    assert begin(bench, 1, LATEST).seq == 3
    assert bench.turn() == []
    assert begin(bench, 2, EARLIEST, channel="d").seq == 0
    assert [id for _, id, _ in deliveries(bench.turn())] == waiting


def test_what_nobody_waits_for_is_retained_for_whoever_asks(bench: Channels) -> None:
    publish(bench, count=4)
    assert bench.catalog()["t"].depth == 0, "nothing waits"
    assert live(bench) == 0
    bench.restart()
    assert bench.sub(1, "t", "plain", credit=9) == OK
    assert bench.turn() == []
    begin(bench, 2, EARLIEST)
    assert seqs(bench.turn()) == [0, 1, 2, 3]


def test_jobs_stay_the_tubes_and_are_seen_from_the_earliest(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.pub("t", durable=False)
    assert begin(bench, 1, LATEST).status == OK
    assert bench.turn() == []
    publish(bench)
    assert seqs(bench.turn()) == [1]
    begin(bench, 2, EARLIEST, channel="d")
    assert seqs(bench.turn()) == [0, 1]
    jobs = [ask(bench, RESERVE, 5, delay=0) for _ in range(2)]
    assert [a.status for a in jobs] == [OK, OK]
    assert [ask(bench, lib.MSG_DELETE, 5, id=a.id).status for a in jobs] == [OK, OK]
    finish(bench, 1, 1)
    finish(bench, 2, 0, 1)
    assert live(bench) == 0
    seek(bench, EARLIEST)
    assert seqs(bench.turn()) == [0, 1]
    bench.restart()


# --- seeking --------------------------------------------------------------------------------------------------------


def test_what_is_finished_comes_back_after_a_seek_also_across_a_restart(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    publish(bench, count=6)
    bench.turn()
    finish(bench, 1, *range(6))
    assert position(bench, "c").unfinished == 6
    assert seek(bench, SEQ, 2).seq == 2
    assert seqs(bench.turn()) == [2, 3, 4, 5]
    finish(bench, 1, 2, 4)
    for _ in range(2):
        bench.restart()
        begin(bench, 1, LATEST)
        assert seqs(bench.turn()) == [3, 5]
    finish(bench, 1, 3, 5)
    bench.restart()
    assert seek(bench, EARLIEST).seq == 0
    bench.restart()
    assert position(bench, "c").depth == 6
    begin(bench, 1, LATEST, credit=2)
    assert seqs(bench.turn()) == [0, 1]
    bench.restart()
    begin(bench, 1, LATEST)
    publish(bench)
    assert sorted(seqs(bench.turn())) == [0, 1, 2, 3, 4, 5, 6]


def test_a_seek_forwards_finishes_what_it_passes(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, credit=2)
    begin(bench, 2, EARLIEST, credit=0, channel="other")
    publish(bench, count=6)
    assert seqs(bench.turn()) == [0, 1]
    assert seek(bench, SEQ, 4).seq == 4
    assert seqs(bench.turn()) == [4, 5], "what it had in flight is its no more"
    assert bench.fin(1, SHARDS)[0].status == lib.STATUS_NOT_FOUND
    finish(bench, 1, 0, 1)
    bench.restart()
    begin(bench, 1, LATEST)
    assert seqs(bench.turn()) == [4, 5]
    assert seek(bench, LATEST).seq == 6
    finish(bench, 1, 4, 5)
    bench.restart()
    begin(bench, 1, LATEST)
    assert seqs(bench.turn()) == []
    begin(bench, 2, LATEST, channel="other")
    assert seqs(bench.turn()) == [0, 1, 2, 3, 4, 5]


def test_a_seek_may_dismiss_all_consumers(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, consumer=7)
    begin(bench, 2, EARLIEST, consumer=8)
    publish(bench, count=2)
    bench.turn()
    seek(bench, EARLIEST, flags=lib.MSG_DISMISS)
    assert lib.DISMISSED_MOVED != lib.DISMISSED_DELETED
    answers = bench.turn()
    told = sorted((a.conn, a.slot, a.pri) for a in answers if a.kind == lib.MSG_DISMISSED)
    assert told == [(1, 7, lib.DISMISSED_MOVED), (2, 8, lib.DISMISSED_MOVED)]
    begin(bench, 1, LATEST, consumer=7)
    assert seqs(bench.turn()) == [0, 1]


def test_a_seek_of_what_is_not_there_says_so(bench: Channels) -> None:
    assert seek(bench, EARLIEST).status == lib.STATUS_NOT_FOUND
    publish(bench)
    assert seek(bench, EARLIEST).status == lib.STATUS_NONE
    begin(bench, 1, EARLIEST)
    assert seek(bench, 4).status == lib.STATUS_INVALID
    assert begin(bench, 2, 4, channel="d").status == lib.STATUS_NO_SPACE


def test_a_message_with_a_delay_is_not_lost_by_a_seek(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    publish(bench)
    publish(bench, delay=10)
    publish(bench)
    assert seqs(bench.turn()) == [0, 2]
    seek(bench, EARLIEST)
    assert seqs(bench.turn()) == [0, 2]
    seek(bench, LATEST)
    bench.restart()
    begin(bench, 1, LATEST)
    assert seqs(bench.turn(11)) == [], "it was passed"
    seek(bench, SEQ, 1)
    assert seqs(bench.turn()) == [1, 2]


def test_what_a_channel_was_set_back_to_stays_though_retention_is_over(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    publish(bench, count=3)
    bench.turn()
    finish(bench, 1, 0, 1, 2)
    roll(bench)
    assert lib.worker_dead_segments(bench.worker, 0) > 0
    for _ in range(2):
        assert seek(bench, SEQ, 1).seq == 1
        assert lib.worker_dead_segments(bench.worker, 0) == 0
        assert live(bench) > 0
        bench.turn()
        bench.restart()
    assert begin(bench, 1, LATEST).status == OK
    assert seqs(bench.turn()) == [1, 2]
    finish(bench, 1, 1, 2)
    roll(bench)
    assert lib.worker_dead_segments(bench.worker, 0) > 0
    publish(bench)
    drop_oldest(bench)
    assert seek(bench, EARLIEST).seq == 3
    assert seqs(bench.turn()) == [3]


def test_what_was_compacted_is_brought_back_from_its_new_place(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    begin(bench, 2, EARLIEST, channel="slow", credit=0)
    publish(bench, count=3)
    assert seqs(bench.turn()) == [0, 1, 2]
    finish(bench, 1, 0, 1, 2)
    roll(bench)
    drop_oldest(bench)
    for _ in range(2):
        seek(bench, EARLIEST)
        begin(bench, 1, LATEST)
        assert seqs(bench.turn(), 1) == [0, 1, 2]
        bench.restart()
        begin(bench, 1, LATEST)
        assert seqs(bench.turn(), 1) == [0, 1, 2]
        finish(bench, 1, 0, 1, 2)
    begin(bench, 2, LATEST, channel="slow")
    assert seqs(bench.turn(), 2) == [0, 1, 2]


# --- readers --------------------------------------------------------------------------------------------------------


def test_a_reader_reads_from_its_place_and_holds_nothing(bench: Channels) -> None:
    publish(bench, count=5)
    assert read(bench, 1, SEQ, 2, credit=2).seq == 2
    assert seqs(bench.turn()) == [2, 3]
    assert live(bench) == 0
    assert seqs(finish(bench, 1, 2)) == [4]
    publish(bench)
    finish(bench, 1, 3)
    assert position(bench, "r").unfinished == 4
    figures = bench.catalog()["t"].channels["r"]
    assert (figures.depth, figures.in_flight) == (0, 2)
    bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_ALL)
    assert seqs(bench.turn()) == [4, 5]
    bench.raw(GONE, 1)
    bench.turn()
    assert bench.catalog()["t"].channels == {}
    read(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [0, 1, 2, 3, 4, 5]
    bench.restart()
    assert bench.catalog()["t"].channels == {}


def test_a_reader_is_behind_by_any_number(bench: Channels) -> None:
    read(bench, 1, LATEST, credit=0)
    bodies = [b"m"] * 3000
    for _ in range(4):
        bench.mpub("t", bodies)
    assert bench.catalog()["t"].depth == 12000, "they wait for a channel"
    bench.credit(1, 1)
    assert position(bench, "r").depth == 11999
    assert bench.sub(2, "t", "c", credit=5) == OK
    assert seqs(bench.turn(), 2) == [0, 1, 2, 3, 4]


def test_a_reader_misses_what_went_with_its_segment(bench: Channels) -> None:
    read(bench, 1, EARLIEST, credit=1)
    publish(bench, count=3)
    assert seqs(bench.turn()) == [0]
    roll(bench)
    publish(bench)
    drop_oldest(bench)
    bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_ALL)
    assert seqs(bench.turn() + bench.turn()) == [3], "what it had in flight is gone too"
    first = position(bench).first
    assert first == 3
    assert ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=0).status == lib.STATUS_NOT_FOUND


def test_readers_and_channels_are_not_one_another(bench: Channels) -> None:
    read(bench, 1, EARLIEST)
    assert begin(bench, 2, EARLIEST, channel="r").status == lib.STATUS_INVALID
    assert bench.sub(3, "t", "r") == lib.STATUS_INVALID
    begin(bench, 4, EARLIEST)
    assert read(bench, 5, EARLIEST, channel="c").status == lib.STATUS_INVALID
    assert read(bench, 6, EARLIEST).status == OK


def test_a_seek_of_a_reader(bench: Channels) -> None:
    read(bench, 1, LATEST)
    publish(bench, count=3)
    assert seqs(bench.turn()) == [0, 1, 2]
    assert seek(bench, SEQ, 1, channel="r").seq == 1
    assert seqs(bench.turn()) == [1, 2]
    assert seek(bench, SEQ, 1, channel="r", flags=lib.MSG_DISMISS).status == OK
    assert bench.catalog()["t"].channels == {}


def test_a_channel_is_made_where_it_is_to_begin_and_left_where_it_is(bench: Channels) -> None:
    def make(start: int, at: int = 0, name: bytes = b"t\nc") -> int:
        slot = bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE_AT, delay=start, ttr=at, body=name)
        answers = bench.turn()
        bench.early += [a for a in answers if a.slot != slot]
        (status,) = [a.status for a in answers if a.slot == slot]
        return int(status)

    assert make(EARLIEST) == lib.STATUS_NOT_FOUND, "there is no such topic"
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    publish(bench, count=4)
    assert make(TIME + 1) == make(EARLIEST, name=b"t") == lib.STATUS_INVALID
    for start, at, first, channel in ((EARLIEST, 0, 0, "c"), (SEQ, 2, 2, "d"), (LATEST, 0, 4, "e")):
        assert make(start, at, f"t\n{channel}".encode()) == OK
        bench.restart()
        assert position(bench, channel).cursor == first
    begin(bench, 1, LATEST)
    assert seqs(bench.turn(), 1) == [0, 1, 2, 3]
    finish(bench, 1, 0, 1)
    assert make(EARLIEST) == OK
    bench.early.clear()
    assert make(LATEST) == OK
    assert not seqs(bench.early)
    assert position(bench, "c").unfinished == 2, "it is where it was, and has its consumer"
    assert bench.catalog()["t"].channels["c"].consumers == 1


# --- the ends of a topic --------------------------------------------------------------------------------------------


def test_a_topic_tells_its_ends_and_a_channel_how_far_it_is(bench: Channels) -> None:
    assert ask(bench, lib.MSG_POSITION, topic=bench.topic("t")).status == lib.STATUS_NOT_FOUND
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    empty = position(bench)
    assert empty.incarnation > 0 and (empty.first, empty.next, empty.last_time) == (0, 0, 0)
    assert ask(bench, lib.MSG_POSITION, topic=bench.topic("t"), body=b"c").status == lib.STATUS_NONE
    begin(bench, 1, EARLIEST, credit=3)
    publish(bench, count=3)
    batch = HEAD.pack(1, lib.HEADERS_PULSAR, 7, 0, 0) + b"hbody"
    publish(bench, body=batch, flags=lib.MSG_HEADERS)
    bench.turn()
    finish(bench, 1, 1)
    for _ in range(2):
        p = position(bench, "c")
        assert (p.incarnation, p.began, p.first, p.next) == (empty.incarnation, 0, 0, 4)
        assert (p.last_time, p.tag, p.parts) == (bench.wall, lib.HEADERS_PULSAR, 7)
        assert (p.unfinished, p.cursor) == (0, 4)
        peeked = ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=3)
        assert (peeked.status, peeked.seq, peeked.body, peeked.delay) == (OK, 3, b"body", bench.wall)
        assert ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=3, flags=lib.MSG_HEADERS).body == batch
        assert ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=1).status == OK, "finished, and retained"
        assert ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=4).status == lib.STATUS_NOT_FOUND
        bench.restart()
        begin(bench, 1, LATEST)
        bench.turn()


def test_of_a_message_only_what_precedes_its_contents_may_be_asked_for(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    long = lib.HEADERS_MAX_BYTES
    kept = [HEAD.pack(1, lib.HEADERS_PULSAR, 7, 0, 0) + b"h"]
    kept += [HEAD.pack(long, lib.HEADERS_PULSAR, 0, 0, 0) + bytes(long)]
    publish(bench, body=b"x" * 1000)
    for headers in kept:
        publish(bench, body=headers + b"x" * 1000, flags=lib.MSG_HEADERS)
    bench.turn()
    for seq, expected in enumerate([b"", kept[0], kept[1] + b"x" * 1000]):
        head = ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=seq, flags=lib.MSG_HEADERS | lib.MSG_HEAD)
        assert (head.status, head.seq, head.delay, head.body) == (OK, seq, bench.wall, expected)


@pytest.mark.parametrize("flags", [0, lib.MSG_HEADERS])
def test_of_a_message_the_beginning_may_be_asked_for(bench: Channels, flags: int) -> None:
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    headers, body = HEAD.pack(1, lib.HEADERS_PULSAR, 7, 0, 0) + b"h", b"body of a message"
    publish(bench, body=headers + body, flags=lib.MSG_HEADERS)
    bench.turn()
    whole = headers + body if flags else body
    for most in (1, 4, len(whole) - 1, len(whole), 1 << 40, 0):
        peeked = ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=0, id=most, flags=flags)
        assert (peeked.status, peeked.body, peeked.pri) == (OK, whole[: most or None], len(whole))


def test_an_incarnation_rises_when_a_topic_is_made_again_and_a_seq_is_never_another_message(bench: Channels) -> None:
    publish(bench, count=2)
    numbers = [position(bench).incarnation]
    for _ in range(3):
        assert bench.change(lib.CHANGE_DELETE, "t") == OK
        bench.restart()
        begin(bench, 1, EARLIEST)
        assert bench.turn() == []
        numbers.append(position(bench).incarnation)
        (seq,) = publish(bench)
        assert seqs(bench.turn()) == [seq]
        assert position(bench).began == seq >= len(numbers)
        bench.raw(GONE, 1)
    bench.restart()
    assert position(bench).incarnation == numbers[-1]
    assert sorted(set(numbers)) == numbers


def test_a_topic_without_messages_or_channels_stays(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    before = position(bench)
    for _ in range(4):
        roll(bench)
        bench.restart()
    drop_oldest(bench)
    bench.restart()
    assert position(bench) == before


def test_nothing_is_published_to_a_topic_that_is_terminated(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    publish(bench)
    assert bench.change(lib.CHANGE_TERMINATE, "t") == OK
    one = struct.pack(">I", 1) + b"x"
    for _ in range(2):
        topic = bench.topic("t")
        assert ask(bench, lib.MSG_PUBLISH, 999, topic=topic, id=bench.next_id).status == lib.STATUS_TERMINATED
        many = ask(bench, lib.MSG_PUBLISH_MANY, 999, topic=topic, id=bench.next_id, pri=1, body=one)
        assert many.status == lib.STATUS_TERMINATED
        assert position(bench).terminated == 1
        bench.restart()
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [0]
    assert bench.change(lib.CHANGE_TERMINATE, "other") == lib.STATUS_NOT_FOUND
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    assert publish(bench) != []
