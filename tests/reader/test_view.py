"""A reader beside a worker sees what is in the log: all of it, once, in order, whatever happens to the segments."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.reader import index_file, segment
from mq_shards.shards.reader.scan import Columns
from mq_shards.shards.reader.segment import Segment
from mq_shards.shards.reader.shard import ShardView
from mq_shards.shards.reader.view import DataView, Place

from tests.reader.disk import MOVED, SEGMENT_BYTES, Disk, messages_in, read, read_all
from tests.shards.bench import SECOND, SHARDS
from tests.shards.subscriptions import delivered

TOPICS = ("a", "b", "c", "d", "e", "f")


@pytest.fixture()
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "data")
    yield disk
    disk.dispose()


def check(disk: Disk, view: DataView, bodies: dict[str, list[bytes]], max_bytes: int) -> None:
    expected = messages_in(disk.directory)
    topics = {topic.name: topic for topic in view.topics()}
    assert set(expected) <= set(topics)
    assert view.topics() == DataView(disk.directory, SHARDS).topics(), "what was added up before is as it is now"
    for name, messages in expected.items():
        topic = topics[name]
        sent = read_all(view, name, max_bytes)
        assert [(s.seq, s.segment) for s in sent] == [(seq, messages[seq][0]) for seq in sorted(messages)]
        assert all(s.body == bodies[name][s.seq] for s in sent)
        assert all((s.id, s.time_ns) == (messages[s.seq][1].id, messages[s.seq][1].time_ns) for s in sent)
        assert (topic.earliest, topic.latest) == (min(messages), len(bodies[name]))
        # From there on nothing is missing.
        assert set(range(topic.complete, topic.latest)) <= set(messages)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_a_reader_sees_what_the_log_holds_through_retention_compaction_and_restarts(disk: Disk, seed: int) -> None:
    rng = random.Random(seed)
    view = DataView(disk.directory, SHARDS)
    bodies: dict[str, list[bytes]] = {name: [] for name in TOPICS}
    dropped = restarts = 0
    consumers: dict[str, int] = {}

    def subscribe() -> None:
        for name in TOPICS[:4]:
            consumers[name] = len(consumers) + 1 + 10 * restarts
            disk.sub(consumers[name], name, "c", credit=2000)

    def consume() -> None:
        for answer in disk.turn():
            for id, _ in delivered([answer]):
                if rng.random() < 0.97:
                    disk.raw(lib.MSG_FINISH, answer.conn, id=id)
        disk.turn(rng.random())

    for step in range(140):
        name = rng.choice(TOPICS)
        batch = [rng.randbytes(rng.choice((0, 5, 100, 700))) for _ in range(rng.choice((1, 1, 3, 60)))]
        bodies[name] += batch
        disk.publish(name, batch)
        if step == 10:
            subscribe()
        if step > 10 and rng.random() < 0.5:
            consume()
        if rng.random() < 0.1:
            disk.roll(rng.randrange(SHARDS))
        if rng.random() < 0.1:
            shard = rng.randrange(SHARDS)
            disk.compact(shard)
            if rng.random() < 0.3:  # some are there twice now
                check(disk, view, bodies, 1 << 20)
            if rng.random() < 0.5:  # else they stay for readers, and newer ones are emptied before they go
                dropped += disk.drop_dead(shard)
        if rng.random() < 0.04 and step > 10:
            disk.restart()
            restarts += 1
            consumers.clear()
            subscribe()
        if rng.random() < 0.08:
            check(disk, view, bodies, rng.choice((1, 300, 5000, 1 << 20)))
    assert dropped and restarts
    kinds = [record.kind for messages in messages_in(disk.directory).values() for _, record in messages.values()]
    assert MOVED in kinds
    check(disk, view, bodies, 4096)
    check(disk, DataView(disk.directory, SHARDS), bodies, 1 << 20)  # with the indexes that are there
    for path in disk.directory.glob("*/*.index"):
        assert path.with_suffix(".log").exists()
        path.unlink()
    check(disk, DataView(disk.directory, SHARDS), bodies, 1 << 20)


def test_any_range_is_answered_with_what_is_in_it(disk: Disk) -> None:
    rng = random.Random(1)
    bodies = []
    for _ in range(60):
        batch = [rng.randbytes(rng.randrange(2000)) for _ in range(rng.randrange(1, 30))]
        bodies += batch
        disk.publish("a", batch)
        disk.publish("other", [b"x"])
    view = DataView(disk.directory, SHARDS)
    for _ in range(200):
        first = rng.randrange(len(bodies))
        until = rng.randrange(first, len(bodies) + 5)
        room = rng.choice((1, 1000, 50_000, 1 << 20))
        sent, following = read(view, "a", first, until, room)
        assert [s.body for s in sent] == bodies[first:following][: len(sent)]
        assert [s.seq for s in sent] == list(range(first, following)) or following == min(until, len(bodies))
        assert len(sent) <= 1 or sum(48 + len(s.body) for s in sent) <= room
        assert following > first or until == first


def test_the_first_seq_of_a_time_is_found(disk: Disk) -> None:
    times: list[int] = []
    for n in range(300):
        disk.publish("a", [b"x" * 900])
        times.append(disk.wall)
        disk.turn(1 if n % 3 else 0)
        if n == 200:
            disk.wall -= 100 * SECOND
    view = DataView(disk.directory, SHARDS)
    edges = times[0], times[150], times[-1], max(times)
    for wanted in (0, *edges, *(time + 1 for time in edges), times[150] + SECOND // 2):
        seq = next((seq for seq, time in enumerate(times) if time >= wanted), 300)
        until = max((seq + 1 for seq, time in enumerate(times) if time < wanted), default=0)
        assert view.place_of("a", wanted) == Place(seq, until)
    assert view.place_of("nothing", 0) is None


# --- what is damaged, half written, gone ------------------------------------------------------------------------------


def test_only_topics_that_something_was_read_of_are_added_up_anew(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(200):
        disk.publish(f"topic-{n}", [b"1"])
    view, looked = DataView(disk.directory, SHARDS), []
    view.topics()
    one = ShardView.topic
    monkeypatch.setattr(ShardView, "topic", lambda shard, name: (looked.append(name), one(shard, name))[1])
    for name in ("topic-3", "topic-77", "new"):
        disk.publish(name, [b"2"])
    view.topics()
    assert sorted(looked) == ["new", "topic-3", "topic-77"]


def fill(disk: Disk, count: int = 300, name: str = "a") -> None:
    for n in range(count):
        disk.publish(name, [b"%05d" % n * 100])


def test_a_damaged_record_is_named_and_passed_over(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    fill(disk)
    shard = disk.shard_of("a")
    number, record = messages_in(disk.directory)["a"][17]
    with disk.path(shard, number).open("r+b") as file:
        file.seek(record.offset + 60)
        file.write(b"\xff")
    view = DataView(disk.directory, SHARDS)
    assert [s.seq for s in read_all(view, "a")] == [n for n in range(300) if n != 17]
    found = view.records("a", 0, 30, 1 << 20)
    assert found is not None
    with found.runs:
        assert [(n, place.offset) for n, place in found.damage] == [(number, record.offset)]
    assert f"shard {shard}, segment {number}: what is from {record.offset} to" in caplog.text
    again = DataView(disk.directory, SHARDS).records("a", 0, 30, 1 << 20)
    assert again is not None and again.damage == found.damage
    again.runs.close()


@pytest.mark.parametrize("field", [0, 8], ids=["length", "kind"])
@pytest.mark.parametrize("value", [0, 0xFF], ids=["zero", "ones"])
def test_damage_in_the_segment_that_is_written_to_does_not_stop_readers(disk: Disk, field: int, value: int) -> None:
    fill(disk, 20)
    number, record = messages_in(disk.directory)["a"][7]
    width = 4 if field == 0 else 1
    with disk.path(disk.shard_of("a"), number).open("r+b") as file:
        file.seek(record.offset + field)
        file.write(bytes([value]) * width)
    view = DataView(disk.directory, SHARDS)
    view.topics()
    assert [s.seq for s in read_all(view, "a")] == [n for n in range(20) if n != 7]
    fill(disk, 5)
    assert [s.seq for s in read_all(view, "a")] == [n for n in range(25) if n != 7]


def test_the_zeros_behind_the_last_record_are_read_once_until_something_is_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(disk, 20)
    number, _ = messages_in(disk.directory)["a"][19]
    path = disk.path(disk.shard_of("a"), number)
    os.truncate(path, SEGMENT_BYTES)  # as the worker does ahead of what it writes
    view, looked = DataView(disk.directory, SHARDS), list[int]()
    is_zero = segment.is_zero
    monkeypatch.setattr(segment, "is_zero", lambda fd, at, size: (looked.append(at), is_zero(fd, at, size))[1])
    for looks in (1, 2):
        for _ in range(5):
            view.topics()
        assert len(set(looked)) == len(looked) == looks
        disk.publish("a", [b"next"])
        assert view.topics()[0].latest == 20 + looks
    for _ in range(5):
        view.topics()
    disk.publish("a", [b"damaged", b"whole"])
    damaged = messages_in(disk.directory)["a"][22][1]
    with path.open("r+b") as file:
        file.seek(damaged.offset)
        file.write(bytes(4))
    assert [s.seq for s in read_all(view, "a")] == [*range(22), 23], "they did not hide a damaged length"


def test_a_half_written_end_is_seen_when_it_is_whole_and_many_only_together(disk: Disk, tmp_path: Path) -> None:
    disk.publish("a", [b"first"])
    disk.publish("a", [b"one", b"two" * 50, b"three"])
    disk.publish("b" if disk.shard_of("b") == disk.shard_of("a") else "a", [b"last"])
    shard = disk.shard_of("a")
    whole = disk.path(shard, 1).read_bytes()
    messages = messages_in(disk.directory)["a"]
    end_of_many = messages[3][1].offset + 48 + 8
    copy = tmp_path / "copy"
    for n in range(SHARDS):
        (copy / f"shard-{n:04d}").mkdir(parents=True)
    path = copy / f"shard-{shard:04d}" / "0000000001.log"
    view = DataView(copy, SHARDS)
    for end in range(messages[0][1].offset, end_of_many + 16):
        path.write_bytes(whole[:end] + bytes(len(whole) - end))
        known = view.topic("a")
        seen = 0 if known is None else known.latest
        body_end = messages[3][1].offset + 40 + len(messages[3][1].attributes) + 5
        if end >= body_end:
            assert seen >= 4
        elif seen:
            assert seen == 1
        else:
            assert end < messages[1][1].offset


def test_what_a_restart_takes_back_is_never_shown_to_readers(disk: Disk) -> None:
    """A PUBLISH_MANY that a crash cut off: its seqs go to other messages."""
    disk.publish("a", [b"first"])
    disk.publish("a", [b"one", b"two", b"three"])
    shard, messages = disk.shard_of("a"), messages_in(disk.directory)["a"]
    os.truncate(disk.path(shard, 1), messages[3][1].offset)
    view = DataView(disk.directory, SHARDS)
    assert [s.body for s in read_all(view, "a")] == [b"first"]
    disk.restart()
    disk.publish("a", [b"other", b"things"])
    assert [s.body for s in read_all(view, "a")] == [b"first", b"other", b"things"]


def test_segments_that_vanish_are_not_missed_and_those_being_sent_stay(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(disk)
    view = DataView(disk.directory, SHARDS)
    shard = disk.shard_of("a")
    before = view.records("a", 0, None, 1 << 20)
    assert before is not None and before.topic.earliest == 0
    refresh = ShardView.refresh
    looks = 0

    def drop_behind(self: ShardView) -> None:
        """Retention strikes between the look at the directory and the opening of files."""
        nonlocal looks
        refresh(self)
        looks += 1
        if looks == 1:
            disk.path(shard, 1).unlink()

    monkeypatch.setattr(ShardView, "refresh", drop_behind)
    after = view.records("a", 0, None, 1 << 20)
    assert after is not None and looks == 2
    with before.runs, after.runs:
        assert after.topic.earliest == after.topic.complete > 0
        first = before.runs.runs[0]
        assert (first.segment, len(os.pread(first.fd, 1 << 20, 0)) > 0) == (1, True)
        assert after.runs.runs[0].segment == 2


def test_an_index_that_does_not_fit_is_made_again(disk: Disk) -> None:
    fill(disk, 600)
    shard = disk.shard_of("a")
    expected = read_all(DataView(disk.directory, SHARDS), "a")
    first, second = (index_file.index_path(disk.path(shard, n)) for n in (1, 2))
    good, other = first.read_bytes(), second.read_bytes()
    for bad in (b"", b"short", good[:-9], good[:200] + b"\xff" + good[201:], other, bytes(len(good))):
        first.write_bytes(bad)
        assert read_all(DataView(disk.directory, SHARDS), "a") == expected
        assert first.read_bytes() == good


def test_an_index_is_used_and_goes_with_its_segment(disk: Disk) -> None:
    fill(disk)
    shard = disk.shard_of("a")
    DataView(disk.directory, SHARDS).topics()
    path = disk.path(shard, 1)
    index = index_file.index_path(path)
    loaded = index_file.load(path, 1, path.read_bytes()[:64], path.stat().st_size)
    assert loaded is not None and loaded.sealed and len(loaded.parts) == 1
    view = DataView(disk.directory, SHARDS)
    view.topics()
    path.unlink()
    view.topics()
    assert not index.exists()


def test_an_index_that_was_made_before_its_segment_was_cut_to_its_length_is_used(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(disk)
    path = disk.path(disk.shard_of("a"), 1)
    size = path.stat().st_size
    os.truncate(path, size + (1 << 20))
    expected = read_all(DataView(disk.directory, SHARDS), "a")
    os.truncate(path, size)
    read_on = Segment.read_on

    def read_the_last(segment: Segment, path: Path, columns: Columns, end: int | None) -> None:
        assert end is None, "a sealed one is read once"
        read_on(segment, path, columns, end)

    monkeypatch.setattr(Segment, "read_on", read_the_last)
    assert read_all(DataView(disk.directory, SHARDS), "a") == expected
    monkeypatch.undo()
    # Of one that is shorter than its records the index is refused.
    os.truncate(path, size // 2)
    assert len(read_all(DataView(disk.directory, SHARDS), "a")) < len(expected)


def test_a_message_larger_than_what_was_asked_for_comes_alone(disk: Disk) -> None:
    disk.publish("a", [b"x" * SEGMENT_BYTES, b"y"])
    sent, following = read(DataView(disk.directory, SHARDS), "a", 0, None, 1)
    assert ([s.body for s in sent], following) == ([b"x" * SEGMENT_BYTES], 1)


def test_a_scan_believes_nothing() -> None:
    rng = random.Random(3)
    columns = Columns()
    for _ in range(2000):
        data = bytearray(rng.randbytes(rng.randrange(200)))
        if len(data) >= 12:
            data[0:4] = rng.choice((0, 40, 41, 100, 2**31, 2**32 - 1)).to_bytes(4, "little")
        for verify in (False, True):
            records, offset, needs, stop = columns.scan(data, 0, len(data), 1, check=verify)
            assert offset <= len(data) + 7 and records <= len(data) // 40 and 0 <= stop <= 3
            assert needs == 0 or needs > len(data) - offset
