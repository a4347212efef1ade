"""Named readers: what they have not read is kept, and what is said of them is durable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards import readers
from mq_shards.shards.reader_names import ReadersError
from mq_shards.shards.readers import Unread
from mq_shards.shards.retention import Decision, Retention, Segment, decide
from mq_shards.shards.unread import Head, UnreadSegments, read_head

from tests.reader.disk import Disk, messages_in
from tests.shards.subscriptions import Channels

MIB = 1 << 20


def unread_of(disk: Disk, shard: int) -> UnreadSegments:
    def next_seq(topic: str) -> int:
        return int(lib.worker_next_seq(disk.worker, topic.encode(), len(topic)))

    def active() -> int:
        return int(lib.worker_active_segment(disk.worker, shard))

    return UnreadSegments(lambda segment: disk.path(shard, segment), active, next_seq)


def keep(disk: Disk, shard: int, *names: str) -> None:
    said = "\n".join(names).encode()
    lib.worker_keep_topics(disk.worker, shard, said, len(said))


@pytest.fixture()
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "data")
    yield disk
    disk.dispose()


def test_a_segment_is_held_as_long_as_it_has_what_was_not_read(disk: Disk) -> None:
    keep(disk, disk.shard_of("a"), "a")
    for n in range(900):
        disk.publish("a", [b"%03d" % n * 150])
        if n == 200:
            disk.roll(disk.shard_of("a"))
        if n == 450:
            disk.restart()
            keep(disk, disk.shard_of("a"), "a")
        if n == 700:
            disk.roll(disk.shard_of("a"))
    shard = disk.shard_of("a")
    messages = messages_in(disk.directory)["a"]
    active = disk.segments[shard][-1][0]
    sealed = range(1, max(segment for segment, _ in messages.values()))
    assert len(sealed) >= 2
    unread = unread_of(disk, shard)
    for seq in (0, 1, 200, 450, 451, 700, 899, 900):
        unread.set({"a": seq})
        for segment in sealed:
            last = max(s for s, (where, _) in messages.items() if where == segment)
            assert unread.hold(segment) == (seq <= last), (seq, segment)
    unread.set({"no such topic": 0})
    assert not any(unread.hold(segment) for segment in sealed)
    unread.set({})
    assert not any(unread.hold(segment) for segment in sealed)
    unread.set({"a": 900})
    assert unread.hold(active + 5)  # nobody knows


def test_a_topic_made_in_the_middle_of_a_segment_holds_it_and_those_before_it_go(disk: Disk) -> None:
    name = next(f"t{n}" for n in range(100) if disk.shard_of(f"t{n}") == disk.shard_of("a"))
    shard = disk.shard_of("a")
    keep(disk, shard, "a", name)
    unread = unread_of(disk, shard)
    unread.set({name: 0})
    for _ in range(500):
        disk.publish("a", [b"x" * 400])
    disk.publish(name, [b"here"])
    for _ in range(500):
        disk.publish("a", [b"x" * 400])
    segment, _ = messages_in(disk.directory)[name][0]
    last = disk.segments[shard][-1][0] - 1
    assert [n for n in range(1, last) if unread.hold(n)] == [segment]
    unread.set({name: 1})
    assert not any(unread.hold(n) for n in range(1, last))


def test_what_was_published_before_a_reader_named_a_topic_is_held_until_it_has_read_on(disk: Disk) -> None:
    """Heads from then say nothing of it, so more than it has yet to read may stay, and never less."""
    shard = disk.shard_of("a")
    for n in range(6):
        disk.publish("a", [b"%d" % n])
        disk.roll(shard)
    unread = unread_of(disk, shard)
    for seq in range(7):
        unread.set({"a": seq})
        held = [unread.hold(segment) for segment in range(1, 6)]
        assert all(held[seq:]), (seq, held)
        assert not any(held) or seq < 6
    keep(disk, shard, "a")
    disk.roll(shard)
    disk.publish("a", [b"6"])
    disk.roll(shard)
    for seq in range(8):
        unread.set({"a": seq})
        assert [unread.hold(segment) for segment in (7, 8)] == [seq < 6, seq < 7], seq


def test_many_topics_in_a_head_are_all_seen(disk: Disk) -> None:
    names = [f"topic-{n}" for n in range(20000) if disk.shard_of(f"topic-{n}") == 1][:900]
    keep(disk, 1, *names)
    for name in names:
        disk.publish(name, [b"x" * 30])
    disk.roll(1)
    disk.publish(names[0], [b"y"])
    unread = unread_of(disk, 1)
    active = lib.worker_active_segment(disk.worker, 1)
    for name in (names[0], names[450], names[899]):
        unread.set({name: 0})
        where = {segment for segment, _ in messages_in(disk.directory)[name].values()}
        assert [n for n in range(1, active) if unread.hold(n)] == sorted(where - {active})


SEALED = [Segment(n, 64 * MIB, 0.0, 0, 100) for n in (1, 2, 3)]
DAY = 86400.0


@pytest.mark.parametrize(
    ("unread", "limit", "full", "dropped"),
    [
        (set(), 1024 * MIB, False, 3),
        ({1}, 1024 * MIB, False, 0),
        ({2}, 1024 * MIB, False, 1),
        ({3}, 1024 * MIB, False, 2),
        ({1}, 1024 * MIB, True, 3),  # a full disk comes first
        ({1, 2, 3}, 200 * MIB, False, 1),  # more than readers may hold
        ({1, 2, 3}, 0, False, 3),
    ],
)
def test_what_readers_have_not_read_is_kept_within_limits(
    unread: set[int], limit: int, full: bool, dropped: int
) -> None:
    keep = Retention(DAY, 1024 * MIB, limit)
    assert decide(SEALED, 64 * MIB, keep, 10 * DAY, full, unread.__contains__) == Decision(dropped, compact=False)


def test_a_segment_that_is_held_is_not_emptied() -> None:
    live = [Segment(1, 64 * MIB, 0.0, 1, 100), *SEALED[1:]]
    keep = Retention(DAY, 1024 * MIB, 1024 * MIB)
    assert decide(live, 0, keep, 10 * DAY, False, {1}.__contains__) == Decision(0, compact=False)
    assert decide(live, 0, keep, 10 * DAY, False, set().__contains__) == Decision(0, compact=True)


def test_readers_are_saved_changed_and_deleted(tmp_path: Path) -> None:
    assert readers.load_all(tmp_path) == []
    assert readers.load(tmp_path, "spark") is None
    readers.save(tmp_path, "spark", {"a": 1, "b": 2})
    readers.save(tmp_path, "other.one", {})
    readers.save(tmp_path, "spark", {"a": 5})
    assert [(r.name, r.topics) for r in readers.load_all(tmp_path)] == [("other.one", {}), ("spark", {"a": 5})]
    assert readers.delete(tmp_path, "spark")
    assert not readers.delete(tmp_path, "spark")
    assert sorted(path.name for path in (tmp_path / "readers").iterdir()) == ["other.one.json"]


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a b", "ä", "x" * 129, "a\n"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReadersError):
        readers.save(tmp_path, name, {})


@pytest.mark.parametrize("said", [[], 1, None, {"a": -1}, {"a": 1.5}, {"a": True}, {"a": "1"}, {"a": 1 << 63}])
def test_what_no_reader_says_is_refused(said: object) -> None:
    with pytest.raises(ReadersError):
        readers.decode_topics(said)


def test_there_are_not_more_readers_than_there_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_READERS", 2)
    readers.save(tmp_path, "one", {})
    readers.save(tmp_path, "two", {})
    with pytest.raises(ReadersError, match="2 readers"):
        readers.save(tmp_path, "three", {})
    readers.save(tmp_path, "two", {"a": 1})


def test_the_smallest_seq_of_all_readers_counts_and_changes_are_seen_at_once(tmp_path: Path) -> None:
    unread = Unread(tmp_path)

    def now() -> dict[str, int]:
        unread.refresh()
        return unread.topics

    assert now() == {}
    for n in range(20):
        readers.save(tmp_path, "one", {"a": n, "b": 7})
        assert now() == {"a": n, "b": 7}
        readers.save(tmp_path, "two", {"a": 10})
        assert now() == {"a": min(n, 10), "b": 7}
        readers.delete(tmp_path, "two")
    readers.delete(tmp_path, "one")
    assert now() == {}


def test_a_reader_that_cannot_be_understood_is_an_error_and_not_forgotten(tmp_path: Path) -> None:
    unread = Unread(tmp_path)
    readers.save(tmp_path, "one", {"a": 3})
    unread.refresh()
    path = tmp_path / "readers" / "one.json"
    text = path.read_text()
    path.write_text("{")
    os.utime(path.parent)
    unread.refresh()
    assert "one.json" in unread.error and unread.topics == {"a": 3}
    path.write_text(text)
    unread.refresh()
    assert unread.error == ""


@pytest.mark.timeout(20)  # nobody ever writes into the pipe
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.write_text("[" * 100_000)])
def test_what_is_no_readers_file_is_said_and_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    unread = Unread(tmp_path)
    (tmp_path / "readers").mkdir()
    make(tmp_path / "readers" / "one.json")
    unread.refresh()
    assert "one.json is" in unread.error


def test_heads_that_are_read_elsewhere_hold_their_segments_until_they_are_known(tmp_path: Path) -> None:
    asked: list[int] = []
    unread = UnreadSegments(
        lambda number: tmp_path / str(number), lambda: 2, lambda topic: 3,
        fetch=lambda number, names: asked.append(number),
    )  # fmt: skip
    unread.set({"t": 5})
    names = frozenset({"t"})
    assert unread.hold(1)
    assert unread.hold(1)
    assert sorted(asked) == [1, 2], "each once"
    unread.heard(1, names, Head({"t": 0}, whole=True))
    unread.heard(2, frozenset({"other"}), Head({}, whole=True))
    assert unread.hold(1), "of names that were asked for before"
    unread.heard(2, names, OSError())
    assert unread.hold(1)
    unread.heard(2, names, Head({"t": 3}, whole=False))
    assert not unread.hold(1), "the reader is past it"
    assert unread.hold(1), "what was not whole may be by now, and is read again"
    assert asked.count(1) == 1


def fresh_segment(bench: Channels) -> None:
    lib.worker_roll(bench.worker, 0)
    bench.supply()
    lib.worker_roll(bench.worker, 0)


@pytest.mark.parametrize("size", [1000, MIB])
def test_a_segment_whose_head_ends_before_a_record_longer_than_a_window_is_given_back(size: int) -> None:
    bench = Channels(ring_bytes=1 << 24)
    bench.pub("a")
    for _ in range(3):
        fresh_segment(bench)
        bench.pub("fill", b"x" * size)
        bench.pub("fill")

    def path(number: int) -> Path:
        return Path(f"/proc/self/fd/{dict(bench.segments[0])[number]}")

    last = int(lib.worker_active_segment(bench.worker, 0))
    asked: list[tuple[int, frozenset[str]]] = []
    unread = UnreadSegments(path, lambda: last, lambda topic: 2, fetch=lambda *what: asked.append(what))
    unread.set({"a": 2})
    first = int(lib.worker_first_segment(bench.worker, 0))
    assert unread.hold(first)
    for _ in range(10):
        for number, names in [asked.pop() for _ in list(asked)]:
            unread.heard(number, names, read_head(path(number), number, names))
        if not unread.hold(first):
            break
    assert not unread.hold(first)
    assert read_head(path(last), last, frozenset({"a"})).whole
    bench.dispose()


def test_a_long_record_that_is_not_of_this_segment_ends_no_head(tmp_path: Path) -> None:
    bench = Channels(ring_bytes=1 << 24)
    bench.pub("a")
    fresh_segment(bench)
    bench.pub("fill", b"x" * MIB)
    number = int(lib.worker_active_segment(bench.worker, 0))
    path = Path(f"/proc/self/fd/{dict(bench.segments[0])[number]}")
    assert read_head(path, number, frozenset({"a"})).whole
    data = bytearray(path.read_bytes())
    at = data.index(b"x" * 4096)
    data[at] ^= 1
    (tmp_path / "stale").write_bytes(data)
    assert not read_head(tmp_path / "stale", number, frozenset({"a"})).whole
    bench.dispose()


def test_a_head_that_is_not_whole_is_there_for_all_of_one_look(tmp_path: Path) -> None:
    asked: list[int] = []
    names = frozenset({"t"})
    unread = UnreadSegments(
        lambda number: tmp_path / str(number), lambda: 2, lambda topic: 3,
        fetch=lambda number, names: asked.append(number),
    )  # fmt: skip
    unread.set({"t": 5})
    assert unread.hold(1)
    unread.heard(1, names, Head({"t": 0}, whole=True))
    unread.heard(2, names, Head({}, whole=False))
    assert not unread.hold(1), "the worker says what the head does not"
