"""Where names and cursors stand in a log: in segments that have messages of them, and at its head before the last of
those goes; what a crash half way or damage costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.dump import Record, decode_segment

from tests.shards.bench import OK, PUBLISH, SHARDS
from tests.shards.subscriptions import Channels, Topic, delivered, roll

MANY = 1500
SEGMENT_HEADER_BYTES = 64
USUAL = 64 << 20  # a segment's
TOPIC, SUBSCRIPTION = 1, 7  # csrc/log/records.h
BENCH = {"ring_bytes": 1 << 22}


def make(bench: Channels, count: int = MANY) -> None:
    """Topics without messages, each with a channel; each third one is paused, or its channel is."""
    for n in range(count):
        name = f"empty-{n}"
        for what, of in [(lib.CHANGE_MAKE, name), (lib.CHANGE_MAKE, f"{name}\nc")]:
            bench.raw(lib.MSG_CHANGE, 998, id=0, pri=what, body=of.encode())
        if n % 3:
            bench.raw(
                lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_PAUSE, body=(name if n % 3 == 1 else f"{name}\nc").encode()
            )
        if n % 500 == 499:
            assert {a.status for a in bench.turn()} == {OK}
    bench.turn()


def there(bench: Channels) -> dict[str, Topic]:
    return {name: topic for name, topic in bench.catalog().items() if name.startswith("empty-")}


def check(bench: Channels, count: int = MANY) -> None:
    found = there(bench)
    assert found.keys() == {f"empty-{n}" for n in range(count)}
    for n in range(count):
        topic = found[f"empty-{n}"]
        assert (topic.paused, topic.channels["c"].paused) == (n % 3 == 1, n % 3 == 2), n


def written(bench: Channels, segment: int) -> int:
    return int(lib.worker_segment_bytes(bench.worker, 0, segment))


def move_names(bench: Channels, until: int) -> int:
    """In how many pieces."""
    for piece in range(1, 10_000):
        moved = lib.worker_move_names(bench.worker, 0, until)
        bench.turn()
        if moved == lib.NAMES_MOVED:
            return piece
        assert moved == lib.NAMES_MORE
    raise AssertionError("there is no end to it")


def drop_oldest(bench: Channels) -> None:
    while not lib.worker_compact(bench.worker, 0, 1 << 20):
        bench.supply()
    bench.turn()
    first = lib.worker_first_segment(bench.worker, 0)
    move_names(bench, first)
    assert lib.worker_dead_segments(bench.worker, 0) > 0
    assert lib.worker_drop_first(bench.worker, 0)
    os.close(bench.segments[0].pop(0)[1])
    os.close(bench.names.pop((0, first)))


def test_a_segment_without_messages_of_a_topic_does_not_name_it(bench: Channels) -> None:
    make(bench)
    assert written(bench, 1) > 100 * MANY
    for segment in (2, 3, 4):
        roll(bench)
        assert written(bench, segment) < 1000
    bench.restart()
    check(bench)
    roll(bench)
    assert written(bench, 5) < 1000


def test_names_move_piece_by_piece_before_their_segment_goes(bench: Channels) -> None:
    make(bench)
    roll(bench)
    lib.worker_longest_turn(bench.worker)
    pieces = move_names(bench, 1)
    assert pieces >= MANY // 512
    assert 0 < lib.worker_longest_turn(bench.worker) <= 1100  # WORKER_TURN_STEPS / 8, and a topic's channels
    assert written(bench, 2) > 100 * MANY
    assert move_names(bench, 1) == 1, "they have been"
    for _ in range(3):
        drop_oldest(bench)
        bench.restart()
        check(bench)
        roll(bench)


def test_names_find_room_in_a_log_that_takes_no_more_messages(bench: Channels, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a MiB of them."""
    many = 12_000
    make(bench, many)
    roll(bench)
    assert lib.worker_segment_names(bench.worker, 0, 1) > 1 << 20
    monkeypatch.setattr(bench, "supply", lambda: lib.worker_refuse_segment(bench.worker, 0))
    statuses = {OK}
    while statuses == {OK}:
        for _ in range(16):
            bench.raw(lib.MSG_PUBLISH, topic=bench.topic("t"), id=bench.next_id, body=bytes(60_000))
            bench.next_id += SHARDS
        statuses = {a.status for a in bench.turn()}
    assert statuses == {lib.STATUS_NO_SPACE} or statuses == {OK, lib.STATUS_NO_SPACE}
    move_names(bench, 1)
    assert lib.worker_drop_first(bench.worker, 0)
    os.close(bench.segments[0].pop(0)[1])
    monkeypatch.undo()
    bench.restart()
    check(bench, many)


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_crash_while_names_move_costs_none(bench: Channels, pieces: int) -> None:
    make(bench)
    roll(bench)
    for _ in range(pieces):
        lib.worker_move_names(bench.worker, 0, 1)
    bench.turn()
    bench.restart()
    check(bench)
    for _ in range(2):
        roll(bench)
        drop_oldest(bench)
        bench.restart()
        check(bench)


def test_messages_and_cursors_are_what_they_were_whichever_segments_are_gone(bench: Channels) -> None:
    bench.sub(1, "t", "read", credit=100)
    bench.sub(2, "t", "unread")
    bench.sub(3, "t", "half", credit=2)
    first = bench.mpub("t", [b"0", b"1", b"2"])
    bench.turn()
    bench.fin(1, *first)
    roll(bench)
    bench.fin(3, first[0])
    roll(bench)
    second = bench.mpub("t", [b"3"])
    bench.turn()
    bench.fin(1, *second)
    for _ in range(3):
        drop_oldest(bench)
        bench.restart()
        figures = bench.catalog()["t"].channels
        assert {name: c.depth for name, c in figures.items()} == {"read": 0, "unread": 4, "half": 3}
        roll(bench)
    bench.sub(3, "t", "read", credit=100)
    bench.sub(4, "t", "unread", credit=100)
    bench.sub(5, "t", "half", credit=100)
    came = bench.turn()
    assert delivered(came, 3) == []
    assert [id for id, _ in delivered(came, 4)] == first + second
    assert sorted(id for id, _ in delivered(came, 5)) == first[1:] + second


def test_what_was_deleted_does_not_come_back_whichever_segments_are_gone(bench: Channels) -> None:
    make(bench, 6)
    bench.sub(1, "t", "kept")
    bench.sub(2, "t", "gone")
    roll(bench)
    for n in range(6):  # named in the first segment, changed in the second, deleted in the third
        assert bench.change(lib.CHANGE_UNPAUSE, f"empty-{n}") == OK
        assert bench.change(lib.CHANGE_PAUSE, f"empty-{n}", "c") == OK
    assert bench.change(lib.CHANGE_PAUSE, "t", "gone") == OK
    roll(bench)
    for n in range(0, 6, 2):
        assert bench.change(lib.CHANGE_DELETE, f"empty-{n}") == OK
    assert bench.change(lib.CHANGE_DELETE, "t", "gone") == OK
    for _ in range(4):
        roll(bench)
        drop_oldest(bench)
        bench.restart()
        assert there(bench).keys() == {"empty-1", "empty-3", "empty-5"}
        assert bench.catalog()["t"].channels.keys() == {"kept"}


def test_a_topic_that_was_used_once_is_no_more_than_the_seqs_that_it_had(bench: Channels) -> None:
    """Not durable, without jobs: its name goes with the segment, and no seq is given out twice."""
    seqs: list[int] = []
    for n in range(4):
        for _ in range(3):
            id, _ = bench.pub("once", durable=False)
            (seq,) = [r.seq for r in records(bench) if r.kind == 3 and r.id == id]
            seqs.append(seq)
            bench.raw(lib.MSG_DELETE, 998, id=id)
            bench.turn()
        roll(bench)
        drop_oldest(bench)
        if n % 2:
            bench.restart()
    assert seqs == sorted(set(seqs))


def records(bench: Channels) -> list[Record]:
    content = [Path(f"/proc/self/fd/{fd}").read_bytes() for _, fd in bench.segments[0]]
    return [r for data in content if any(data[:64]) for r in decode_segment(data) if isinstance(r, Record)]


# --- damage ---------------------------------------------------------------------------------------------------------


def zero_records(bench: Channels, segment: int, *kinds: int) -> int:
    """In the segment, not in the copies."""
    fd = dict(bench.segments[0])[segment]
    found = [
        r for r in decode_segment(Path(f"/proc/self/fd/{fd}").read_bytes()) if isinstance(r, Record) and r.kind in kinds
    ]
    for r in found:
        os.pwrite(fd, bytes(40 + len(r.attributes) + len(r.body)), r.offset)
    return len(found)


def zero_copies(bench: Channels, segment: int) -> None:
    fd = bench.names[0, segment]
    os.pwrite(fd, bytes(os.fstat(fd).st_size), 0)


def heal(bench: Channels) -> None:
    while lib.worker_move_names(bench.worker, 0, 0) == lib.NAMES_MORE:
        bench.turn()
    bench.turn()


@pytest.mark.parametrize("moved", [False, True])
def test_names_that_are_damaged_are_had_back_and_stand_in_two_places_again(bench: Channels, moved: bool) -> None:
    make(bench, 60)
    bench.sub(1, "t", "c")
    ids = bench.mpub("t", [b"a", b"b"])
    roll(bench)
    if moved:
        move_names(bench, 1)
    for segment in (1, 2):
        if moved or segment == 1:
            assert zero_records(bench, segment, TOPIC, SUBSCRIPTION) > 120
    for _ in range(2):
        bench.restart()
        check(bench, 60)
        heal(bench)
        # What had them back is gone now, too.
        zero_copies(bench, 1)
        zero_copies(bench, 2)
    bench.sub(1, "t", "c", credit=10)
    assert [id for id, _ in delivered(bench.turn(), 1)] == ids


def test_a_channel_that_is_lost_in_both_places_is_named_with_the_next_message(bench: Channels) -> None:
    """What was published since is there for it, as the segment that has it says who the channels are."""
    bench.sub(1, "t", "c", credit=10)
    old = bench.mpub("t", [b"old"])
    bench.turn()
    bench.fin(1, *old)
    roll(bench)
    new = bench.mpub("t", [b"new"])
    zero_records(bench, 1, TOPIC, SUBSCRIPTION)
    zero_copies(bench, 1)
    bench.restart()
    assert bench.catalog()["t"].channels["c"].depth >= 1
    bench.sub(1, "t", "c", credit=10)
    assert set(new) <= {id for id, _ in delivered(bench.turn(), 1)}


def test_names_of_a_large_segment_that_was_cut_short_are_had_from_their_copies_each_time(bench: Channels) -> None:
    """Also those that stood where one of the usual size has ended, and once another follows it."""
    slot = bench.raw(PUBLISH, flags=lib.MSG_DURABLE, topic=bench.topic("large"), id=SHARDS, body=bytes(USUAL))
    bench.next_id += SHARDS
    for _ in range(USUAL >> 20):
        if any(a.slot == slot and a.status == OK for a in bench.turn()):
            break
    assert bench.pub("precious")[1] == []
    fd = next(fd for _, fd in bench.segments[0] if os.fstat(fd).st_size > USUAL)
    os.ftruncate(fd, 1 << 20)
    for starts in range(3):
        bench.restart()
        assert {"large", "precious"} <= bench.catalog().keys()
        if not starts:
            roll(bench)
