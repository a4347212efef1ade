"""Channels and the segments of the log: what compaction moves, when a segment may go, what half of a write is worth."""

from __future__ import annotations

import os

from mq_shards.csrc._core import lib

from tests.shards.bench import OK, PUBLISH, SHARDS
from tests.shards.subscriptions import Channels, delivered, drop_oldest, roll
from tests.shards.turns import deliver, depths


def test_compaction_moves_what_channels_hold_and_no_more(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=3)
    bench.sub(2, "t", "d", credit=2)
    ids = [bench.pub("t", b"%d" % n)[0] for n in range(8)]
    delayed, _ = bench.pub("t", delay=500)
    waiting, _ = bench.pub("w", b"waits")
    bench.fin(1, ids[0], ids[1])
    bench.fin(2, ids[0])
    bench.req(1, ids[2], delay=400)
    roll(bench)
    drop_oldest(bench)
    bench.fin(2, ids[1])
    bench.restart()
    figures = bench.catalog()["t"].channels
    assert (figures["c"].depth, figures["c"].deferred) == (5, 2)
    assert (figures["d"].depth, figures["d"].deferred) == (6, 1)
    bench.sub(1, "t", "c", credit=100)
    bench.sub(2, "t", "d", credit=100)
    answers = bench.turn()
    assert sorted(delivered(answers, 1)) == [(i, 2) for i in ids[3:6]] + [(i, 1) for i in ids[6:]]
    assert sorted(delivered(answers, 2)) == [(i, 2) for i in ids[2:4]] + [(i, 1) for i in ids[4:]]
    assert {a.body for a in answers} == {b"%d" % n for n in range(2, 8)}
    bench.fin(1, *ids[3:])
    bench.fin(2, *ids[2:])
    assert sorted((a.conn, a.id, a.pri) for a in bench.turn(501)) == [(1, ids[2], 2), (1, delayed, 1), (2, delayed, 1)]
    bench.sub(3, "w", "c", credit=1)
    assert delivered(bench.turn()) == [(waiting, 1)]


def test_segments_go_when_every_channel_is_past_them(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100)
    bench.sub(2, "t", "d", credit=100)
    ids = [bench.pub("t")[0] for _ in range(3)]
    roll(bench)
    bench.fin(1, *ids)
    assert lib.worker_dead_segments(bench.worker, 0) == 0
    bench.fin(2, *ids)
    assert lib.worker_dead_segments(bench.worker, 0) == 1


def test_half_of_a_publish_of_many_does_not_count(bench: Channels) -> None:
    first = bench.pub("t")[0]
    bench.mpub("t", [b"y" * 100] * 10)
    bench.stop()
    _, fd = bench.segments[0][-1]
    data = os.pread(fd, 1 << 20, 0)
    at = data.rindex(b"y" * 100)
    os.pwrite(fd, b"\0" * 200, at - 60)  # its last record was not written
    bench.start()
    bench.sub(1, "t", "c", credit=100)
    assert delivered(bench.turn()) == [(first, 1)]
    again = bench.mpub("t", [b"z"] * 3)
    bench.turn()
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert {id for id, _ in delivered(bench.turn())} == {first, *again}


def test_on_a_full_disk_what_is_finished_is_written_or_refused() -> None:
    """Whoever was not refused has finished it, also after a crash."""
    bench = Channels(ring_bytes=1 << 22)
    bench.supply = lambda: lib.worker_refuse_segment(bench.worker, 0)  # type: ignore[method-assign]
    channels = {1: "c", 2: "d", 3: "e"}
    for conn, channel in channels.items():
        assert bench.sub(conn, "t", channel) == OK
    for size in (60_000, 5_000, 0):
        status = OK
        while status == OK:
            slot = bench.raw(PUBLISH, 999, topic=bench.topic("t"), id=bench.next_id, body=bytes(size))
            (status,) = [a.status for a in bench.turn() if a.slot == slot]
            bench.next_id += SHARDS
    left: dict[int, list[int]] = {}
    for conn in channels:
        ids = deliver(bench, conn)
        left[conn] = [id for id in ids if [a.status for a in bench.fin(conn, id)] == [lib.STATUS_NO_SPACE]]
    assert any(left.values()) and not all(left.values())
    bench.restart()
    assert depths(bench) == {channel: (len(left[conn]), 0, 0) for conn, channel in channels.items()}
    bench.dispose()
