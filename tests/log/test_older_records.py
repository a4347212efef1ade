"""What earlier releases wrote is read: segments of version 1 and 2 with records as they were, put together by hand.

Records have grown by what stands behind: topics had no epochs, producers no time, and a segment's head named all topics
at once, whether there were messages of them or not.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.checksum import crc32c

from tests.shards.bench import OK, SECOND, SHARDS
from tests.shards.positions import EARLIEST, begin
from tests.shards.subscriptions import Channels

TOPIC, FLOOR, PUBLISH, DELETE, STATE, MOVED, SUBSCRIPTION, CURSOR, FINISH = range(1, 10)
PRODUCER = 16
DURABLE, STOPPED, RETAINS, UNAWAITED, NAMED = 1, 4, 16, 4, 2
NO_JOB, REFERENCED = 1, 2
TUBE = 2
ADOPT, REFERENCES = 13, 14
WALL = 1_700_000_000 * SECOND


class Segment:
    def __init__(self, number: int, version: int, previous_end: int = 0) -> None:
        self.number = number
        # Byte by byte, here and in `add`: what older versions wrote does not change with the structs of csrc.
        head = struct.pack("<8sIIIIQI24x", b"HQSRG01", version, 0, SHARDS, number, WALL, previous_end)
        self.content = head + crc32c(head).to_bytes(4, "little")

    def add(
        self, kind: int, topic: int = 0, seq: int = 0, id: int = 0, flags: int = 0, attributes: bytes = b"",
        body: bytes = b"",
    ) -> None:  # fmt: skip
        size = struct.pack("<I", 40 + len(attributes) + len(body))
        rest = struct.pack("<BBHIQQQ", kind, len(attributes), flags, topic, seq, WALL, id) + attributes + body
        crc = crc32c(rest, crc32c(size + struct.pack("<I", self.number)))
        record = size + struct.pack("<I", crc) + rest
        self.content += record + bytes(-len(record) % 8)

    def head(self, cursor: int, retained: int) -> None:
        """All topics and channels, whether the segment has messages of them or not, and the producers."""
        self.add(FLOOR, id=SHARDS)
        self.add(TOPIC, 1, seq=cursor, flags=DURABLE, body=b"t")
        self.add(SUBSCRIPTION, 1, seq=cursor, id=1, body=b"c")
        self.add(TOPIC, 2, flags=0, body=b"q")
        self.add(TOPIC, 3, flags=DURABLE | STOPPED, attributes=struct.pack("<Q", 1), body=b"paused")
        self.add(SUBSCRIPTION, 3, id=2, body=b"c")
        place = struct.pack("<QQQ", 0, 77, 0)
        self.add(TOPIC, 4, seq=retained, flags=DURABLE | RETAINS, attributes=place, body=b"kept")
        self.add(PRODUCER, seq=5, id=111, attributes=struct.pack("<I", 0))
        self.add(PRODUCER, seq=6, id=222, flags=NAMED, attributes=struct.pack("<I", 0))

    def fd(self) -> int:
        fd = os.memfd_create("segment", os.MFD_CLOEXEC)
        os.write(fd, self.content)
        return fd


def first(version: int) -> Segment:
    s = Segment(1, version)
    s.head(0, 0)
    pri_ttr = struct.pack("<II", 1024, 60_000)
    for seq in range(3):
        s.add(PUBLISH, 1, seq, SHARDS * (10 + seq), attributes=pri_ttr, body=b"t%d" % seq)
    s.add(CURSOR, 1, seq=2, id=1)
    s.add(FINISH, 1, seq=0, id=1, attributes=struct.pack("<I", 1))
    s.add(PUBLISH, 2, 0, SHARDS * 20, attributes=struct.pack("<II", 7, 60_000), body=b"soon")
    s.add(PUBLISH, 2, 1, SHARDS * 21, attributes=struct.pack("<IIQQ", 5, 0, 0, 60 * SECOND), body=b"first")
    s.add(PUBLISH, 2, 2, SHARDS * 22, attributes=struct.pack("<III", 3, 60_000, 5_000), body=b"delayed")
    s.add(PUBLISH, 2, 3, SHARDS * 23, attributes=pri_ttr, body=b"buried")
    s.add(STATE, 2, 3, SHARDS * 23, attributes=struct.pack("<8IQQ", 1024, lib.JOB_BURIED, 1, 0, 0, 1, 0, 0, 0, 0))
    s.add(PUBLISH, 2, 4, SHARDS * 24, attributes=pri_ttr, body=b"deleted")
    s.add(DELETE, 2, 4, SHARDS * 24)
    s.add(PUBLISH, 3, 0, SHARDS * 30, attributes=pri_ttr, body=b"before the pause")
    s.add(PUBLISH, 3, 1, SHARDS * 31, attributes=pri_ttr, body=b"in the pause")
    s.add(PUBLISH, 4, 0, SHARDS * 40, flags=UNAWAITED, attributes=pri_ttr, body=b"kept0")
    return s


def second(before: Segment, version: int) -> Segment:
    """What lived in the first has moved."""
    s = Segment(2, version, len(before.content))
    s.head(2, 0)
    moved = struct.pack("<IIQQ", 5, 0, 0, 60 * SECOND) + struct.pack("<8IQQ", 5, lib.JOB_READY, 4, 0, 0, 0, 0, 0, 0, 0)
    s.add(MOVED, 2, 1, SHARDS * 21, attributes=moved, body=b"first")
    s.add(MOVED, 1, 2, SHARDS * 12, flags=NO_JOB | REFERENCED, attributes=moved, body=b"t2")
    s.add(REFERENCES, 1, 2, SHARDS * 12, body=struct.pack("<IIIIQ", 1, 1, 0, 0, 0))
    return s


def worker_on(segment: Segment) -> Channels:
    """A worker whose first shard has this segment alone."""
    bench = Channels()
    bench.stop()
    for _, fd in bench.segments[0]:
        os.close(fd)
    bench.segments[0] = [(1, segment.fd())]
    bench.names.clear()
    bench.next_id = SHARDS * 1000
    bench.start()
    return bench


@pytest.fixture(params=["version 1", "version 2", "1 and then 2", "the first is gone"])
def old(request: pytest.FixtureRequest) -> Iterator[tuple[Channels, bool]]:
    """Whether all is there, or only what had moved."""
    bench = Channels()
    bench.stop()
    one = first(2 if request.param == "version 2" else 1)
    two = second(one, 2)
    segments = {"1 and then 2": [one, two], "the first is gone": [two]}.get(request.param, [one])
    for _, fd in bench.segments[0]:
        os.close(fd)
    bench.segments[0] = [(s.number, s.fd()) for s in segments]
    bench.names.clear()
    bench.next_id = SHARDS * 1000
    bench.start()
    yield bench, segments != [two]
    bench.dispose()


def bodies(answers: list[object]) -> list[bytes]:
    return [a.body for a in answers if a.kind == lib.MSG_DELIVER]  # type: ignore[attr-defined]


def test_records_of_earlier_releases_are_read(old: tuple[Channels, bool]) -> None:
    bench, whole = old
    for _ in range(2):  # what is written from now on stands behind it
        topics = bench.catalog()
        assert topics["paused"].paused and "kept" in topics and list(topics["t"].channels) == ["c"]
        jobs = [2, 3, 4] if whole else []
        assert topics["q"].jobs == 1 + len(jobs)
        assert topics["t"].channels["c"].depth == (2 if whole else 1)
        bench.restart()
    assert bench.sub(1, "t", "c", credit=9) == OK
    got = bodies(bench.turn())
    assert sorted(got) == ([b"t1", b"t2"] if whole else [b"t2"])
    if whole:
        assert bench.sub(2, "paused", "c", credit=9) == OK
        assert bodies(bench.turn()) == [b"before the pause"]
        assert bench.change(lib.CHANGE_UNPAUSE, "paused") == OK
        assert b"in the pause" in bodies(bench.pushed + bench.turn())
    # What a producer has published before is not published again.
    part = struct.pack("<QQII", 222, 6, 0, 0)
    flags = lib.MSG_DURABLE | lib.MSG_IDEMPOTENT
    bench.raw(lib.MSG_PUBLISH, 9, flags=flags, topic=bench.topic("t"), id=SHARDS * 999, body=part + b"again")
    (answer,) = [a for a in bench.turn() if a.conn == 9]
    assert (answer.status, answer.seq) == (OK, lib.NO_PLACE)
    assert not lib.worker_next_seq(bench.worker, b"nobody", 6)
    assert lib.worker_next_seq(bench.worker, b"t", 1) == 3
    assert lib.worker_next_seq(bench.worker, b"kept", 4) == (1 if whole else 0)


def test_what_a_pause_kept_each_channel_had_itself_in_earlier_releases() -> None:
    """Those delivered what was due during a pause; it is not given again to who has finished it."""
    pri_ttr = struct.pack("<II", 1024, 60_000)
    delayed = struct.pack("<III", 1024, 60_000, 1)
    s = Segment(1, 2)
    s.add(FLOOR, id=SHARDS)
    s.add(TOPIC, 1, flags=DURABLE | STOPPED, attributes=struct.pack("<Q", 1), body=b"t")
    s.add(SUBSCRIPTION, 1, id=1, body=b"c")
    s.add(PUBLISH, 1, 0, SHARDS * 10, attributes=pri_ttr, body=b"before")
    s.add(PUBLISH, 1, 1, SHARDS * 11, attributes=delayed, body=b"due")
    s.add(PUBLISH, 1, 2, SHARDS * 12, attributes=delayed, body=b"due too")
    s.add(PUBLISH, 1, 3, SHARDS * 13, attributes=pri_ttr, body=b"kept")
    s.add(SUBSCRIPTION, 1, seq=1, id=2, body=b"d")
    s.add(FINISH, 1, seq=1, id=1, attributes=struct.pack("<I", 1))
    moved = pri_ttr + struct.pack("<QQ", 0, 60 * SECOND) + bytes(48)
    s.add(MOVED, 1, 4, SHARDS * 14, flags=NO_JOB | REFERENCED, attributes=moved, body=b"moved")
    ahead = b"".join(struct.pack("<IIIIQ", channel, 1, 0, 0, 0) for channel in (1, 2))
    s.add(REFERENCES, 1, 4, SHARDS * 14, body=ahead)
    bench = worker_on(s)
    for _ in range(2):
        topic = bench.catalog()["t"]
        assert topic.paused and topic.depth == 3, "what is due too, kept, and moved"
        assert (topic.channels["c"].depth, topic.channels["d"].depth + topic.channels["d"].deferred) == (1, 1)
        bench.restart()
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    for conn, channel in ((1, "c"), (2, "d")):
        assert bench.sub(conn, "t", channel, credit=9) == OK
        own = b"before" if channel == "c" else b"due"
        assert sorted(bodies(bench.turn(1))) == sorted([own, b"due too", b"kept", b"moved"])
    bench.dispose()


def test_a_channel_has_the_jobs_that_an_earlier_release_gave_it_during_a_pause() -> None:
    """They were in the job queue, came after the pause had begun, and one had moved with its segment."""
    pri_ttr = struct.pack("<II", 1024, 60_000)
    s = Segment(1, 2)
    s.add(FLOOR, id=SHARDS)
    s.add(TOPIC, 1, flags=DURABLE | TUBE | STOPPED, attributes=struct.pack("<Q", 1), body=b"t")
    s.add(PUBLISH, 1, 0, SHARDS * 10, attributes=pri_ttr, body=b"before")
    moved = struct.pack("<IIQQ", 1024, 0, 0, 60 * SECOND)
    moved += struct.pack("<8IQQ", 1024, lib.JOB_READY, 0, 0, 0, 0, 0, 0, 0, 0)
    s.add(MOVED, 1, 1, SHARDS * 11, attributes=moved, body=b"moved")
    s.add(PUBLISH, 1, 2, SHARDS * 12, attributes=pri_ttr, body=b"meanwhile")
    s.add(SUBSCRIPTION, 1, seq=3, id=1, body=b"c")
    s.add(ADOPT, 1, id=1, body=struct.pack("<QQQ", SHARDS * 10, SHARDS * 11, SHARDS * 12))
    bench = worker_on(s)
    topic = bench.catalog()["t"]
    assert (topic.jobs, topic.depth, topic.channels["c"].depth) == (3, 2, 1)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert bench.sub(1, "t", "c", credit=9) == OK
    assert bodies(bench.turn()) == [b"before", b"moved", b"meanwhile"]
    bench.dispose()


def test_jobs_from_before_a_topic_retained_are_found_though_an_earlier_release_did_not_log_which() -> None:
    pri_ttr = struct.pack("<II", 1024, 60_000)
    s = Segment(1, 2)
    s.add(FLOOR, id=SHARDS)
    s.add(TOPIC, 1, flags=TUBE, body=b"t")
    for seq in range(3):
        s.add(PUBLISH, 1, seq, SHARDS * (10 + seq), attributes=pri_ttr, body=b"%d" % seq)
    s.add(DELETE, 1, 0, SHARDS * 10)
    s.add(TOPIC, 1, seq=3, flags=DURABLE | TUBE | RETAINS, attributes=struct.pack("<QQQ", 0, 77, 3), body=b"t")
    bench = worker_on(s)
    for _ in range(2):
        begin(bench, 1, EARLIEST, flags=lib.SUBSCRIBE_EPHEMERAL)
        assert bodies(bench.turn()) == [b"1", b"2"]
        assert bench.catalog()["t"].jobs == 2
        bench.restart()
    bench.dispose()
