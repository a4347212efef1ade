"""Where subscriptions begin and go on, by ring messages alone: what a topic retains, seeks, readers, permits."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import GONE, OK, RESERVE, SECOND, SHARDS, WATCH, Answer
from tests.shards.subscriptions import Channels, drop_oldest, roll
from tests.shards.test_naming import records
from tests.shards.test_packed import publish as publish_batch
from tests.shards.test_shard_protocol import HEAD, ask, deliveries, got, join, told

POSITION = struct.Struct("<QQQQQHHIQQQQ48x")
EARLIEST, LATEST, SEQ, TIME = lib.START_EARLIEST, lib.START_LATEST, lib.START_SEQ, lib.START_TIME


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels()
    yield b
    b.dispose()


@dataclass(frozen=True)
class Position:
    incarnation: int
    began: int
    first: int
    next: int
    last_time: int
    tag: int
    parts: int
    terminated: int
    cursor: int
    unfinished: int
    depth: int
    in_flight: int


def publish(bench: Channels, name: str = "t", body: bytes = b"x", count: int = 1, flags: int = 0,
            delay: int = 0) -> list[int]:  # fmt: skip
    """With MSG_RETAIN; the seqs."""
    seqs = []
    for _ in range(count):
        slot = bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_RETAIN | flags, topic=bench.topic(name),
                         id=bench.next_id, pri=1024, delay=delay * SECOND, body=body)  # fmt: skip
        bench.next_id += SHARDS
        answers = bench.turn()
        seqs += [a.seq for a in answers if a.slot == slot and a.status == OK]
        bench.early += [a for a in answers if a.slot != slot]
    return seqs


def begin(
    bench: Channels, conn: int, start: int, at: int = 0, *, name: str = "t", channel: str = "c", credit: int = 100,
    flags: int = 0, consumer: int = 0,
) -> Answer:  # fmt: skip
    flags |= lib.SUBSCRIBE_START
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, len(channel), flags, 4)
    body = head + channel.encode() + b"{ab}" + struct.pack("<IIQ", start, 0, at)
    slot = bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic(name), pri=consumer, body=body)
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot and a.kind == lib.MSG_SUBSCRIBE]
    bench.early += [a for a in answers if a is not answer]
    if credit and answer.status == OK:
        bench.raw(lib.MSG_CREDIT, conn, id=credit, consumer=consumer)
    return answer


def read(bench: Channels, conn: int, start: int, at: int = 0, credit: int = 100, channel: str = "r") -> Answer:
    return begin(bench, conn, start, at, credit=credit, channel=channel, flags=lib.SUBSCRIBE_EPHEMERAL)


def seqs(answers: Sequence[Answer], conn: int | None = None) -> list[int]:
    return [a.seq for a in answers if a.kind == lib.MSG_DELIVER and conn in (None, a.conn)]


def seek(bench: Channels, start: int, at: int = 0, *, channel: str = "c", flags: int = 0) -> Answer:
    slot = bench.raw(lib.MSG_SEEK, 998, topic=bench.topic("t"), pri=start, ttr=at, flags=flags, body=channel.encode())
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot and a.kind == lib.MSG_SEEK]
    bench.early += [a for a in answers if a is not answer]
    return answer


def finish(bench: Channels, conn: int, *of: int, flags: int = 0, body: bytes = b"") -> list[Answer]:
    for seq in of:
        bench.raw(lib.MSG_FINISH, conn, flags=lib.MSG_BY_SEQ | flags, ttr=seq, body=body)
    return bench.turn()


def position(bench: Channels, channel: str = "", name: str = "t") -> Position:
    answer = ask(bench, lib.MSG_POSITION, 997, topic=bench.topic(name), body=channel.encode())
    assert answer.status == OK
    return Position(*POSITION.unpack(answer.body))


def live(bench: Channels) -> int:
    """Messages of the first segment that may not go."""
    return int(lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")))


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


def test_jobs_stay_the_tubes_and_are_seen_from_earliest_only_if_retained(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.pub("t", durable=False)
    assert begin(bench, 1, LATEST).status == OK
    assert bench.turn() == []
    publish(bench)
    assert seqs(bench.turn()) == [1]
    begin(bench, 2, EARLIEST, channel="d")
    assert seqs(bench.turn()) == [1]
    jobs = [ask(bench, RESERVE, 5, delay=0) for _ in range(2)]
    assert [a.status for a in jobs] == [OK, OK]
    assert [ask(bench, lib.MSG_DELETE, 5, id=a.id).status for a in jobs] == [OK, OK]
    finish(bench, 1, 1)
    finish(bench, 2, 1)
    assert live(bench) == 0
    seek(bench, EARLIEST)
    assert seqs(bench.turn()) == [1]
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


# --- by seq, and permits --------------------------------------------------------------------------------------------


def test_a_message_is_finished_by_its_seq_whoever_has_it(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, credit=2)
    begin(bench, 2, EARLIEST, credit=2)
    publish(bench, count=5)
    first = seqs(bench.turn(), 1)
    assert finish(bench, 2, 77, 4, 4) == [], (
        "nothing is said of what is not there, and what was not delivered is not finished"
    )
    assert len(seqs(finish(bench, 2, first[0]))) == 1
    bench.raw(GONE, 1)
    bench.turn()
    finish(bench, 2, *range(5))
    assert position(bench, "c").unfinished == 5


def test_a_message_is_requeued_by_its_seq_if_the_consumer_has_it(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    publish(bench, count=2)
    bench.turn()
    for seq in (1, 9):
        bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_BY_SEQ, ttr=seq)
    assert [(a.seq, a.pri) for a in bench.turn()] == [(1, 2)]


def test_what_a_consumer_has_when_it_goes_need_not_count(bench: Channels) -> None:
    for conn in (1, 2):
        begin(bench, conn, EARLIEST, flags=lib.SUBSCRIBE_UNCOUNTED)
        if conn == 1:
            publish(bench)
        assert [(a.seq, a.pri) for a in bench.turn()] == [(0, 1)]
        bench.raw(GONE, conn)
        bench.turn()
    begin(bench, 3, EARLIEST)
    bench.turn()
    bench.raw(GONE, 3)
    begin(bench, 4, EARLIEST)
    assert [(a.seq, a.pri) for a in bench.turn()] == [(0, 2)]


def permit(bench: Channels, conn: int, more: int) -> list[int]:
    bench.raw(lib.MSG_CREDIT, conn, flags=lib.MSG_PERMITS, id=more)
    return seqs(bench.turn(), conn)


def test_permits_are_counted_in_parts_and_may_become_less_than_nothing(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, credit=0, flags=lib.SUBSCRIBE_HEADERS)
    batch = HEAD.pack(0, lib.HEADERS_PULSAR, 3, 0, 0) + b"abc"
    publish(bench, body=batch, count=6, flags=lib.MSG_HEADERS)
    assert permit(bench, 1, 4) == [0, 1]
    assert permit(bench, 1, 2) == []
    assert finish(bench, 1, 0) == [], "to finish gives none back"
    assert permit(bench, 1, 1) == [2]
    finish(bench, 1, 1, flags=lib.MSG_PARTS, body=(0b100).to_bytes(8, "little"))
    bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_BY_SEQ, ttr=1)
    assert seqs(bench.turn()) == []
    # -2: what comes again has one part left, so 4 are enough for it and one more.
    assert permit(bench, 1, 4) == [1, 3]
    bench.credit(1, 3)
    assert permit(bench, 1, 2**64 - 1) == [], "and no more in flight than that"
    assert seqs(bench.credit(1, 4)) == [4]
    assert permit(bench, 1, 2**64 - 1) == []


def test_the_active_one_is_picked_among_those_of_the_first_priority(bench: Channels) -> None:
    def stand(conn: int, name: str, priority: int, order: int, pick: int) -> list[tuple[int, int]]:
        head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, lib.SUBSCRIBE_POLICY, 0)
        rank = struct.pack("<HHIIII", lib.POLICY_FAILOVER, len(name), priority, pick, order, 0) + name.encode()
        bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=head + b"c" + rank)
        return sorted(told(bench.turn()))

    assert stand(1, "a", 1, 0, 5) == [(1, 1)]
    assert stand(2, "b", 1, 0, 5) == [(1, 0), (2, 1)]
    assert stand(3, "c", 1, 0, 5) == [(2, 0), (3, 1)]
    bench.raw(GONE, 3)
    assert told(bench.turn()) == [(2, 1)]
    assert stand(4, "z", 0, 0, 5) == [(2, 0), (4, 1)]
    assert stand(5, "y", 0, 7, 5) == [(4, 0), (5, 1)], "by order, then by name"
    bench.raw(GONE, 5)
    assert told(bench.turn()) == [(4, 1)]


def test_a_start_comes_before_a_policy(bench: Channels) -> None:
    publish(bench, count=2)
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, lib.SUBSCRIBE_POLICY | lib.SUBSCRIBE_START, 4)
    start, rank = struct.pack("<IIQ", SEQ, 0, 1), struct.pack("<HHIIII", lib.POLICY_EXCLUSIVE, 1, 0, 0, 0, 0) + b"n"
    assert ask(bench, lib.MSG_SUBSCRIBE, topic=bench.topic("t"), body=head + b"c{ab}" + start + rank).status == OK
    bench.raw(lib.MSG_CREDIT, 1, id=9)
    assert seqs(bench.turn()) == [1]
    assert join(bench, 2, lib.POLICY_TURNS) == lib.STATUS_FULL
    assert got([], 1) == []


def test_what_is_before_is_finished_and_nothing_else_changes(bench: Channels) -> None:
    """A SEEK with MSG_UPTO: what somebody has, or has finished, behind that place does not come again."""
    publish(bench, count=5)
    begin(bench, 1, EARLIEST, credit=100)
    assert seqs(bench.turn()) == [0, 1, 2, 3, 4]
    finish(bench, 1, 1, 3)
    assert seek(bench, SEQ, 2, flags=lib.MSG_UPTO).status == OK
    where = position(bench)
    assert (position(bench, "c").unfinished, position(bench, "c").in_flight, where.next) == (2, 2, 5)
    assert seqs(bench.turn()) == [], "nothing comes again"
    bench.restart()
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [2, 4]
    publish(bench, count=3)
    bench.turn()
    assert seek(bench, SEQ, 99, flags=lib.MSG_UPTO).status == OK
    assert position(bench, "c").unfinished == 8 and position(bench, "c").in_flight == 0
    bench.restart()
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == []


@pytest.mark.parametrize("names", ["as they were", "written anew"])
def test_what_is_passed_by_age_is_not_there_after_a_restart_either(bench: Channels, names: str) -> None:
    of = publish(bench, count=6)
    begin(bench, 1, EARLIEST, channel="__retention", credit=0)
    bench.raw(GONE, 1)
    bench.turn()
    assert position(bench).first == of[0]
    assert seek(bench, SEQ, of[3], channel="__retention").status == OK
    assert position(bench).first == of[3]
    if names == "written anew":
        for _ in range(2):
            roll(bench)
            publish(bench)
    for _ in range(2):
        bench.restart()
        assert position(bench).first == of[3]
        begin(bench, 1, EARLIEST, channel="c")
        assert seqs(bench.turn(), 1)[0] == of[3]
        assert seek(bench, SEQ, of[0]).seq == of[3]
    assert seek(bench, SEQ, of[0], channel="__retention").status == OK
    assert position(bench).first == of[0], "it may go back"


@pytest.mark.parametrize("parts", [0, 3])
def test_a_channel_made_beside_an_ephemeral_one_has_a_paused_tubes_jobs_once_after_a_restart(
    bench: Channels, parts: int
) -> None:
    """It is the first channel to the log, and what the tube has is in the stream too."""
    publish(bench)  # the topic retains
    bench.sub(1, "t", "e", flags=lib.SUBSCRIBE_EPHEMERAL)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.raw(WATCH, 7, topic=bench.topic("t"))
    if parts:
        publish_batch(bench, "t", parts)
    else:
        publish(bench)
    bench.sub(2, "t", "c")
    bench.restart()
    bench.sub(2, "t", "c", credit=100, flags=lib.SUBSCRIBE_HEADERS)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    ((kept, _),) = [(a.id, a.pri) for a in bench.pushed if a.kind == lib.MSG_DELIVER]
    bench.fin(2, kept)
    channel = bench.catalog()["t"].channels["c"]
    assert (channel.depth, channel.in_flight) == (0, 0)
    assert bench.catalog()["t"].jobs == max(parts, 1)
    bench.change(lib.CHANGE_DELETE, "t", "c")
    assert bench.catalog()["t"].jobs == max(parts, 1)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()
    roll(bench)
    assert lib.worker_dead_segments(bench.worker, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_another_takes_back_is_not_the_first_channels_that_has_it_ahead(bench: Channels, leaves: bool) -> None:
    """It waited for nobody, though what came before and behind it did."""
    waits, _ = bench.pub("t")
    retained = publish(bench, count=3)
    last, _ = bench.pub("t")
    bench.sub(2, "t", "d")
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn(), 1) == [retained[0] - 1, *retained, retained[-1] + 1]
    assert bench.catalog()["t"].channels["d"].depth == 2
    if leaves:
        assert bench.change(lib.CHANGE_DELETE, "t", "d") == OK
    else:
        bench.raw(lib.MSG_CREDIT, 2, id=100)
        had = [a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        assert had == [waits, last]
        bench.fin(2, *had)
        assert bench.catalog()["t"].channels["d"].depth == 0
    finish(bench, 1, *retained)
    assert position(bench, "c").unfinished == retained[0] - 1
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()


@pytest.mark.parametrize("channel", ["c", "__compaction"])
def test_behind_damage_a_channel_set_back_still_has_what_nobody_else_has(bench: Channels, channel: str) -> None:
    """And a compacted view, which is such a channel. The damage lies before all of its topic."""
    bench.pub("elsewhere", durable=False)
    ((_, fd),) = bench.segments[0]
    (hit,) = [r for r in records(bench) if r.kind == 3]
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    ids = [bench.pub("t")[0] for _ in range(3)]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    assert bench.turn() == []
    assert bench.ask(lib.MSG_DELETE, 5, id=ids[1]).status == OK, "they are jobs now"
    if channel == "c":
        begin(bench, 1, EARLIEST, credit=0)
    else:
        assert ask(bench, lib.MSG_COMPACT, 6, topic=bench.topic("t"), ttr=3).status == OK
    os.pwrite(fd, bytes(40), hit.offset)
    bench.restart()
    assert bench.found.damages == 1
    assert (bench.catalog()["t"].jobs, bench.catalog()["t"].channels[channel].depth) == (2, 3)
    if channel == "c":
        begin(bench, 1, EARLIEST)
        assert seqs(bench.turn(), 1) == [0, 1, 2]
